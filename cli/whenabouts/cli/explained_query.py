"""A query in lines, as `--explain` shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from whenabouts.core.expressions.tree import Expression
from whenabouts.core.joins.pair_conditions import SqlPredicate
from whenabouts.core.runtime.protocol import Query
from whenabouts.core.times.conditions import Condition
from whenabouts.core.wrappers.select_project import SelectProject


def query_lines(query: Query) -> list[str]:
    """The settings of a query, those of the operation first; settings without a value are left out.

    >>> from whenabouts.core.coalescing.query import Coalesce
    >>> query_lines(Coalesce(time="t", values="v"))[:2]
    ["time: Point(t='t')", 'values: v']
    """
    if not isinstance(query, SelectProject):
        return _lines({field.name: getattr(query, field.name) for field in fields(query)})  # type: ignore[arg-type]
    columns: tuple[Any, ...] = tuple(name if _is_column(name, it) else (name, it) for name, it in query.columns or ())
    around = {"rows with": query.where, "computed": query.derived, "result with": query.having, "columns": columns}
    return [*query_lines(query.query), *_lines(around)]


def _lines(settings: Mapping[str, Any]) -> list[str]:
    return [f"{name}: {_shown(value)}" for name, value in settings.items() if value is not None and value != ()]


def _is_column(name: str, value: Expression) -> bool:
    return value.operation == "column" and value.value == (None, name)


def _shown(value: Any) -> str:
    if isinstance(value, Condition):
        return value.described
    if isinstance(value, SqlPredicate):
        return _written(value.condition)
    if isinstance(value, Expression):
        return _written(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_shown(each)}" for name, each in value.items())
    if isinstance(value, tuple):
        return ", ".join(f"({_shown(each)})" if isinstance(each, tuple) else _shown(each) for each in value)
    return str(value)


def _written(expression: Expression) -> str:
    """The expression as calls: `lt(left.v, right.w)`."""
    if expression.operation == "column":
        return ".".join(filter(None, expression.value))
    if expression.operation == "literal":
        return repr(expression.value)
    more = [] if expression.value is None else [str(expression.value)]
    return f"{expression.operation}({', '.join([*map(_written, expression.operands), *more])})"

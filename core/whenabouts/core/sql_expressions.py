"""SQL text to `Expression`: parsed by sqlglot (extra `sql`), and never evaluated as code.

Taken: columns (`a.x`, `"odd name"`), numbers, text, `TRUE`, `FALSE`, `NULL`, `TIMESTAMP '...'`, `DATE '...'` and
`INTERVAL '5' SECOND`; `AND OR NOT = <> < <= > >= IS [NOT] NULL|TRUE|FALSE IS [NOT] DISTINCT FROM [NOT] IN (...) [NOT]
BETWEEN [NOT] LIKE ILIKE + - * / ||`; `CASE`, `CAST`, `ABS SQRT FLOOR CEIL LEAST GREATEST COALESCE LOWER UPPER LENGTH`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from types import ModuleType
from typing import Any, TypeAlias

import pyarrow as pa

from whenabouts.core.durations import parse_duration
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.expressions import TIME, Expression, joined

Node: TypeAlias = Any
"""A node of sqlglot's, `sqlglot.exp.Expression`; what it has differs from class to class."""

Place: TypeAlias = tuple[int, int]
"""Line and column, from 1."""

_BINARY = ("this", "expression")
_UNARY = ("this",)
_LIST = ("this", "expressions")
_OPERATIONS = {
    "EQ": ("eq", _BINARY), "NEQ": ("ne", _BINARY), "LT": ("lt", _BINARY), "LTE": ("le", _BINARY),
    "GT": ("gt", _BINARY), "GTE": ("ge", _BINARY), "Is": ("same", _BINARY), "NullSafeEQ": ("same", _BINARY),
    "Add": ("add", _BINARY), "Sub": ("subtract", _BINARY), "Mul": ("multiply", _BINARY), "Div": ("divide", _BINARY),
    "DPipe": ("concat", _BINARY), "Not": ("not", _UNARY), "Abs": ("abs", _UNARY), "Sqrt": ("sqrt", _UNARY),
    "Floor": ("floor", _UNARY), "Ceil": ("ceil", _UNARY), "Lower": ("lower", _UNARY), "Upper": ("upper", _UNARY),
    "Length": ("length", _UNARY), "Least": ("least", _LIST), "Greatest": ("greatest", _LIST),
    "Coalesce": ("coalesce", _LIST),
}  # fmt: skip
"""By sqlglot's class, the operation and where its operands are."""

_SAID_OF_DIALECTS = {"typed", "safe", "ignore_nulls", "is_nvl", "is_null"}
"""What sqlglot notes beside operands and means nothing for the operations above."""

_TYPES = {
    "BOOLEAN": pa.bool_(), "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INT": pa.int32(), "BIGINT": pa.int64(),
    "FLOAT": pa.float32(), "DOUBLE": pa.float64(), "TEXT": pa.string(), "VARCHAR": pa.string(), "DATE": pa.date32(),
    "TIMESTAMP": TIME, "TIMESTAMPTZ": TIME, "TIMESTAMPLTZ": TIME,
}  # fmt: skip

_GREATEST = 2**63 - 1


def parse_expression(text: str) -> Expression:
    """The expression that a text says. Raises QueryError: WA-2091 for what is no SQL expression, or one that is not
    taken, with line and column; WA-2007 without sqlglot.

    >>> parse_expression("a.x < 3 AND NOT b.s LIKE 'u%'").operation
    'and'
    >>> parse_expression("a.x < avg(b.y)")
    Traceback (most recent call last):
    whenabouts.core.errors.QueryError: WA-2091: line 1, column 7: `AVG(b.y)` is not taken (hint: in 'a.x < avg(b.y)')
    """
    sqlglot = _sqlglot()
    try:
        found = [node for node in sqlglot.parse(text) if node is not None]
        if len(found) != 1:
            raise _refused((1, 1), f"one condition is asked for, here are {len(found)}", text)
        return from_sqlglot(found[0], text)
    except sqlglot.errors.SqlglotError as error:
        told = getattr(error, "errors", None) or [{"description": str(error), "line": 1, "col": 1}]
        raise _refused((told[0]["line"], told[0]["col"]), told[0]["description"], text) from error
    except RecursionError as error:
        raise _refused((1, 1), "parentheses are nested too deeply", text) from error


def from_sqlglot(node: Node, text: str) -> Expression:
    """The expression of a node that sqlglot parsed from `text`: for those who parse whole queries. Errors as above."""
    name, place = type(node).__name__, _place(node, text)
    told = {part for part, value in node.args.items() if value} - _SAID_OF_DIALECTS
    if name in _OPERATIONS and told <= set(_OPERATIONS[name][1]):
        operation, parts = _OPERATIONS[name]
        operands = [node.this, *(node.expressions if parts == _LIST else [node.expression][: len(parts) - 1])]
        return Expression(operation, tuple(from_sqlglot(operand, text) for operand in operands), place=place)
    if name in _FORMS and told <= set(_FORMS[name][1].split()):
        return _FORMS[name][0](node, text, place)
    raise _not_taken(node, text)


def _column(node: Node, text: str, place: Place) -> Expression:
    if type(node.this).__name__ != "Identifier":
        raise _not_taken(node, text)
    return Expression("column", value=(node.table or None, node.name), place=place)


def _literal(node: Node, text: str, place: Place) -> Expression:
    if node.is_string:
        return Expression("literal", value=node.this, place=place)
    value = int(node.this) if node.this.isdecimal() else float(node.this)
    if isinstance(value, int) and value > _GREATEST:
        raise _refused(place, f"{node.this} is too great for 64 bits", text)
    return Expression("literal", value=value, place=place)


def _interval(node: Node, text: str, place: Place) -> Expression:
    if type(node.this).__name__ != "Literal" or type(node.args.get("unit")).__name__ != "Var":
        raise _not_taken(node, text)
    us = parse_duration(f"{node.this.name} {node.text('unit').lower()}", name="an INTERVAL")
    return Expression("literal", value=timedelta(microseconds=us), place=place)


def _negative(node: Node, text: str, place: Place) -> Expression:
    inner = from_sqlglot(node.this, text)
    if inner.operation == "literal" and isinstance(inner.value, int | float | timedelta) and inner.value is not True:
        return replace(inner, value=-inner.value, place=place)
    return Expression("negate", (inner,), place=place)


def _all_of(node: Node, text: str, place: Place) -> Expression:
    return joined(type(node).__name__.lower(), [from_sqlglot(part, text) for part in node.flatten()], place)


def _in(node: Node, text: str, place: Place) -> Expression:
    one = from_sqlglot(node.this, text)
    found = [Expression("eq", (one, from_sqlglot(part, text)), place=place) for part in node.expressions]
    return joined("or", found, place)


def _between(node: Node, text: str, place: Place) -> Expression:
    one, low, high = (from_sqlglot(node.args[part], text) for part in ("this", "low", "high"))
    ends = Expression("ge", (one, low), place=place), Expression("le", (one, high), place=place)
    return Expression("and", ends, place=place)


def _like(node: Node, text: str, place: Place) -> Expression:
    if not node.expression.is_string:
        raise _refused(place, "the pattern of LIKE is no text in quotes", text)
    found = Expression(type(node).__name__.lower(), (from_sqlglot(node.this, text),), node.expression.name, place)
    return Expression("not", (found,), place=place) if node.args.get("negate") else found


def _case(node: Node, text: str, place: Place) -> Expression:
    otherwise = node.args.get("default")
    found = Expression("literal", place=place) if otherwise is None else from_sqlglot(otherwise, text)
    for branch in reversed(node.args["ifs"]):
        condition = from_sqlglot(branch.this, text)
        if node.this is not None:
            condition = Expression("eq", (from_sqlglot(node.this, text), condition), place=place)
        found = Expression("if", (condition, from_sqlglot(branch.args["true"], text), found), place=place)
    return found


def _cast(node: Node, text: str, place: Place) -> Expression:
    kind = _TYPES.get(node.to.this.name)
    if kind is None or node.to.expressions:
        raise _refused(place, f"{node.to} is not taken as a type", text)
    return Expression("cast", (from_sqlglot(node.this, text),), kind, place)


def _distinct(node: Node, text: str, place: Place) -> Expression:
    operands = from_sqlglot(node.this, text), from_sqlglot(node.expression, text)
    return Expression("not", (Expression("same", operands, place=place),), place=place)


def _constant(node: Node, text: str, place: Place) -> Expression:
    return Expression("literal", value=node.args.get("this"), place=place)


def _inner(node: Node, text: str, place: Place) -> Expression:
    return from_sqlglot(node.this, text)


_FORMS: dict[str, tuple[Callable[[Node, str, Place], Expression], str]] = {
    "Column": (_column, "this table"),
    "Literal": (_literal, "this is_string"),
    "Boolean": (_constant, "this"),
    "Null": (_constant, ""),
    "Interval": (_interval, "this unit"),
    "Paren": (_inner, "this"),
    "Neg": (_negative, "this"),
    "And": (_all_of, "this expression"),
    "Or": (_all_of, "this expression"),
    "NullSafeNEQ": (_distinct, "this expression"),
    "In": (_in, "this expressions"),
    "Between": (_between, "this low high"),
    "Like": (_like, "this expression negate"),
    "ILike": (_like, "this expression negate"),
    "Case": (_case, "this ifs default"),
    "Cast": (_cast, "this to"),
}
"""By sqlglot's class, the forms that are not an operation on their parts, and what they may say."""


def _place(node: Node, text: str) -> Place:
    """Where the first word of a node stands; sqlglot notes it for names, literals and most functions."""
    starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
    before = text[: min(starts, default=0)]
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def _not_taken(node: Node, text: str) -> QueryError:
    return _refused(_place(node, text), f"`{node.sql()}` is not taken", text)


def _refused(place: Place, problem: str, text: str) -> QueryError:
    return QueryError(Code.BAD_SQL, f"line {place[0]}, column {place[1]}: {problem}", f"in {text!r}")


def _sqlglot() -> ModuleType:
    try:
        import sqlglot
    except ImportError as error:
        raise QueryError(
            Code.NOT_AVAILABLE, "SQL text needs sqlglot", "pip install 'whenabouts[sql]', or give a function"
        ) from error
    return sqlglot

"""Coalescing as text: `Coalesce` and `TemporalAggregate` from COALESCE ON, GROUP BY and VALID.

``COALESCE ON`` names columns or computed values; a *condition* there returns the periods in which it holds. WHERE
filters coalesced tuples, so it may use group and value columns only: if rows were filtered first, periods would extend
over the dropped rows. Durations are microseconds; with SLIDE the first column is ``window_end``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from whenabouts.core.coalescing.columns import COUNT, OP, VALID_FROM, VALID_LAST, VALID_TO, WINDOW_END
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.costs.eager_lazy_cost import eager_part
from whenabouts.core.errors import Code
from whenabouts.core.expressions.sql import from_sqlglot
from whenabouts.core.expressions.tree import Expression, column, joined, rewritten
from whenabouts.core.temporal_queries.aggregate_query import TemporalAggregate
from whenabouts.core.wrappers.select_project import Named, SelectProject
from whenabouts.planner.coalescing_queries import CoalescingQuery, Evaluation
from whenabouts.planner.text_clauses import WindowClause
from whenabouts.planner.text_durations import text_duration_us
from whenabouts.planner.text_join_columns import free_name
from whenabouts.planner.text_periods import PERIOD, check_periods, duration_of_period, is_period, written_period
from whenabouts.planner.text_scope import (
    ParsedQuery,
    Scope,
    conditions_of,
    is_call,
    name_in,
    no_column,
    query_of,
    with_options,
)

_SHOWN = 200
_AGGREGATES = {"Max": "max", "Min": "min", "Sum": "sum", "Avg": "avg", "Median": "median", "Count": "count"}
_CONDITIONS = frozenset({"and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge", "is null", "same", "like", "ilike"})


@dataclass(frozen=True, slots=True)
class Coalescing:
    """The contents of COALESCE ON and GROUP BY."""

    group: tuple[str, ...]
    values: tuple[str, ...]
    derived: Named
    condition: Expression | None


def bind_coalescing(scope: Scope, options: dict[str, Any]) -> SelectProject:
    """The coalesced tuples of one stream, or aggregates of them."""
    found = coalescing_of(scope)
    check_periods(scope)
    (stream,) = scope.streams.values()
    given = given_by(scope, found) | {"time": stream.time, "lateness": stream.lateness} | _emit(scope)
    given = with_options(given, options)
    if any(_aggregate(node) is not None for node in scope.query.clauses.select.expressions):
        return _aggregated(scope, found, given)
    query = query_of(Coalesce, {}, {"valid_last": _names_last(scope.query.clauses, found), **given})
    computed = (VALID_FROM, VALID_TO, *([VALID_LAST] if query.valid_last else ()), COUNT)
    first = [OP] if query.emit == "early" else []
    first += [WINDOW_END] if query.extents.slides else []
    names = [*first, *found.group, *found.values, *computed]
    having = [rewritten(each, _plain) for each in _where(scope, found, computed)]
    having += [found.condition] if found.condition is not None else []
    return SelectProject(
        query=query,
        derived={query.inputs[0]: found.derived} if found.derived else (),
        having=joined("and", having, having[0].place) if having else None,
        columns=columns_of(scope, names, first, {stream.source.alias: {name: name for name in names}}),
    )


def _emit(scope: Scope) -> dict[str, str]:
    """`emit` as the text says it."""
    asked = scope.query.clauses.emit
    return {} if asked is None else {"emit": asked}


def _names_last(clauses: Any, found: Coalescing) -> bool:
    """Whether SELECT or WHERE names the column `valid_last`."""
    if VALID_LAST in (*found.group, *found.values):
        return False
    nodes = (part for each in (*clauses.select.expressions, *conditions_of(clauses)) for part in each.walk())
    return any(type(node).__name__ == "Column" and node.name.lower() == VALID_LAST for node in nodes)


def distinct_query(query: ParsedQuery) -> CoalescingQuery:
    """The planner's view of a coalescing query; columns are not checked."""
    if query.form != "coalesce":
        raise query.clauses.place.wrong(
            "this query coalesces no single stream", "FROM one stream and COALESCE ON", Code.UNSUPPORTED_TEXT
        )
    (source,), clauses = query.sources, query.clauses
    if clauses.emit == "early":
        assert clauses.emit_at is not None
        raise clauses.emit_at.wrong(
            "early answers are not planned", "final rows: queries that share an extent have no others", Code.NO_EARLY
        )
    if source.window is None:
        raise source.place.wrong(
            "this query has no window, and nothing to be planned", "[RANGE 24 HOUR] or [ROWS 100] behind the stream",
            Code.UNSUPPORTED_TEXT,
        )  # fmt: skip
    window = source.window
    group = clauses.select.args.get("group")
    group_names = tuple(node.name for node in (group.expressions if group else ()))
    values = tuple(_value_name(node) for node in clauses.coalesce)
    aggregated = any(_aggregate(node) is not None for node in clauses.select.expressions)
    range_us = None if window.range is None else text_duration_us(str(window.range), window.place)
    by_rows = isinstance(window.slide, int)
    slide_us = None if window.slide is None or by_rows else text_duration_us(str(window.slide), window.place)
    asked = (*clauses.select.expressions, *conditions_of(clauses)) if aggregated else ()
    computed = [node.sql() for node in clauses.coalesce if type(node).__name__ != "Column"]
    evaluation = Evaluation(
        slide_us,
        window.slide if isinstance(window.slide, int) else None,
        aggregates=tuple(node.sql() for node in asked),
        computed=tuple(sorted(computed)),
        valid_last=not aggregated and _names_last(clauses, Coalescing(group_names, values, (), None)),
    )
    return CoalescingQuery(
        coalesce=values,
        group=group_names,
        rows=window.rows,
        range=window.range,
        equivalence="equal" if clauses.within is None else f"absolute_tolerance:{clauses.within}",
        stream=source.stream,
        eager_part=eager_part(range_us, slide_us, aggregated=aggregated),
        per_group=bool(window.partition),
        evaluation=evaluation,
    )


def coalescing_of(scope: Scope) -> Coalescing:
    """What COALESCE ON and GROUP BY say. Raises: QueryError WA-2092 for an unknown column, WA-2112 for other groups."""
    clauses = scope.query.clauses
    group = clauses.select.args.get("group")
    grouped = group.expressions if group else ()
    scope = replace(scope, streams=dict(list(scope.streams.items())[:1]))  # a second one has the same columns
    groups = [_bare(scope.expression(node), scope.place(node), "GROUP BY") for node in grouped]
    values, derived = [], []
    condition: Expression | None = None
    for node in clauses.coalesce:
        name = _value_name(node)
        expression = scope.expression(node.this if type(node).__name__ == "Alias" else node)
        if expression.operation == "column" and not node.alias:
            name = expression.value[1]
        else:
            derived.append((name, rewritten(expression, _plain)))
        if expression.operation in _CONDITIONS:
            if condition is not None:
                raise scope.place(node).wrong("a second condition", "one condition, joined by AND")
            condition = column(name)
        values.append(name)
    return Coalescing(tuple(dict.fromkeys(groups)), tuple(values), tuple(derived), condition)


def _value_name(node: Any) -> str:
    """The name of a value: its alias, its column, or the text of its expression."""
    return str(node.alias or (node.name if type(node).__name__ == "Column" else node.sql()))


def _bare(expression: Expression, place: Any, clause: str) -> str:
    if expression.operation != "column":
        raise place.wrong(f"found {place.words!r}", f"a plain column in {clause}", Code.UNSUPPORTED_TEXT)
    name: str = expression.value[1]
    return name


def _plain(node: Expression) -> Expression:
    """A column without its stream, since there is only one."""
    return replace(node, value=(None, node.value[1]))


def given_by(scope: Scope, found: Coalescing) -> dict[str, Any]:
    """The arguments of a `Coalesce` that the text says. Raises: QueryError WA-2111 for windows that differ."""
    within = scope.query.clauses.within
    given: dict[str, Any] = {"group": found.group, "values": found.values}
    if within is not None:
        given["equivalence"] = f"absolute_tolerance:{within}"
    windows = [stream.source.window for stream in scope.streams.values()]
    first, *others = [{} if window is None else _window(window, found) for window in windows]
    for window, other in zip(windows[1:], others, strict=True):
        if other != first:
            place = window.place if window else scope.query.clauses.place
            raise place.wrong("the two streams have different windows", "the same window for both")
    return given | first


def _window(window: WindowClause, found: Coalescing) -> dict[str, Any]:
    """The arguments of a `Coalesce` that say its window."""
    given: dict[str, Any] = {}
    if window.range is not None:
        given["window"] = text_duration_us(window.range, window.place)
    if window.rows is not None:
        given |= {"rows": window.rows, "per_group": bool(window.partition)}
        if window.partition and {name.lower() for name in window.partition} != {name.lower() for name in found.group}:
            raise window.place.wrong("PARTITION BY differs from GROUP BY", f"PARTITION BY {', '.join(found.group)}")
    if window.slide is not None:
        counted = isinstance(window.slide, int)
        duration = None if counted else text_duration_us(str(window.slide), window.place)
        # A slide of a window of rows is rows where it is an int, so durations are given as text.
        given["slide"] = window.slide if counted else f"{duration} us"
    return given


def _where(scope: Scope, found: Coalescing, computed: Sequence[str] = ()) -> list[Expression]:
    """Conditions on coalesced tuples. ``computed``: their columns besides group and values."""
    (stream,) = scope.streams.values()
    of_result = [name for name in computed if name not in stream.schema.names]

    def resolved(node: Expression) -> Expression:
        return node if node.value[0] is None and node.value[1] in of_result else scope.resolved(node)

    conditions = []
    for node in conditions_of(scope.query.clauses):
        condition = rewritten(from_sqlglot(node, scope.query.text), resolved)
        for each in condition.columns():
            if each.value[1] not in (*found.group, *found.values, *of_result):
                raise each.error(
                    Code.UNSUPPORTED_TEXT,
                    f"{each.value[1]!r} is neither grouped by nor coalesced on",
                    "expected a column of GROUP BY or COALESCE ON: WHERE speaks of coalesced tuples",
                )
        conditions.append(condition)
    return conditions


def columns_of(
    scope: Scope, names: Sequence[str], first: Sequence[str], own: Mapping[str, Mapping[str, str]]
) -> Named | None:
    """The columns of SELECT, over the columns of coalesced tuples; None for ``*`` alone.

    ``first``: columns that come first, whether SELECT names them or not. ``own``: by alias the names of the stream's
    columns in the result.
    """
    chosen = scope.query.clauses.select.expressions
    if len(chosen) == 1 and type(chosen[0]).__name__ == "Star":
        return None
    taken: set[str] = set()
    columns: list[tuple[str, Expression]] = []
    every = {name: name for name in names}
    for node in chosen:
        columns += (new := _item(scope, node, every, own, taken))
        taken.update(name for name, _ in new)
    return (*((name, column(name)) for name in first if name not in taken), *columns)


def _item(
    scope: Scope, node: Any, every: Mapping[str, str], own: Mapping[str, Mapping[str, str]], taken: Collection[str]
) -> list[tuple[str, Expression]]:
    """The columns of one item of SELECT."""
    inner = node.this if type(node).__name__ == "Alias" else node
    words = inner.sql()
    if type(inner).__name__ == "Star":
        return [(name, column(name)) for name in every]
    if is_period(scope, inner):
        if node.alias:
            raise scope.place(node).wrong(
                f"AS {node.alias} for two columns", f"{words} without AS, or valid_from AS ..., valid_to AS ...",
                Code.UNSUPPORTED_TEXT,
            )  # fmt: skip
        return [(name, column(name)) for name in PERIOD]
    if is_call(inner, "DURATION"):
        return [(node.alias or "duration", duration_of_period())]
    if words in every:  # a computed value, as COALESCE ON has it
        return [(node.alias or words, column(words))]
    expression = rewritten(from_sqlglot(inner, scope.query.text), lambda each: _of_result(each, every, own))
    usual = [expression.value[1] if expression.operation == "column" else words]
    if expression.operation == "column" and inner.table:
        usual.append(f"{inner.name}_{inner.table}")
    return [(node.alias or free_name(taken, usual), expression)]


def _of_result(node: Expression, every: Mapping[str, str], own: Mapping[str, Mapping[str, str]]) -> Expression:
    """A column of the result, by name, or as ``alias.name``."""
    table, name = node.value
    known = every if table is None else own.get(name_in(table, own) or "", {})
    found = name_in(name, known)
    if found is None:
        raise no_column(node, name, [*every])
    return replace(node, value=(None, known[found]))


def _aggregate(node: Any) -> str | tuple[str, str] | None:
    """The aggregate of a SELECT item: ``MAX(DURATION(VALID(s)))``, ``COUNT(*)``, ``TIME_WEIGHTED(column)``."""
    inner = node.this if type(node).__name__ == "Alias" else node
    if is_call(inner, "TIME_WEIGHTED") and len(inner.expressions) == 1:
        return "time_weighted", inner.expressions[0].name
    return _AGGREGATES.get(type(inner).__name__)


def _aggregated(scope: Scope, found: Coalescing, given: dict[str, Any]) -> SelectProject:
    aggregates: dict[str, str | tuple[str, str]] = {}
    columns: list[tuple[str, Expression]] = []
    for node in scope.query.clauses.select.expressions:
        asked, place = _aggregate(node), scope.place(node)
        inner = node.this if type(node).__name__ == "Alias" else node
        if asked is None:
            name = _bare(scope.expression(inner), place, "SELECT") if type(inner).__name__ == "Column" else ""
            if name not in found.group:
                raise place.wrong(
                    f"found {place.words!r} beside aggregates",
                    f"an aggregate, or one of {', '.join(found.group) or 'none'}",
                )
            columns.append((node.alias or name, column(name)))
            continue
        if isinstance(asked, str):
            _check_argument(scope, inner, asked)
            usual = asked if asked == "count" else f"{asked}_duration"
        else:
            weighed = scope.expression(inner.expressions[0])
            asked = "time_weighted", _bare(weighed, place, "TIME_WEIGHTED")
            if asked[1] not in found.values:
                raise no_column(weighed, asked[1], found.values)
            usual = f"time_weighted_{asked[1]}"
        name = node.alias or usual
        aggregates[name] = asked
        columns.append((name, column(name)))
    conditions = [rewritten(each, _plain) for each in _where(scope, found)]
    conditions += [found.condition] if found.condition is not None else []
    said: dict[str, Any] = {"aggregates": aggregates}
    if conditions:
        said["where"] = joined("and", conditions, conditions[0].place)
    query = query_of(TemporalAggregate, said, given)
    if query.extents.slides:
        columns.insert(0, (WINDOW_END, column(WINDOW_END)))
    return SelectProject(
        query=query, derived={query.inputs[0]: found.derived} if found.derived else (), columns=tuple(columns)
    )


def _check_argument(scope: Scope, node: Any, function: str) -> None:
    """Aggregates apply to DURATION(VALID(s)); COUNT(*) and COUNT(VALID(s)) count coalesced tuples."""
    counted = function == "count" and (type(node.this).__name__ == "Star" or is_period(scope, node.this))
    further = any(part for name, part in node.args.items() if name not in ("this", "big_int"))
    if not further and (counted or is_call(node.this, "DURATION")):
        return
    wanted = "COUNT(*)" if function == "count" else f"{function.upper()}(DURATION({written_period(scope)}))"
    raise scope.place(node).wrong(f"found {node.sql()[:_SHOWN]!r}", wanted)

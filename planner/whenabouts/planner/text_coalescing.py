"""Coalescing as text: `Coalesce`, `TemporalAggregate` and `TemporalJoin` from COALESCE ON, GROUP BY and VALID.

``COALESCE ON`` names columns or computed values; a *condition* there returns the periods in which it holds. WHERE
filters coalesced tuples, so it may use group and value columns only: if rows were filtered first, periods would extend
over the dropped rows. Durations are microseconds; with SLIDE the first column is ``window_end``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from whenabouts.core.coalescing.columns import COUNT, OP, VALID_FROM, VALID_LAST, VALID_TO, WINDOW_END
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.costs.eager_lazy_cost import eager_part
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.expressions.sql import from_sqlglot
from whenabouts.core.expressions.tree import Expression, column, joined, rewritten
from whenabouts.core.joins.pair_conditions import SqlPredicate
from whenabouts.core.temporal_queries.aggregate_query import TemporalAggregate
from whenabouts.core.temporal_queries.join_query import TemporalJoin
from whenabouts.core.wrappers.select_project import Named, SelectProject
from whenabouts.planner.coalescing_queries import CoalescingQuery, Evaluation
from whenabouts.planner.text_durations import duration_us, text_duration_us
from whenabouts.planner.text_scope import ParsedQuery, Scope, conditions_of, is_call, no_column

_AGGREGATES = {"Max": "max", "Min": "min", "Sum": "sum", "Avg": "avg", "Median": "median", "Count": "count"}
_CONDITIONS = frozenset({"and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge", "is null", "same", "like", "ilike"})


@dataclass(frozen=True, slots=True)
class _Coalescing:
    """The contents of COALESCE ON and GROUP BY."""

    group: tuple[str, ...]
    values: tuple[str, ...]
    derived: Named
    condition: Expression | None


def bind_coalescing(scope: Scope, options: dict[str, Any]) -> SelectProject:
    """One stream: its coalesced tuples, or aggregates of them. Two streams: pairs of coalesced tuples."""
    found = _coalescing(scope)
    _check_periods(scope)
    if scope.query.form == "temporal join":
        return _temporal_join(scope, found, options)
    (stream,) = scope.streams.values()
    given = _given(scope, found) | {"time": stream.time, "lateness": stream.lateness} | _emit(scope, options) | options
    if any(_aggregate(node) is not None for node in scope.query.clauses.select.expressions):
        return _aggregated(scope, found, given)
    query = Coalesce(**{"valid_last": _names_last(scope.query.clauses, found), **given})
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
        columns=_columns(scope, names, first),
    )


def _emit(scope: Scope, options: dict[str, Any]) -> dict[str, str]:
    """`emit` as the text says it. Raises QueryError WA-2006 if it is an option, too."""
    asked = scope.query.clauses.emit
    if asked is None:
        return {}
    if options.get("emit") is not None:
        raise QueryError(Code.BAD_OPTION, f"emit is given, and the text has EMIT {asked.upper()}", "leave emit out")
    return {"emit": asked}


def _names_last(clauses: Any, found: _Coalescing) -> bool:
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
        valid_last=not aggregated and _names_last(clauses, _Coalescing(group_names, values, (), None)),
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


def _coalescing(scope: Scope) -> _Coalescing:
    clauses = scope.query.clauses
    group = clauses.select.args.get("group")
    scope = replace(scope, streams=dict(list(scope.streams.items())[:1]))  # a second one has the same columns
    groups = [_bare(scope, scope.expression(node), scope.place(node)) for node in (group.expressions if group else ())]
    values, derived = [], []
    condition: Expression | None = None
    for node in clauses.coalesce:
        name = _value_name(node)
        expression = scope.expression(node.this if type(node).__name__ == "Alias" else node)
        if expression.operation == "column":
            name = expression.value[1]
        else:
            derived.append((name, rewritten(expression, _plain)))
        if expression.operation in _CONDITIONS:
            if condition is not None:
                raise scope.place(node).wrong("a second condition", "one condition, joined by AND")
            condition = column(name)
        values.append(name)
    return _Coalescing(tuple(dict.fromkeys(groups)), tuple(values), tuple(derived), condition)


def _value_name(node: Any) -> str:
    """The name of a value: its alias, its column, or the text of its expression."""
    return str(node.alias or (node.name if type(node).__name__ == "Column" else node.sql()))


def _bare(scope: Scope, expression: Expression, place: Any) -> str:
    if expression.operation != "column":
        raise place.wrong(f"found {place.words!r}", "a plain column in GROUP BY", Code.UNSUPPORTED_TEXT)
    name: str = expression.value[1]
    return name


def _plain(node: Expression) -> Expression:
    """A column without its stream, since there is only one."""
    return replace(node, value=(None, node.value[1]))


def _given(scope: Scope, found: _Coalescing) -> dict[str, Any]:
    """The arguments of a `Coalesce` that the text determines."""
    within = scope.query.clauses.within
    given: dict[str, Any] = {"group": found.group, "values": found.values}
    given["equivalence"] = "equal" if within is None else f"absolute_tolerance:{within}"
    windows = [stream.source.window for stream in scope.streams.values()]
    window = windows[0]
    for other in windows[1:]:
        if (other and (other.range, other.rows, other.slide)) != (window and (window.range, window.rows, window.slide)):
            place = other.place if other else scope.query.clauses.place
            raise place.wrong("the two streams have different windows", "the same window for both")
    if window is None:
        return given
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


def _where(scope: Scope, found: _Coalescing, computed: Sequence[str] = ()) -> list[Expression]:
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


def _columns(scope: Scope, names: Sequence[str], first: Sequence[str]) -> Named | None:
    """The columns of SELECT, over the columns of coalesced tuples; None for ``*`` alone.

    ``first``: columns that come first, whether SELECT names them or not.
    """
    chosen = scope.query.clauses.select.expressions
    if len(chosen) == 1 and type(chosen[0]).__name__ == "Star":
        return None
    found: list[tuple[str, Expression]] = []
    for node in chosen:
        inner = node.this if type(node).__name__ == "Alias" else node
        words = inner.sql()
        if type(inner).__name__ == "Star":
            found += [(name, column(name)) for name in names]
        elif is_call(inner, "VALID") or is_call(inner, "INTERSECT"):
            found += [(name, column(name)) for name in (VALID_FROM, VALID_TO)]
        elif is_call(inner, "DURATION"):
            found.append((node.alias or "duration", _duration()))
        elif words in names:  # a computed value, as COALESCE ON has it
            found.append((node.alias or words, column(words)))
        else:
            expression = rewritten(from_sqlglot(inner, scope.query.text), lambda each: _of_result(each, names, scope))
            plain = expression.operation == "column"
            found.append((node.alias or (expression.value[1] if plain else words), expression))
    named = [name for name, _ in found]
    return (*((name, column(name)) for name in first if name not in named), *found)


def _duration() -> Expression:
    """How long a coalesced tuple is valid, in microseconds."""
    length = Expression("subtract", (column(VALID_TO), column(VALID_FROM)))
    return Expression("cast", (length,), pa.int64())


def _of_result(node: Expression, names: Sequence[str], scope: Scope) -> Expression:
    """A column of the result, by name, or as ``alias.name`` for one side of a join."""
    table, name = node.value
    suffixed = [] if table is None else [f"{name}_{alias}" for alias in scope.streams if alias.lower() == table.lower()]
    for known in (*suffixed, name):
        alike = [own for own in names if own == known] or [own for own in names if own.lower() == known.lower()]
        if alike and (table is None or suffixed):
            return replace(node, value=(None, alike[0]))
    raise no_column(node, name, names)


def _aggregate(node: Any) -> str | tuple[str, str] | None:
    """The aggregate of a SELECT item: ``MAX(DURATION(VALID(s)))``, ``COUNT(*)``, ``TIME_WEIGHTED(column)``."""
    inner = node.this if type(node).__name__ == "Alias" else node
    if is_call(inner, "TIME_WEIGHTED") and len(inner.expressions) == 1:
        return "time_weighted", inner.expressions[0].name
    return _AGGREGATES.get(type(inner).__name__)


def _aggregated(scope: Scope, found: _Coalescing, given: dict[str, Any]) -> SelectProject:
    aggregates: dict[str, str | tuple[str, str]] = {}
    columns: list[tuple[str, Expression]] = []
    for node in scope.query.clauses.select.expressions:
        asked, place = _aggregate(node), scope.place(node)
        inner = node.this if type(node).__name__ == "Alias" else node
        if asked is None:
            name = _bare(scope, scope.expression(inner), place) if type(inner).__name__ == "Column" else ""
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
            if weighed.value[1] not in found.values:
                raise no_column(weighed, weighed.value[1], found.values)
            usual = f"time_weighted_{asked[1]}"
        name = node.alias or usual
        aggregates[name] = asked
        columns.append((name, column(name)))
    conditions = [rewritten(each, _plain) for each in _where(scope, found)]
    conditions += [found.condition] if found.condition is not None else []
    where = joined("and", conditions, conditions[0].place) if conditions else None
    query = TemporalAggregate(**given, aggregates=aggregates, where=where)
    if query.extents.slides:
        columns.insert(0, (WINDOW_END, column(WINDOW_END)))
    return SelectProject(
        query=query, derived={query.inputs[0]: found.derived} if found.derived else (), columns=tuple(columns)
    )


def _check_argument(scope: Scope, node: Any, function: str) -> None:
    """Aggregates apply to DURATION(VALID(s)); COUNT(*) and COUNT(VALID(s)) count coalesced tuples."""
    counted = function == "count" and (type(node.this).__name__ == "Star" or is_call(node.this, "VALID"))
    if counted or is_call(node.this, "DURATION"):
        return
    stream = next(iter(scope.streams))
    wanted = "COUNT(*)" if function == "count" else f"{function.upper()}(DURATION(VALID({stream})))"
    raise scope.place(node).wrong(f"found {scope.place(node).words!r}", wanted)


def _check_periods(scope: Scope) -> None:
    """Check that ``VALID(s)`` names a stream of FROM, and ``DURATION`` has a ``VALID`` or an ``INTERSECT``."""
    known = {alias.lower() for alias in scope.streams}
    clauses = scope.query.clauses
    for node in (part for each in (*clauses.select.expressions, *conditions_of(clauses)) for part in each.walk()):
        given = node.expressions if is_call(node, "VALID") or is_call(node, "DURATION") else None
        if given is None:
            continue
        place = scope.place(node)
        if is_call(node, "DURATION"):
            if len(given) != 1 or not (is_call(given[0], "VALID") or is_call(given[0], "INTERSECT")):
                raise place.wrong(f"found {place.words!r}", "DURATION(VALID(stream))")
        elif len(given) != 1 or (getattr(given[0], "table", "") or given[0].name).lower() not in known:
            raise place.wrong(f"found {place.words!r}", f"VALID of one of the streams {', '.join(scope.streams)}")


def _temporal_join(scope: Scope, found: _Coalescing, options: dict[str, Any]) -> SelectProject:
    text, left = scope.query.text, next(iter(scope.streams))
    relation: str | None = None
    least: int | None = None
    on: list[str] = []
    matching: list[Expression] = []
    for node in conditions_of(scope.query.clauses):
        place = scope.place(node)
        if is_call(node, "RELATION"):
            if relation is not None:
                raise place.wrong("a second relation of periods", "one VALID(a) ... VALID(b)")
            relation = node.expressions[0].this
            if [scope.alias(each) for each in node.expressions[1:]] != list(scope.streams):
                raise place.wrong("the periods stand in another order than FROM", f"VALID({left}) first")
        elif any(is_call(part, "DURATION") for part in node.walk()):
            if type(node).__name__ != "GTE" or not is_call(node.this, "DURATION"):
                raise place.wrong(f"found {place.words!r}", "DURATION(INTERSECT(VALID(a), VALID(b))) >= a duration")
            least = duration_us(text, node.expression)
        else:
            condition = scope.expression(node)
            names = [each.value[1] for each in condition.columns()]
            unknown = [each for each in condition.columns() if each.value[1] not in (*found.group, *found.values)]
            if unknown:
                raise no_column(unknown[0], unknown[0].value[1], [*found.group, *found.values])
            equal = condition.operation == "eq" and len(names) == 2 and names[0] == names[1]
            if equal and all(each.operation == "column" for each in condition.operands):
                on.append(names[0])
            else:
                matching.append(condition)
    if relation is None:
        raise scope.query.clauses.place.wrong(
            "no relation of periods is asked for", "VALID(a) OVERLAPS VALID(b) in WHERE"
        )
    if found.condition is not None:
        holds = found.condition.value[1]
        matching += [replace(found.condition, value=(alias, holds)) for alias in scope.streams]
    first, second = scope.streams.values()
    said = [stream.lateness for stream in (first, second) if stream.lateness is not None]
    given = _given(scope, found) | {"time": first.time, "lateness": max(said, key=_us, default=None)}
    query = TemporalJoin(
        **(given | options),
        on=on,
        relation=relation,
        min_duration=least,
        matches=SqlPredicate((left, second.source.alias), text, joined("and", matching, matching[0].place))
        if matching
        else None,
        suffixes=(f"_{left}", f"_{second.source.alias}"),
    )
    if first.time != second.time:
        raise second.source.place.wrong("the streams' times are in different columns", "one time column for both")
    mine = (*found.group, *found.values)
    names = [WINDOW_END] if query.extents.slides else []
    names += [name if name in on else f"{name}_{left}" for name in mine]
    names += [f"{name}_{second.source.alias}" for name in mine if name not in on]
    return SelectProject(
        query=query,
        derived=dict.fromkeys(query.inputs, found.derived) if found.derived else (),
        columns=_columns(scope, [*names, VALID_FROM, VALID_TO], names[: int(query.extents.slides)]),
    )


def _us(duration: Any) -> int:
    from whenabouts.core.durations import parse_duration

    return parse_duration(duration)

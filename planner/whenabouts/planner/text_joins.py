"""Joins as text: windows and equal columns become a `TimingJoin` or `WindowJoin`, the rest conditions around it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from whenabouts.core.errors import Code, QueryError
from whenabouts.core.expressions.sql import from_sqlglot
from whenabouts.core.expressions.tree import Expression, joined, rewritten
from whenabouts.core.expressions.tree import column as output_column
from whenabouts.core.joins.pair_conditions import SqlPredicate
from whenabouts.core.times.conditions import POSSIBLE, Condition
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.timing_join.where import SIDES
from whenabouts.core.window_join.graph import Edge
from whenabouts.core.window_join.query import WindowJoin
from whenabouts.core.wrappers.select_project import Named, SelectProject
from whenabouts.planner.query_text import Place
from whenabouts.planner.streams import lateness_of_sides, lateness_of_streams
from whenabouts.planner.text_durations import duration_us, number_of
from whenabouts.planner.text_scope import Scope, conditions_of, is_call, is_window, no_column


@dataclass(slots=True)
class _Parts:
    """The conditions of a join by kind."""

    edges: list[Edge]
    equal: list[Expression]
    of_one: dict[str, list[Expression]]
    of_two: dict[tuple[str, str], list[Expression]]
    of_more: list[Expression]


def bind_join(scope: Scope, options: dict[str, Any]) -> SelectProject:
    """Two streams with one window and a THRESHOLD are a timing join, everything else is a window join."""
    parts = _parts(scope)
    aliases = tuple(scope.streams)
    on = _keys(parts, aliases)
    names = _output_names(scope, on)
    timing = len(aliases) == 2 and len(parts.edges) == 1 and parts.edges[0].confidence is not None
    afterwards = list(parts.of_more)
    if timing:
        query: Any = _timing_join(scope, parts, on, options)
    else:
        predicates = {
            pair: SqlPredicate(pair, scope.query.text, joined("and", found, found[0].place))
            for pair, found in parts.of_two.items()
        }
        query = _window_join(scope, parts.edges, on, predicates, options)
    inputs = dict(zip(aliases, query.inputs, strict=True))
    computed = ["probability"] if timing else ["t_first", "t_last", *_probabilities(parts.edges)]
    return SelectProject(
        query=query,
        where={inputs[alias]: _of_rows(found) for alias, found in parts.of_one.items()},
        having=_over_output(joined("and", afterwards, afterwards[0].place), names) if afterwards else None,
        columns=_columns(scope, names, computed),
    )


def _timing_join(scope: Scope, parts: _Parts, on: Sequence[str], options: dict[str, Any]) -> TimingJoin:
    left, right = scope.streams.values()
    (edge,) = parts.edges
    lo, hi = (edge.lo_us, edge.hi_us) if edge.first == left.source.alias else (-edge.hi_us, -edge.lo_us)
    assert edge.confidence is not None
    return TimingJoin(
        left_time=left.time,
        right_time=right.time,
        condition=Condition(lo, hi, edge.confidence),
        on=on,
        lateness=lateness_of_sides(left.lateness, right.lateness),
        suffixes=(f"_{left.source.alias}", f"_{right.source.alias}"),
        **options | _where(scope, [each for found in parts.of_two.values() for each in found], options),
    )


def _where(scope: Scope, conditions: Sequence[Expression], options: Mapping[str, Any]) -> dict[str, SqlPredicate]:
    """Conditions on both streams as the `where` of a timing join, in whose columns the streams are its sides."""
    if not conditions:
        return {}
    if options.get("where") is not None:
        raise QueryError(
            Code.BAD_OPTION, "where is given, and the text has conditions on both streams", "write all in the text"
        )
    sides = dict(zip(scope.streams, SIDES, strict=True))
    both = rewritten(
        joined("and", conditions, conditions[0].place),
        lambda each: replace(each, value=(sides[each.value[0]], each.value[1])),
    )
    return {"where": SqlPredicate(SIDES, scope.query.text, both)}


def _window_join(
    scope: Scope, edges: list[Edge], on: Sequence[str], predicates: dict[tuple[str, str], SqlPredicate], options: Any
) -> WindowJoin:
    return WindowJoin(
        times={alias: stream.time for alias, stream in scope.streams.items()},
        windows=tuple(edges),
        on=on,
        predicates=predicates,
        lateness=lateness_of_streams({alias: stream.lateness for alias, stream in scope.streams.items()}),
        **options,
    )


def _parts(scope: Scope) -> _Parts:
    parts = _Parts([], [], {}, {}, [])
    behind_window = False
    for node in conditions_of(scope.query.clauses):
        if is_call(node, "THRESHOLD"):
            if not behind_window:
                raise scope.place(node).wrong("THRESHOLD stands alone", "WITH THRESHOLD behind WINDOW(A, B) = ...")
            confidence = number_of(scope.query.text, node.expressions[0])
            edge = parts.edges[-1]
            try:
                parts.edges[-1] = replace(edge, confidence=Condition(edge.lo_us, edge.hi_us, confidence).confidence)
            except QueryError as error:
                raise scope.place(node).wrong(error.problem, error.hint, error.code) from None
        elif is_call(node, "OVERLAPS"):
            first, second = _two_streams(scope, node)
            parts.edges.append(Edge(first, second, 0, 0, POSSIBLE))
        elif is_call(node, "POSSIBLY"):
            if len(node.expressions) != 1:
                raise scope.place(node).wrong("POSSIBLY is of one window", "POSSIBLY(WINDOW(A, B) = ...)")
            parts.edges.append(replace(_edge(scope, node.expressions[0]), confidence=POSSIBLE))
        elif is_window(node):
            parts.edges.append(_edge(scope, node))
        else:
            _sort(parts, scope.expression(node), scope.place(node))
        behind_window = is_window(node) and not is_call(node, "POSSIBLY") and not is_call(node, "OVERLAPS")
    return parts


def _edge(scope: Scope, node: Any) -> Edge:
    """``WINDOW(A, B) = w`` (or ``<=``): at most w apart; ``BETWEEN lo AND hi`` bounds second - first."""
    text, kind = scope.query.text, type(node).__name__
    place = scope.place(node)
    if not is_call(node.this, "WINDOW") or kind not in ("EQ", "LTE", "Between"):
        raise place.wrong(
            f"found {place.words!r}", "WINDOW(A, B) = duration, or BETWEEN two durations, joined to the rest by AND"
        )
    first, second = _two_streams(scope, node.this)
    if kind == "Between":
        lo, hi = duration_us(text, node.args["low"]), duration_us(text, node.args["high"])
    else:
        hi = duration_us(text, node.expression)
        lo = -hi
    if lo > hi:
        raise place.wrong("no difference lies in this window", "a lower bound first, and durations of zero or more")
    return Edge(first, second, lo, hi)


def _two_streams(scope: Scope, call: Any) -> tuple[str, str]:
    """The streams of ``WINDOW(A, B)`` or ``OVERLAPS(A, B)``."""
    if len(call.expressions) != 2:
        name = str(call.this).upper()
        raise scope.place(call).wrong(f"{name} is of two streams", f"{name}(A, B)")
    first, second = (scope.alias(each) for each in call.expressions)
    return first, second


def _sort(parts: _Parts, condition: Expression, place: Place) -> None:
    """Sort a condition by the number of streams, so that it is tested as early as possible."""
    aliases = list(dict.fromkeys(node.value[0] for node in condition.columns()))
    match len(aliases):
        case 0:
            raise place.wrong("this is about no column", "a condition on columns of the streams")
        case 1:
            parts.of_one.setdefault(aliases[0], []).append(condition)
        case 2 if _is_equality(condition):
            parts.equal.append(condition)
        case 2:
            parts.of_two.setdefault((aliases[0], aliases[1]), []).append(condition)
        case _:
            parts.of_more.append(condition)


def _is_equality(condition: Expression) -> bool:
    """Whether a condition says that columns of the same name are equal in two streams."""
    operands = condition.operands
    named = condition.operation == "eq" and all(each.operation == "column" for each in operands)
    return named and operands[0].value[1] == operands[1].value[1]


def _keys(parts: _Parts, aliases: Sequence[str]) -> tuple[str, ...]:
    """The columns that are equal in all streams. Other equalities become conditions on pairs."""
    found = []
    by_name: dict[str, list[Expression]] = {}
    for each in parts.equal:
        by_name.setdefault(each.operands[0].value[1], []).append(each)
    for name, mine in by_name.items():
        if _connects(mine, aliases):
            found.append(name)
        else:
            for each in mine:
                pair = each.operands[0].value[0], each.operands[1].value[0]
                parts.of_two.setdefault(pair, []).append(each)
    return tuple(found)


def _connects(equalities: Sequence[Expression], aliases: Sequence[str]) -> bool:
    reached, before = {aliases[0]}, 0
    while len(reached) > before:
        before = len(reached)
        for each in equalities:
            pair = {operand.value[0] for operand in each.operands}
            reached |= pair if pair & reached else set()
    return len(reached) == len(aliases)


def _output_names(scope: Scope, on: Sequence[str]) -> dict[tuple[str, str], str]:
    """(alias, column) -> output name: keys appear once, names of several streams get the alias as a suffix."""
    owners = Counter(name for stream in scope.streams.values() for name in stream.schema.names if name not in on)
    return {
        (alias, name): f"{name}_{alias}" if owners[name] > 1 else name
        for alias, stream in scope.streams.items()
        for name in stream.schema.names
    }


def _of_rows(conditions: Sequence[Expression]) -> Expression:
    """Conditions on the rows of one stream, without aliases."""
    return rewritten(
        joined("and", conditions, conditions[0].place), lambda each: replace(each, value=(None, each.value[1]))
    )


def _over_output(condition: Expression, names: dict[tuple[str, str], str]) -> Expression:
    return rewritten(condition, lambda each: replace(each, value=(None, names[each.value])))


def _probabilities(edges: Sequence[Edge]) -> list[str]:
    return [f"probability_{edge.first}_{edge.second}" for edge in edges if edge.confidence is not None]


def _columns(scope: Scope, names: dict[tuple[str, str], str], computed: Sequence[str]) -> Named | None:
    """The columns of SELECT; None for ``*`` alone."""
    chosen = scope.query.clauses.select.expressions
    if len(chosen) == 1 and type(chosen[0]).__name__ == "Star":
        return None

    called: dict[str, set[str]] = {}
    for (_, own_name), output_name in names.items():
        called.setdefault(own_name, set()).add(output_name)

    def over_output(node: Expression) -> Expression:
        table, name = node.value
        if table is None and name in computed:
            return replace(node, value=(None, name))
        try:
            of_all = called.get(name, set())
            if table is None and len(of_all) == 1 and name in of_all:  # a key, or a column of one stream
                return replace(node, value=(None, name))
            return replace(node, value=(None, names[scope.resolved(node).value]))
        except QueryError as error:
            known = [*(own for _, own in names), *computed]
            raise no_column(node, name, known) if error.problem.endswith(f"{name!r}") else error from None

    found: list[tuple[str, Expression]] = []
    taken_names: set[str] = set()
    done = 0
    for node in chosen:
        inner = node.this if type(node).__name__ == "Alias" else node
        if type(inner).__name__ == "Star":
            found += [(name, output_column(name)) for name in [*dict.fromkeys(names.values()), *computed]]
        elif type(inner).__name__ == "Column" and type(inner.this).__name__ == "Star":
            alias = scope.alias(_as_column(inner))
            mine = [name for (of, _), name in names.items() if of == alias]
            found += [(name, output_column(name)) for name in mine]
        else:
            expression = rewritten(from_sqlglot(inner, scope.query.text), over_output)
            plain = expression.operation == "column"
            name = node.alias or (inner.name if plain else inner.sql())
            taken = name in taken_names
            found.append((expression.value[1] if plain and taken and not node.alias else name, expression))
        taken_names.update(name for name, _ in found[done:])
        done = len(found)
    return tuple(_distinct(scope, found))


def _as_column(node: Any) -> Any:
    """``A`` of ``A.*``."""
    from sqlglot import exp

    named = exp.column(node.table)
    named.this.meta.update(node.args["table"].meta)
    return named


def _distinct(scope: Scope, columns: list[tuple[str, Expression]]) -> list[tuple[str, Expression]]:
    twice = [name for name, n in Counter(name for name, _ in columns).items() if n > 1]
    if twice:
        raise scope.query.clauses.place.wrong(
            f"two columns of the result are called {twice[0]!r}",
            f"another name: ... AS {twice[0]}_2",
            Code.COLUMN_CLASH,
        )
    return columns

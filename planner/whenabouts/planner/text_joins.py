"""Joins as text: windows and equal columns become a `TimingJoin` or `WindowJoin`, the rest conditions around it.

After ``LEFT JOIN`` and the like, ON says what a pair is and WHERE filters the result, as in SQL. A condition
of WHERE is tested on the rows of a stream before the join where that gives the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from whenabouts.core.errors import Code
from whenabouts.core.expressions.tree import Expression, joined, rewritten
from whenabouts.core.joins.pair_conditions import SqlPredicate
from whenabouts.core.joins.sides import LEFT, SIDES
from whenabouts.core.runtime.key_names import Key, shared
from whenabouts.core.times.conditions import Condition
from whenabouts.core.timing_join.modes import Mode
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.window_join.graph import Edge
from whenabouts.core.window_join.query import WindowJoin
from whenabouts.core.wrappers.select_project import SelectProject
from whenabouts.planner.streams import lateness_of_sides, lateness_of_streams
from whenabouts.planner.text_join_columns import join_columns, selected
from whenabouts.planner.text_join_parts import Parts, bounds_of, keys_of, parts_of
from whenabouts.planner.text_scope import Scope, conditions_of, is_window, of_on, of_where, query_of, with_options


def bind_join(scope: Scope, options: dict[str, Any]) -> SelectProject:
    """Two streams with one window and a THRESHOLD or a mode are a timing join, everything else is a window join."""
    outer, clauses = scope.query.mode, scope.query.clauses
    if outer is not None:
        options = with_options({"how": outer}, options)
    parts = parts_of(scope, conditions_of(clauses) if outer is None else of_on(clauses))
    aliases = tuple(scope.streams)
    pair = len(aliases) == 2 and len(parts.edges) == 1
    if outer is not None and not pair:
        raise clauses.place.wrong(
            f"{len(parts.edges)} windows in ON", "one WINDOW(A, B) = ... in ON: WHERE filters the result",
            Code.UNSUPPORTED_TEXT,
        )  # fmt: skip
    asks_for_mode = options.get("how") is not None or options.get("best") is not None
    timing = pair and (parts.edges[0].confidence is not None or asks_for_mode)
    mode = Mode(options.get("how") or "inner", options.get("best")) if timing else None
    times = {name for stream in scope.streams.values() for name in stream.time.columns}
    on = keys_of(parts, aliases, without=times if mode is not None and mode.preserved else ())
    after: list[Expression] = []
    if mode is not None and outer is not None:
        _one_stream_of_on(parts, aliases, mode)
        after = _of_where(scope, parts, aliases, mode)
    if mode is not None:
        query: Any = _timing_join(scope, parts, on, options)
        computed = ["probability"] if options.get("probability", True) else []
    else:
        predicates = {
            pair: SqlPredicate(pair, scope.query.text, joined("and", found, found[0].place))
            for pair, found in parts.of_two.items()
        }
        query = _window_join(scope, parts.edges, on, predicates, options)
        computed = ["t_first", "t_last", *_probabilities(parts.edges)]
        computed += ["probability"] if options.get("joint") else []
    result = join_columns(scope, shared(on), computed, mode)
    after += parts.of_more
    inputs = dict(zip(aliases, query.inputs, strict=True))
    return SelectProject(
        query=query,
        where={inputs[alias]: of_rows(found) for alias, found in parts.of_one.items()},
        having=result.over_result(joined("and", after, after[0].place)) if after else None,
        columns=selected(scope, result),
    )


def _one_stream_of_on(parts: Parts, aliases: Sequence[str], mode: Mode) -> None:
    """In ON, a condition on one stream filters its rows, but a preserved row that does not meet it has no partner."""
    for input, alias in enumerate(aliases):
        if input in mode.preserved and alias in parts.of_one:
            pair = aliases[0], aliases[1]
            parts.of_two.setdefault(pair, []).extend(parts.of_one.pop(alias))


def _of_where(scope: Scope, parts: Parts, aliases: Sequence[str], mode: Mode) -> list[Expression]:
    """The conditions of WHERE that are tested on the result; others filter the rows of a stream before the join.

    That gives the same rows for a stream that every row of the result has one of, unless it changes what others choose.
    """
    after = []
    for node in of_where(scope.query.clauses):
        place = scope.place(node)
        if is_window(node):
            raise place.wrong(f"found {place.words!r}", "windows in ON: WHERE filters the result of an outer join")
        condition = scope.expression(node)
        found = {aliases.index(each.value[0]) for each in condition.columns()}
        if not found:
            raise place.wrong("this is about no column", "a condition on columns of the streams")
        (input, *others) = found
        has_all = 1 - input not in mode.preserved and not (mode.one_sided and input != LEFT)
        if not others and has_all and mode.best in (None, SIDES[input]):
            parts.of_one.setdefault(aliases[input], []).append(condition)
        else:
            after.append(condition)
    return after


def _timing_join(scope: Scope, parts: Parts, on: Sequence[Key], options: dict[str, Any]) -> TimingJoin:
    left, right = scope.streams.values()
    (edge,) = parts.edges
    confidence = edge.confidence
    if confidence is None:
        if any(stream.time.max_uncertainty_us != 0 for stream in (left, right)):
            raise scope.query.clauses.place.wrong(
                "a window of uncertain times", "WITH THRESHOLD p after it, or POSSIBLY(WINDOW(A, B) = ...)",
                Code.BAD_CONFIDENCE,
            )  # fmt: skip
        confidence = 1.0
    said = {
        "left_time": left.time,
        "right_time": right.time,
        "condition": Condition(*bounds_of(edge, left.source.alias), confidence),
        "on": on,
        "lateness": lateness_of_sides(left.lateness, right.lateness),
        "suffixes": (f"_{left.source.alias}", f"_{right.source.alias}"),
        **_where(scope, [each for found in parts.of_two.values() for each in found]),
    }
    return query_of(TimingJoin, said, options)


def _where(scope: Scope, conditions: Sequence[Expression]) -> dict[str, SqlPredicate]:
    """Conditions on both streams as the `where` of a timing join, in whose columns the streams are its sides."""
    if not conditions:
        return {}
    sides = dict(zip(scope.streams, SIDES, strict=True))
    both = rewritten(
        joined("and", conditions, conditions[0].place),
        lambda each: replace(each, value=(sides[each.value[0]], each.value[1])),
    )
    return {"where": SqlPredicate(SIDES, scope.query.text, both)}


def _window_join(
    scope: Scope, edges: list[Edge], on: Sequence[Key], predicates: dict[tuple[str, str], SqlPredicate], options: Any
) -> WindowJoin:
    said = {
        "times": {alias: stream.time for alias, stream in scope.streams.items()},
        "windows": tuple(edges),
        "on": on,
        "lateness": lateness_of_streams({alias: stream.lateness for alias, stream in scope.streams.items()}),
        **({"predicates": predicates} if predicates else {}),
    }
    return query_of(WindowJoin, said, options)


def of_rows(conditions: Sequence[Expression]) -> Expression:
    """Conditions on the rows of one stream, without aliases."""
    return rewritten(
        joined("and", conditions, conditions[0].place), lambda each: replace(each, value=(None, each.value[1]))
    )


def _probabilities(edges: Sequence[Edge]) -> list[str]:
    return [f"probability_{edge.first}_{edge.second}" for edge in edges if edge.confidence is not None]

"""The conditions of a join as text, by kind: windows, equal columns, and conditions on one stream or several."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from whenabouts.core.errors import QueryError
from whenabouts.core.expressions.tree import Expression
from whenabouts.core.runtime.key_names import Key
from whenabouts.core.times.conditions import POSSIBLE, Condition
from whenabouts.core.window_join.graph import Edge
from whenabouts.planner.text_clauses import Place
from whenabouts.planner.text_durations import duration_us, number_of
from whenabouts.planner.text_scope import Scope, is_call, is_window

_Column: TypeAlias = tuple[str, str]
"""Alias and name."""


@dataclass(slots=True)
class Parts:
    """The conditions of a join by kind."""

    edges: list[Edge]
    equal: list[Expression]
    of_one: dict[str, list[Expression]]
    of_two: dict[tuple[str, str], list[Expression]]
    of_more: list[Expression]


def parts_of(scope: Scope, conditions: Sequence[Any]) -> Parts:
    """Conditions of WHERE and ON by kind. Raises: QueryError WA-2111, WA-2001, and what a condition raises."""
    parts = Parts([], [], {}, {}, [])
    behind_window = False
    for node in conditions:
        if is_call(node, "THRESHOLD"):
            if not behind_window:
                raise scope.place(node).wrong("THRESHOLD stands alone", "WITH THRESHOLD behind WINDOW(A, B) = ...")
            confidence = number_of(scope.query.text, node.expressions[0])
            edge = parts.edges[-1]
            try:
                parts.edges[-1] = replace(edge, confidence=Condition(edge.lo_us, edge.hi_us, confidence).confidence)
            except QueryError as error:
                raise scope.place(node).placed(error) from None
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


def bounds_of(edge: Edge, left: str) -> tuple[int, int]:
    """The bounds on the time of the other stream minus that of `left`, in microseconds."""
    return (edge.lo_us, edge.hi_us) if edge.first == left else (-edge.hi_us, -edge.lo_us)


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


def _sort(parts: Parts, condition: Expression, place: Place) -> None:
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
    """Whether a condition says that two columns are equal."""
    return condition.operation == "eq" and all(each.operation == "column" for each in condition.operands)


def keys_of(parts: Parts, aliases: Sequence[str], without: Collection[str] = ()) -> tuple[Key, ...]:
    """The keys: columns that are equal in all streams, whatever their names, and not in `without`.

    Equalities that make no key become conditions on pairs. One that follows from a key, as A.k = C.k from A.k = B.k and
    B.k = C.k, says nothing more.
    """
    equalities = {(each.operands[0].value, each.operands[1].value): each for each in parts.equal}
    equal_to: dict[_Column, list[_Column]] = {}
    for one, other in equalities:
        equal_to.setdefault(one, []).append(other)
        equal_to.setdefault(other, []).append(one)
    for column, others in equal_to.items():
        equal_to[column] = sorted(others, key=lambda each: each[1] != column[1])  # those of the same name first
    keys: list[Key] = []
    numbers: dict[_Column, set[int]] = {}
    for (one, other), condition in equalities.items():
        if numbers.get(one, set()) & numbers.get(other, set()):
            continue
        chosen = _of_each_stream(one, other, equal_to)
        if len(chosen) < len(aliases) or set(chosen.values()) & set(without):
            parts.of_two.setdefault((one[0], other[0]), []).append(condition)
            continue
        for each in chosen.items():
            numbers.setdefault(each, set()).add(len(keys))
        names = tuple(chosen[alias] for alias in aliases)
        keys.append(names if len(set(names)) > 1 else names[0])
    return tuple(keys)


def _of_each_stream(one: _Column, other: _Column, equal_to: Mapping[_Column, Sequence[_Column]]) -> dict[str, str]:
    """A column of each stream that equals these two, by alias: the first one that `equal_to` has."""
    chosen = dict((one, other))
    waiting = [one, other]
    for column in waiting:
        for alias, name in equal_to[column]:
            if alias not in chosen:
                chosen[alias] = name
                waiting.append((alias, name))
    return chosen

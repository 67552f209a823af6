"""Window joins, recomputed from scratch: plain loops over rows, exact rationals for uncertain times, no window graph.

Operations are counted from what the paper says (Hammad et al., SSDBM 2003), one row and one partial combination at a
time. Implied windows are found by walking all simple paths of the graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import permutations, product
from math import prod
from typing import NamedTuple

import pyarrow as pa

from whenabouts.conformance import oracle
from whenabouts.conformance.multiset import Row
from whenabouts.conformance.oracle import Event
from whenabouts.core.runtime.key_names import shared
from whenabouts.core.window_join.graph import Edge
from whenabouts.core.window_join.query import WindowJoin

Events = Mapping[str, Sequence[Event]]
Combination = tuple[Event, ...]
OPEN = 10**18


def probability(edge: Edge, first: Event, second: Event) -> oracle.Ratio:
    """P(lo <= X_second - X_first <= hi)."""
    return oracle.probability(first.time, second.time, edge.lo_us, edge.hi_us)


def holds(edge: Edge, first: Event, second: Event) -> bool:
    """Whether two events meet an edge: exactly where it has no confidence, else with at least that probability."""
    if edge.confidence is None:
        return edge.lo_us <= second.t_max - first.t_max <= edge.hi_us
    return oracle.is_match(probability(edge, first, second), edge.confidence)


def combinations(query: WindowJoin, events: Events) -> list[Combination]:
    """Every combination: the product of the streams' rows of one key, less those in which an edge fails."""
    groups = [oracle.by_key(events[name]) for name in query.inputs]
    found: list[Combination] = []
    for key in set.intersection(*(set(group) for group in groups)):
        found += _extended(query, [group[key] for group in groups], ())
    return found


def _extended(query: WindowJoin, rows: Sequence[Sequence[Event]], chosen: Combination) -> Iterator[Combination]:
    if len(chosen) == len(rows):
        yield chosen
        return
    names = query.inputs[: len(chosen) + 1]
    edges = [e for e in query.edges if {e.first, e.second} <= set(names) and names[-1] in (e.first, e.second)]
    for event in rows[len(chosen)]:
        placed = dict(zip(names, (*chosen, event), strict=True))
        if all(holds(edge, placed[edge.first], placed[edge.second]) for edge in edges):
            yield from _extended(query, rows, (*chosen, event))


class WindowJoinAnswer(NamedTuple):
    """The rows of a window join without computed columns, and for each the exact values of these."""

    rows: Counter[Row]
    first_us: dict[Row, int]
    last_us: dict[Row, int]
    probabilities: dict[Row, tuple[oracle.Ratio, ...]]


def answer(query: WindowJoin, tables: Mapping[str, pa.Table], events: Events) -> WindowJoinAnswer:
    """The rows of the join of `events`, the key columns standing once."""
    kept = [
        [place for place, name in enumerate(tables[s].column_names) if at == 0 or name not in shared(query.key_columns)]
        for at, s in enumerate(query.inputs)
    ]
    found = WindowJoinAnswer(Counter(), {}, {}, {})
    for combination in combinations(query, events):
        row = tuple(event.values[place] for event, places in zip(combination, kept, strict=True) for place in places)
        placed = dict(zip(query.inputs, combination, strict=True))
        found.rows[row] += 1
        found.first_us[row] = min(event.t_min for event in combination)
        found.last_us[row] = max(event.t_max for event in combination)
        found.probabilities[row] = tuple(
            probability(e, placed[e.first], placed[e.second]) for e in query.edges if e.confidence is not None
        )
    return found


@dataclass(frozen=True)
class Windows:
    """What the edges of a query on exact times allow between any two streams, by looking at every simple path."""

    query: WindowJoin

    @cached_property
    def most(self) -> dict[tuple[str, str], int]:
        """The most by which a row of the second stream can come after one of the first."""
        step: dict[tuple[str, str], int] = {}
        for e in self.query.edges:
            step[e.first, e.second] = min(step.get((e.first, e.second), OPEN), e.hi_us)
            step[e.second, e.first] = min(step.get((e.second, e.first), OPEN), -e.lo_us)
        names = self.query.inputs

        def least(path: tuple[str, ...], end: str) -> int:
            if path[-1] == end:
                return 0
            ways = [
                step[path[-1], name] + least((*path, name), end)
                for name in names
                if name not in path and (path[-1], name) in step
            ]
            return min(ways, default=OPEN)

        return {(a, b): least((a,), b) for a in names for b in names if a != b}

    def bound(self, conservative: str, first: str, second: str) -> tuple[int, int]:
        """The range of t_second - t_first that a conservative approach looks at."""
        widest = {name: max(abs(us) for pair, us in self.most.items() if name in pair) for name in self.query.inputs}
        if conservative == "none":
            return -self.most[second, first], self.most[first, second]
        width = max(widest.values()) if conservative == "gca" else min(widest[first], widest[second])
        return -width, width

    def order(self, conservative: str, base: str) -> list[str]:
        """The streams, each next one being that with the narrowest bound to one before it."""
        order = [base]
        while len(order) < len(self.query.inputs):
            width = {
                name: min(hi - lo for lo, hi in (self.bound(conservative, other, name) for other in order))
                for name in self.query.inputs
                if name not in order
            }
            order.append(min(width, key=lambda name: (width[name], self.query.inputs.index(name))))
        return order


@dataclass(slots=True)
class WindowJoinCounts:
    """Operations under the names of `whenabouts.core.metrics`."""

    matched: int = 0
    periods: int = 0
    tuple_tests: int = 0
    window_tests: int = 0


@dataclass(frozen=True)
class Counting:
    """One algorithm at work on exact times, row by row."""

    query: WindowJoin
    strategy: str
    conservative: str

    @cached_property
    def windows(self) -> Windows:
        """The graph."""
        return Windows(self.query)

    def block(self, events: Events, counts: WindowJoinCounts) -> None:
        """Finite input. `backward`: the streams arrive in turn, so that only rows of the last one find all others."""
        for base in self.query.inputs if self.strategy == "forward" else self.query.inputs[-1:]:
            for event in events[base]:
                self.row(base, event, events, counts)

    def row(self, base: str, event: Event, buffers: Events, counts: WindowJoinCounts) -> None:
        """A new row (BEW) or the newest one (FEW) against what the buffers of the other streams hold."""
        if event.key is None or not all(buffers[name] for name in self.query.inputs if name != base):
            return
        order = self.windows.order(self.conservative, base)
        periods = {name: self._before(base, event, name) for name in order[1:]} if self.strategy == "forward" else {}
        one_period = self.strategy == "forward" and (self.conservative != "none" or self._implied(order))
        if one_period:
            for name in order[1:]:  # mode 1: check one stream after another for any row
                counts.periods += 1
                if not self._inside(buffers[name], event, [periods[name]]):
                    return
        self._extend(order, {base: event}, buffers, periods, one_period, counts)

    def _extend(
        self,
        order: list[str],
        placed: dict[str, Event],
        buffers: Events,
        periods: dict[str, tuple[int, int]],
        one_period: bool,
        counts: WindowJoinCounts,
    ) -> None:
        if len(placed) == len(order):
            counts.matched += 1
            return
        name, base = order[len(placed)], placed[order[0]]
        limits = [periods[name]] if periods else []
        if not one_period:
            counts.periods += 1
            for other, event in placed.items():
                lo, hi = self.windows.bound(self.conservative, other, name)
                limits.append((event.t_max + lo, event.t_max + hi))
        for event in self._inside(buffers[name], base, limits):
            counts.tuple_tests += 1
            if event.key != base.key:
                continue
            longer = {**placed, name: event}
            if self._refined(longer, order, one_period, counts):
                self._extend(order, longer, buffers, periods, one_period, counts)

    def _inside(self, rows: Sequence[Event], base: Event, limits: Sequence[tuple[int, int]]) -> list[Event]:
        """Rows inside all limits; a hash table shows those of the base row's key only."""
        return [
            row
            for row in rows
            if row.key is not None
            and (self.query.method == "nested" or row.key == base.key)
            and all(lo <= row.t_max <= hi for lo, hi in limits)
        ]

    def _before(self, base: str, event: Event, name: str) -> tuple[int, int]:
        """The period of `forward`: nothing in it is newer than the row; at equal times the later stream's row is."""
        lo, hi = self.windows.bound(self.conservative, base, name)
        inputs = self.query.inputs
        last = 0 if inputs.index(name) < inputs.index(base) else -1
        return event.t_max + lo, event.t_max + min(hi, last)

    def _implied(self, order: list[str]) -> bool:
        """Whether lying in the base row's period is all that the windows of the others ask."""
        probe = Event(0, 0, (), ())
        periods = {name: self._before(order[0], probe, name) for name in order[1:]}
        periods = {name: span for name, span in periods.items() if span[0] <= span[1]}
        return all(
            self._within(
                (periods[b][0] - periods[a][1], periods[b][1] - periods[a][0]), self.windows.bound("none", a, b)
            )
            for a in periods
            for b in periods
            if a != b
        )

    @staticmethod
    def _within(inner: tuple[int, int], outer: tuple[int, int]) -> bool:
        return outer[0] <= inner[0] and inner[1] <= outer[1]

    def _refined(self, placed: dict[str, Event], order: list[str], one_period: bool, counts: WindowJoinCounts) -> bool:
        """The refinement of a whole combination: the windows that what was walked does not settle."""
        if self.conservative == "none" or len(placed) < len(order):
            return True
        for edge in self.query.edges:
            first, second = placed[edge.first], placed[edge.second]
            if self._settled(edge, order, one_period):
                continue
            counts.window_tests += 1
            if not holds(edge, first, second):
                return False
        return True

    def _settled(self, edge: Edge, order: list[str], one_period: bool) -> bool:
        """Whether the bounds that were walked are no wider than the window."""
        if one_period:
            probe = Event(0, 0, (), ())
            spans = {order[0]: (0, 0)} | {name: self._before(order[0], probe, name) for name in order[1:]}
            one, other = spans[edge.first], spans[edge.second]
            bound = other[0] - one[1], other[1] - one[0]
        else:
            bound = self.windows.bound(self.conservative, edge.first, edge.second)
        return self._within(bound, (edge.lo_us, edge.hi_us))


def joint_probability(edges: Sequence[Edge], placed: Mapping[str, Event], unit: int) -> Fraction:
    """P that all edges hold together, exactly, where all times and windows are whole multiples of `unit`.

    Cut into unit cells, each variable is uniform in its cell, and all orders of the fractional parts are equally
    likely. Given one, a difference lies strictly between two neighbouring integers, so that a window holds or does not.
    A point has no fractional part and comes before all others.

    >>> a, b = (Event(0, 2, (), ()), Event(0, 2, (), ()))
    >>> joint_probability([Edge("a", "b", 0, 1, 0.1)], {"a": a, "b": b}, 1)
    Fraction(3, 8)
    """
    cells = {name: _cells(event, unit) for name, event in placed.items()}
    spread = [name for name, event in placed.items() if event.t_min < event.t_max]
    orders = list(permutations(spread))
    windows = [(e.first, e.second, e.lo_us // unit, e.hi_us // unit) for e in edges if e.confidence is not None]
    total = Fraction(0)
    for chosen in product(*cells.values()):
        whole = {name: cell for name, (cell, _) in zip(cells, chosen, strict=True)}
        mass = prod((p for _, p in chosen), start=Fraction(1))
        held = sum(_all_hold(windows, whole, {name: at for at, name in enumerate(order)}) for order in orders)
        total += mass * Fraction(held, len(orders))
    return total


def _cells(event: Event, unit: int) -> list[tuple[int, Fraction]]:
    """The unit cells of a time and their probabilities."""
    if event.t_min == event.t_max:
        return [(event.t_max // unit, Fraction(1))]
    found = []
    for start, end, p in event.time.buckets:
        cells = range((event.t_max + start) // unit, (event.t_max + end) // unit)
        found += [(cell, p / len(cells)) for cell in cells]
    return found


def _all_hold(windows: Sequence[tuple[str, str, int, int]], whole: Mapping[str, int], rank: Mapping[str, int]) -> bool:
    for first, second, lo, hi in windows:
        apart, one, other = whole[second] - whole[first], rank.get(first, -1), rank.get(second, -1)
        below, above = (apart, apart) if one == other else (apart, apart + 1) if other > one else (apart - 1, apart)
        if below < lo or above > hi:
            return False
    return True

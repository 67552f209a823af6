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
from whenabouts.conformance.forward_evaluation_oracle import ForwardEvaluation, WindowJoinCounts
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
    if edge.possible:
        return oracle.can_meet(first.time, second.time, edge.lo_us, edge.hi_us)
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
        [index for index, name in enumerate(tables[s].column_names) if at == 0 or name not in shared(query.key_columns)]
        for at, s in enumerate(query.inputs)
    ]
    found = WindowJoinAnswer(Counter(), {}, {}, {})
    for combination in combinations(query, events):
        row = tuple(event.values[index] for event, indices in zip(combination, kept, strict=True) for index in indices)
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
        if conservative == "none":
            return -self.most[second, first], self.most[first, second]
        widest = self.of_streams(conservative)
        width = min(widest[first], widest[second])
        return -width, width

    def of_streams(self, conservative: str) -> dict[str, int]:
        """The widest window of each stream, or with GCA the widest of all."""
        widest = {name: max(abs(us) for pair, us in self.most.items() if name in pair) for name in self.query.inputs}
        return widest if conservative == "lca" else dict.fromkeys(widest, max(widest.values()))

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
        """All rows. `backward`: the streams arrive in turn, so that only rows of the last one find all others."""
        if self.strategy == "forward":
            self._forward(events, counts)
            return
        for event in events[self.query.inputs[-1]]:
            self.row(self.query.inputs[-1], event, events, counts)

    def _forward(self, events: Events, counts: WindowJoinCounts) -> None:
        windows = self.windows.of_streams(self.conservative)
        if not all(events[name] for name in windows):
            return  # nothing is joined

        def found(placed: dict[str, Event]) -> None:
            base, *partners = placed
            spans = {base: (0, 0)} | {name: self._buffered(base, name, windows) for name in partners}
            bounds = {
                (a, b): (spans[b][0] - spans[a][1], spans[b][1] - spans[a][0]) for a in placed for b in placed if a != b
            }
            counts.matched += self._refined(placed, bounds, counts)

        ForwardEvaluation(
            windows,
            {name: sorted((s for s in windows if s != name), key=lambda s: windows[s]) for name in windows},
            together=lambda one, other: self.query.method == "nested" or one.key == other.key,
            equal=lambda one, other: one.key == other.key,
            found=found,
            counts=counts,
        ).run({name: [event for event in events[name] if event.key is not None] for name in windows})

    def _buffered(self, base: str, name: str, windows: Mapping[str, int]) -> tuple[int, int]:
        """How far from an admitted tuple the tuples of another stream's buffer are; at equal times the later stream's
        is admitted later."""
        inputs = self.query.inputs
        return -windows[name], 0 if inputs.index(name) < inputs.index(base) else -1

    def row(self, base: str, event: Event, buffers: Events, counts: WindowJoinCounts) -> None:
        """Backward evaluation of a new row against what the buffers of the other streams hold."""
        if event.key is None or not all(buffers[name] for name in self.query.inputs if name != base):
            return
        self._extend(self.windows.order(self.conservative, base), {base: event}, buffers, counts)

    def _extend(self, order: list[str], placed: dict[str, Event], buffers: Events, counts: WindowJoinCounts) -> None:
        if len(placed) == len(order):
            counts.matched += 1
            return
        name, base = order[len(placed)], placed[order[0]]
        counts.periods += 1
        limits = []
        for other, event in placed.items():
            lo, hi = self.windows.bound(self.conservative, other, name)
            limits.append((event.t_max + lo, event.t_max + hi))
        for event in self._inside(buffers[name], base, limits):
            counts.tuple_tests += 1
            if event.key != base.key:
                continue
            longer = {**placed, name: event}
            whole = len(longer) == len(order) and self.conservative != "none"
            if not whole or self._refined(longer, self._bounds, counts):
                self._extend(order, longer, buffers, counts)

    @cached_property
    def _bounds(self) -> dict[tuple[str, str], tuple[int, int]]:
        return {
            (a, b): self.windows.bound(self.conservative, a, b)
            for a in self.query.inputs
            for b in self.query.inputs
            if a != b
        }

    def _inside(self, rows: Sequence[Event], base: Event, limits: Sequence[tuple[int, int]]) -> list[Event]:
        """Rows inside all limits; a hash table shows those of the base row's key only."""
        return [
            row
            for row in rows
            if row.key is not None
            and (self.query.method == "nested" or row.key == base.key)
            and all(lo <= row.t_max <= hi for lo, hi in limits)
        ]

    def _refined(
        self, placed: dict[str, Event], bounds: Mapping[tuple[str, str], tuple[int, int]], counts: WindowJoinCounts
    ) -> bool:
        """The refinement of a whole combination: the windows that are narrower than the bounds so far."""
        for edge in self.query.edges:
            lo, hi = bounds[edge.first, edge.second]
            if edge.lo_us <= lo and hi <= edge.hi_us:
                continue
            counts.window_tests += 1
            if not holds(edge, placed[edge.first], placed[edge.second]):
                return False
        return True


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

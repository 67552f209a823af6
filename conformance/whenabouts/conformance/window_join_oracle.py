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
from whenabouts.core.durations import parse_duration
from whenabouts.core.runtime.key_names import shared
from whenabouts.core.times.clock_errors import Clock
from whenabouts.core.window_join.graph import Edge
from whenabouts.core.window_join.query import WindowJoin

Events = Mapping[str, Sequence[Event]]
Combination = tuple[Event, ...]
OPEN = 10**18


def probability(edge: Edge, first: Event, second: Event) -> oracle.Ratio:
    """P(lo <= X_second - X_first <= hi)."""
    return oracle.probability(first.time, second.time, edge.lo_us, edge.hi_us)


def seen_by(query: WindowJoin, edge: Edge, placed: Mapping[str, Event]) -> tuple[Event, Event]:
    """The events of an edge, with their own errors alone if one clock stamped both."""
    specs, events = [query.spec(n) for n in (edge.first, edge.second)], (placed[edge.first], placed[edge.second])
    domains = [spec.domain if isinstance(spec, Clock) else None for spec in specs]
    if domains[0] is None or domains[0] != domains[1]:
        return events
    return by_its_clock(query, edge.first, events[0]), by_its_clock(query, edge.second, events[1])


def by_its_clock(query: WindowJoin, stream: str, event: Event) -> Event:
    """A reading with its own error alone."""
    spec = query.spec(stream)
    if not isinstance(spec, Clock):
        return event
    reading = (event.t_min + event.t_max) // 2
    return event._replace(t_min=reading - spec.own_us, t_max=reading + spec.own_us, shape=())


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
        if all(holds(edge, *seen_by(query, edge, placed)) for edge in edges):
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
            probability(e, *seen_by(query, e, placed)) for e in query.edges if e.confidence is not None
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
            if not holds(edge, *seen_by(self.query, edge, placed)):
                return False
        return True


def probability_of_all(query: WindowJoin, placed: Mapping[str, Event], unit: int) -> Fraction:
    """P that all windows of a combination hold together, exactly (see `joint_probability`)."""
    clocks = {name: spec for name in query.inputs if isinstance(spec := query.spec(name), Clock)}
    own = {name: by_its_clock(query, name, event) for name, event in placed.items()}
    domains = {name: str(clock.domain) for name, clock in clocks.items()}
    offsets = {str(clock.domain): parse_duration(clock.offset or 0) for clock in clocks.values()}
    return joint_probability(query.edges, own, unit, domains, offsets)


def joint_probability(
    edges: Sequence[Edge],
    placed: Mapping[str, Event],
    unit: int,
    domains: Mapping[str, str] | None = None,
    offsets: Mapping[str, int] | None = None,
) -> Fraction:
    """P that all edges hold together, exactly, where all times and windows are whole multiples of `unit`.

    Cut into unit cells, each variable is uniform in its cell, and all orders of the fractional parts are equally
    likely. Given one, a difference lies strictly between two neighbouring integers, so that a window holds or does not.
    A point has no fractional part and comes before all others.

    `domains`: the clock of each stream that has one, its time being that by the clock, without its offset. The clock's
    correction, uniform in `[-offset, offset]`, is one more variable. A time is it plus an own error, which is a window
    between the two, so the same cells serve.

    >>> a, b = (Event(0, 2, (), ()), Event(0, 2, (), ()))
    >>> joint_probability([Edge("a", "b", 0, 1, 0.1)], {"a": a, "b": b}, 1)
    Fraction(3, 8)
    >>> a = b = c = Event(0, 0, (), ())
    >>> both = [Edge("c", "a", 0, 2, 0.1), Edge("c", "b", 0, 2, 0.1)]  # with two clocks it would be a quarter
    >>> joint_probability(both, {"a": a, "b": b, "c": c}, 1, {"a": "clock", "b": "clock"}, {"clock": 1})
    Fraction(1, 2)
    """
    domains, clocks = domains or {}, {f"clock {d}": us // unit for d, us in (offsets or {}).items()}
    spread = [*clocks, *(name for name, event in placed.items() if event.t_min < event.t_max)]
    # A reading without an own error is its clock's correction, shifted.
    node = {n: n if n in spread or n not in domains else f"clock {domains[n]}" for n in placed}
    shift = {n: 0 if node[n] == n else placed[n].t_max // unit for n in placed}
    windows = [
        (node[e.first], node[e.second], e.lo_us // unit + shift[e.first] - shift[e.second],
         e.hi_us // unit + shift[e.first] - shift[e.second])
        for e in edges if e.confidence is not None
    ]  # fmt: skip
    own = {n: (event.t_min // unit, event.t_max // unit) for n, event in placed.items() if n in domains and n in spread}
    windows += [(f"clock {domains[name]}", name, *ends) for name, ends in own.items()]
    orders, total = list(permutations(spread)), Fraction(0)
    for corrections in product(*(range(-o, o) for o in clocks.values())):
        clock = dict(zip(clocks, corrections, strict=True))
        mass_of_clocks = prod((Fraction(1, 2 * o) for o in clocks.values()), start=Fraction(1))
        cells = {n: _cells(event, unit) for n, event in placed.items() if node[n] == n}
        for n, (first, last) in own.items():
            start = clock[f"clock {domains[n]}"]
            cells[n] = [(start + at, Fraction(1, last - first)) for at in range(first, last + 1)]
        for chosen in product(*cells.values()):
            whole = clock | {name: cell for name, (cell, _) in zip(cells, chosen, strict=True)}
            mass = prod((p for _, p in chosen), start=mass_of_clocks)
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

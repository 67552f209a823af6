"""A join of two windows in memory, instant by instant: only changed runs are probed, other pairs are carried over.

Between two instants a group gains tuples at its end and loses tuples at its beginning. So only its last run, the runs
after that, and a run that lost its beginning change (`temporal_queries.sliding_join_kernels`). What is carried over is
recorded by group ids and times, so that it stays valid in the next step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple
from weakref import ReferenceType, ref

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.coalescing.sliding_window import SlidingWindow
from whenabouts.core.coalescing.window_ranges import Ranges
from whenabouts.core.runtime.keys import NULL_KEY
from whenabouts.core.runtime.output_memory import require_room
from whenabouts.core.times.limits import NEVER_US

_NOTHING, _NONE = np.zeros(0, np.int64), np.zeros(0, bool)


class Periods(NamedTuple):
    """Coalesced tuples: their periods; `rows` gives the group and value columns at indices of these arrays."""

    start: IntArray
    end: IntArray
    rows: Callable[[IntArray], pa.Table]


class WindowRuns(NamedTuple):
    """Coalesced tuples of a window: the id of the group, begin, end, and whether it is the group's last one."""

    group: IntArray
    start: IntArray
    end: IntArray
    is_open: BoolArray

    def at(self, chosen: IntArray | BoolArray) -> WindowRuns:
        """The runs at these indices, or where the mask is true."""
        return WindowRuns(self.group[chosen], self.start[chosen], self.end[chosen], self.is_open[chosen])

    def followed_by(self, others: WindowRuns) -> WindowRuns:
        """These runs, followed by others."""
        group, start, end = (np.concatenate(both) for both in zip(self[:3], others[:3], strict=True))
        return WindowRuns(group, start, end, np.concatenate([self.is_open, others.is_open]))


class GroupSpans(NamedTuple):
    """By group id the times of the group's first and last tuple at an instant; before all times if it had none."""

    first: IntArray
    last: IntArray

    def update(self, window: SlidingWindow, ids: IntArray, lows: IntArray, highs: IntArray) -> None:
        """Set the ranges of groups."""
        self.first[ids], self.last[ids] = window.times[lows], window.times[highs - 1]


@dataclass(frozen=True, slots=True)
class LastInstant:
    """What a join carries over to the next step: for each side the spans of its groups, and the pairs.

    `partner`: the right side's window; for another window the contents are invalid.
    """

    partner: ReferenceType[SlidingWindow]
    spans: tuple[GroupSpans, GroupSpans]
    pairs: tuple[WindowRuns, WindowRuns]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(array.nbytes for side in (*self.spans, *self.pairs) for array in side)

    @classmethod
    def of(
        cls,
        windows: tuple[SlidingWindow, SlidingWindow],
        ranges: tuple[Ranges, Ranges],
        instant: int,
        pairs: tuple[WindowRuns, WindowRuns],
    ) -> LastInstant:
        """From the ranges of both sides at an instant, and its pairs."""
        spans = []
        for window, held in zip(windows, ranges, strict=True):
            assert held.group is not None
            here = held.instants == instant
            found = _grown(GroupSpans(_NOTHING, _NOTHING), len(window.state))
            found.update(window, held.group[here], held.lows[here], held.highs[here])
            spans.append(found)
        return cls(ref(windows[1]), (spans[0], spans[1]), pairs)


@dataclass(slots=True)
class InstantSide:
    """One side at an instant: its ranges, one for each group, and their new runs."""

    window: SlidingWindow
    ids: IntArray
    lows: IntArray
    highs: IntArray
    keys: IntArray
    new_from: IntArray = field(init=False)
    cut: BoolArray = field(init=False)
    new: WindowRuns = field(init=False)

    def find_new(self, first: IntArray, last: IntArray) -> None:
        """Find the runs that were not there at the last instant, when groups had their first and last tuple at these
        times."""
        from whenabouts.core.temporal_queries.sliding_join_kernels import (
            changed_runs,  # numba: imported when first needed
        )

        size = len(self.ids)
        self.new_from, self.cut = np.empty(size, np.int64), np.empty(size, bool)
        given = (
            self.window.times, self.window.linked, self.lows, self.highs, first[self.ids], last[self.ids],
            self.new_from, self.cut,
        )  # fmt: skip
        found = changed_runs(*given, _NOTHING, _NOTHING, _NOTHING, _NONE)
        of, heads, ends = (np.empty(found, np.int64) for _ in range(3))
        is_open = np.empty(found, bool)
        if found:
            changed_runs(*given, of, heads, ends, is_open)
        self.new = WindowRuns(self.ids[of], self.window.times[heads], ends, is_open)

    def partners(
        self, starts: IntArray, stops: IntArray, keys: IntArray, *, include_new: bool
    ) -> tuple[IntArray, WindowRuns]:
        """Pairs of the other side's periods with runs of this side that they touch: the period's index, and the run."""
        from whenabouts.core.temporal_queries.sliding_join_kernels import touching_runs

        given = (
            starts, stops, keys, self.window.times, self.window.linked, self.lows, self.highs, self.keys, self.new_from,
            self.cut, include_new,
        )  # fmt: skip
        found = touching_runs(*given, _NOTHING, _NOTHING, _NOTHING, _NOTHING, _NONE)
        require_room(found, 4 * 8 + 1, "pairs of periods to compare")
        base, of, heads, ends = (np.empty(found, np.int64) for _ in range(4))
        is_open = np.empty(found, bool)
        if found:
            touching_runs(*given, base, of, heads, ends, is_open)
        return base, WindowRuns(self.ids[of], self.window.times[heads], ends, is_open)

    def keys_of(self, runs: WindowRuns) -> IntArray:
        """The keys of runs of this side."""
        by_id = np.full(len(self.window.state), NULL_KEY)
        by_id[self.ids] = self.keys
        return by_id[runs.group]

    def unchanged(self, runs: WindowRuns, last: IntArray) -> BoolArray:
        """Which runs of the last instant are unchanged, given the times of each group's last tuple then."""
        low, high = (np.zeros(len(self.window.state), np.int64) for _ in range(2))
        low[self.ids], high[self.ids] = self.lows, self.highs
        low, high = low[runs.group], high[runs.group]
        here = low < high
        times = self.window.times
        begins = times[low] <= runs.start
        return np.asarray(here & begins & (~runs.is_open | (times[high - 1] == last[runs.group])))

    def periods(self, runs: WindowRuns) -> Periods:
        """Runs with their columns."""
        return Periods(runs.start, runs.end, lambda at: self.window.rows_of(runs.group[at], runs.start[at]))


def sliding_pairs(
    windows: tuple[SlidingWindow, SlidingWindow],
    ranges: tuple[Ranges, Ranges],
    keys: tuple[IntArray, IntArray],
    last: LastInstant,
    reach: Callable[[WindowRuns, bool], tuple[IntArray, IntArray]],
    matches: Callable[[Periods, Periods], IntArray],
) -> Iterator[tuple[int, Periods, Periods]]:
    """The pairs at each instant at which both sides have tuples, in order; stores the last ones in the left window.

    `keys`: by group id, for each side; only groups with equal keys other than `NULL_KEY` are paired. `reach`: the
    periods that partners of some runs must touch; its flag says whether the runs are of the left side. `matches`: the
    indices of the aligned pairs that match.
    """
    spans, pairs = last.spans, last.pairs
    at_us = dict(zip(ranges[0].instants.tolist(), ranges[0].at_us.tolist(), strict=True))
    for instant in np.intersect1d(ranges[0].instants, ranges[1].instants).tolist():
        left, right = (_at(*side, instant) for side in zip(windows, ranges, keys, strict=True))
        spans = _grown(spans[0], len(windows[0].state)), _grown(spans[1], len(windows[1].state))
        stay = left.unchanged(pairs[0], spans[0].last) & right.unchanged(pairs[1], spans[1].last)
        left.find_new(*spans[0])
        right.find_new(*spans[1])
        base, touched = right.partners(*reach(left.new, True), left.keys_of(left.new), include_new=True)
        other, before = left.partners(*reach(right.new, False), right.keys_of(right.new), include_new=False)
        a, b = left.new.at(base).followed_by(before), touched.followed_by(right.new.at(other))
        good = matches(left.periods(a), right.periods(b))
        pairs = pairs[0].at(stay).followed_by(a.at(good)), pairs[1].at(stay).followed_by(b.at(good))
        for each, side in zip(spans, (left, right), strict=True):
            each.update(side.window, side.ids, side.lows, side.highs)
        if len(pairs[0].start):
            yield at_us[instant], left.periods(pairs[0]), right.periods(pairs[1])
    windows[0].last_instant = LastInstant(ref(windows[1]), spans, pairs)


def _at(window: SlidingWindow, ranges: Ranges, keys: IntArray, instant: int) -> InstantSide:
    assert ranges.group is not None
    here = (ranges.instants == instant) & (keys[ranges.group] != NULL_KEY)
    ids = ranges.group[here]
    return InstantSide(window, ids, ranges.lows[here], ranges.highs[here], keys[ids])


def _grown(spans: GroupSpans, size: int) -> GroupSpans:
    more = np.full(max(size - len(spans.first), 0), NEVER_US)
    return GroupSpans(np.concatenate([spans.first, more]), np.concatenate([spans.last, more]))

"""A join of two windows in memory, instant by instant: what changed looks for partners, and pairs that stay, stay.

Between two instants a group gets tuples at its end and loses some at its beginning: only the last run, those behind
it, and a run whose beginning was cut off are others than before (`temporal_queries.sliding_join_kernels`). What is kept
of the last instant is recorded by group numbers and times, so that it holds for the next step as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple
from weakref import ReferenceType, ref

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.coalescing.sliding_window import MovingWindow
from whenabouts.core.coalescing.window_ranges import Ranges
from whenabouts.core.runtime.keys import NULL_KEY
from whenabouts.core.runtime.output_memory import require_room

_BEFORE_ALL = -(2**63)
_NOTHING, _NONE = np.zeros(0, np.int64), np.zeros(0, bool)


class Periods(NamedTuple):
    """Coalesced tuples: when they hold, and their group and value columns at places of these arrays."""

    start: IntArray
    end: IntArray
    rows: Callable[[IntArray], pa.Table]


class SideRuns(NamedTuple):
    """Coalesced tuples of a window: the number of the group, begin, end, and whether it is the group's last one."""

    group: IntArray
    start: IntArray
    end: IntArray
    is_open: BoolArray

    def at(self, places: IntArray | BoolArray) -> SideRuns:
        """Some of them."""
        return SideRuns(self.group[places], self.start[places], self.end[places], self.is_open[places])

    def and_then(self, others: SideRuns) -> SideRuns:
        """These, and others behind them."""
        group, start, end = (np.concatenate(both) for both in zip(self[:3], others[:3], strict=True))
        return SideRuns(group, start, end, np.concatenate([self.is_open, others.is_open]))


class Ends(NamedTuple):
    """By number of a group the times of its first and last tuple at an instant; before all times where it had none."""

    first: IntArray
    last: IntArray

    def note(self, window: MovingWindow, number: IntArray, lows: IntArray, highs: IntArray) -> None:
        """Groups have these ranges now."""
        self.first[number], self.last[number] = window.times[lows], window.times[highs - 1]


@dataclass(frozen=True, slots=True)
class LastInstant:
    """What a join leaves to the next step: per side and number of a group the times of its first and last tuple, and
    the pairs. `partner`: the right side's window, which this is about, and none but it."""

    partner: ReferenceType[MovingWindow]
    ends: tuple[Ends, Ends]
    pairs: tuple[SideRuns, SideRuns]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(array.nbytes for side in (*self.ends, *self.pairs) for array in side)

    @classmethod
    def of(
        cls,
        windows: tuple[MovingWindow, MovingWindow],
        ranges: tuple[Ranges, Ranges],
        instant: int,
        pairs: tuple[SideRuns, SideRuns],
    ) -> LastInstant:
        """Of what the ranges of both sides hold at an instant."""
        ends = []
        for window, held in zip(windows, ranges, strict=True):
            assert held.group is not None
            here = held.instants == instant
            found = _grown(Ends(_NOTHING, _NOTHING), len(window.state))
            found.note(window, held.group[here], held.lows[here], held.highs[here])
            ends.append(found)
        return cls(ref(windows[1]), (ends[0], ends[1]), pairs)


@dataclass(slots=True)
class _Side:
    """One side at an instant: its ranges, one for each group, and what is new in them."""

    window: MovingWindow
    number: IntArray
    lows: IntArray
    highs: IntArray
    keys: IntArray
    new_from: IntArray = field(init=False)
    cut: BoolArray = field(init=False)
    new: SideRuns = field(init=False)

    def find_new(self, first: IntArray, last: IntArray) -> None:
        """What was not there at the last instant, when groups had their first and last tuples at these times."""
        from whenabouts.core.temporal_queries.sliding_join_kernels import (
            changed_runs,  # numba: imported when first needed
        )

        size = len(self.number)
        self.new_from, self.cut = np.empty(size, np.int64), np.empty(size, bool)
        given = (
            self.window.times, self.window.linked, self.lows, self.highs, first[self.number], last[self.number],
            self.new_from, self.cut,
        )  # fmt: skip
        found = changed_runs(*given, _NOTHING, _NOTHING, _NOTHING, _NONE)
        of, heads, ends = (np.empty(found, np.int64) for _ in range(3))
        is_open = np.empty(found, bool)
        if found:
            changed_runs(*given, of, heads, ends, is_open)
        self.new = SideRuns(self.number[of], self.window.times[heads], ends, is_open)

    def partners(
        self, starts: IntArray, stops: IntArray, keys: IntArray, *, new_too: bool
    ) -> tuple[IntArray, SideRuns]:
        """Pairs of periods of the other side with runs of this side that they touch: each one's number, and these."""
        from whenabouts.core.temporal_queries.sliding_join_kernels import touching_runs

        given = (
            starts, stops, keys, self.window.times, self.window.linked, self.lows, self.highs, self.keys, self.new_from,
            self.cut, new_too,
        )  # fmt: skip
        found = touching_runs(*given, _NOTHING, _NOTHING, _NOTHING, _NOTHING, _NONE)
        require_room(found, 4 * 8 + 1, "pairs of periods to compare")
        base, of, heads, ends = (np.empty(found, np.int64) for _ in range(4))
        is_open = np.empty(found, bool)
        if found:
            touching_runs(*given, base, of, heads, ends, is_open)
        return base, SideRuns(self.number[of], self.window.times[heads], ends, is_open)

    def keys_of(self, runs: SideRuns) -> IntArray:
        """The keys of runs of this side."""
        by_number = np.full(len(self.window.state), NULL_KEY)
        by_number[self.number] = self.keys
        return by_number[runs.group]

    def stays(self, runs: SideRuns, last: IntArray) -> BoolArray:
        """Which runs of the last instant are still here as they were."""
        low, high = (np.zeros(len(self.window.state), np.int64) for _ in range(2))
        low[self.number], high[self.number] = self.lows, self.highs
        low, high = low[runs.group], high[runs.group]
        here = low < high
        times = self.window.times
        begins = times[low] <= runs.start
        return np.asarray(here & begins & (~runs.is_open | (times[high - 1] == last[runs.group])))

    def periods(self, runs: SideRuns) -> Periods:
        """The same with their columns."""
        return Periods(runs.start, runs.end, lambda at: self.window.rows_of(runs.group[at], runs.start[at]))


def moving_pairs(
    windows: tuple[MovingWindow, MovingWindow],
    ranges: tuple[Ranges, Ranges],
    keys: tuple[IntArray, IntArray],
    last: LastInstant,
    reach: Callable[[SideRuns, bool], tuple[IntArray, IntArray]],
    matches: Callable[[Periods, Periods], IntArray],
) -> Iterator[tuple[int, Periods, Periods]]:
    """The pairs at each instant at which both sides have tuples, in order; leaves the last ones to the left window.

    `keys`: by number of a group, of each side; only groups of equal keys that are none of `NULL_KEY` are paired.
    `reach`: of runs of the left side, or (False) of the right one, what a run that they can be paired with touches.
    `matches`: which of these pairs, side by side, belong together.
    """
    ends, pairs = last.ends, last.pairs
    at_us = dict(zip(ranges[0].instants.tolist(), ranges[0].at_us.tolist(), strict=True))
    for instant in np.intersect1d(ranges[0].instants, ranges[1].instants).tolist():
        left, right = (_at(*side, instant) for side in zip(windows, ranges, keys, strict=True))
        ends = _grown(ends[0], len(windows[0].state)), _grown(ends[1], len(windows[1].state))
        stay = left.stays(pairs[0], ends[0].last) & right.stays(pairs[1], ends[1].last)
        left.find_new(*ends[0])
        right.find_new(*ends[1])
        base, touched = right.partners(*reach(left.new, True), left.keys_of(left.new), new_too=True)
        other, before = left.partners(*reach(right.new, False), right.keys_of(right.new), new_too=False)
        a, b = left.new.at(base).and_then(before), touched.and_then(right.new.at(other))
        good = matches(left.periods(a), right.periods(b))
        pairs = pairs[0].at(stay).and_then(a.at(good)), pairs[1].at(stay).and_then(b.at(good))
        for each, side in zip(ends, (left, right), strict=True):
            each.note(side.window, side.number, side.lows, side.highs)
        if len(pairs[0].start):
            yield at_us[instant], left.periods(pairs[0]), right.periods(pairs[1])
    windows[0].last_instant = LastInstant(ref(windows[1]), ends, pairs)


def _at(window: MovingWindow, ranges: Ranges, keys: IntArray, instant: int) -> _Side:
    assert ranges.group is not None
    here = (ranges.instants == instant) & (keys[ranges.group] != NULL_KEY)
    number = ranges.group[here]
    return _Side(window, number, ranges.lows[here], ranges.highs[here], keys[number])


def _grown(ends: Ends, size: int) -> Ends:
    more = np.full(max(size - len(ends.first), 0), _BEFORE_ALL)
    return Ends(np.concatenate([ends.first, more]), np.concatenate([ends.last, more]))

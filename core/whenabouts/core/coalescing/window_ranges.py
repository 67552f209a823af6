"""Which tuples lie in a window's extents: for each instant and group, a range of the tuples in order.

A time-based window of width w holds at the instant T the tuples with `T - w <= time <= T`, both ends included as in
Al-Kateb 2010, section 2.1 (`closed="right"`: `T - w < time`); a tuple-based one the n tuples with the largest
(time, group) up to T, of the whole stream or of each group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.row_ranks import ranks_of_rows
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.coalescing.tuples import TemporalTuples
from whenabouts.core.runtime.output_memory import require_room

EXTENTS = "extents of a window and a group"


@dataclass(frozen=True, slots=True)
class Window:
    """Its width in microseconds or its number of `rows`; neither means all of the past."""

    width_us: int | None = None
    rows: int | None = None
    per_group: bool = False
    closed: str = "both"

    @property
    def reach_us(self) -> int:
        """How far before T a tuple of a time-based window may lie."""
        assert self.width_us is not None
        return self.width_us - (self.closed == "right")

    @property
    def over_all_groups(self) -> bool:
        """Whether which tuples of a group it holds depends on the other groups."""
        return self.rows is not None and not self.per_group


class Ranges(NamedTuple):
    """Range r is tuples `[lows[r], highs[r])` of one group at the instant `at_us[r]`; ranges may be empty.

    `mark[r]`: at which tuple, where instants are those of tuples (two tuples can share a time). `group[r]`: the number
    of the group, where it is known.
    """

    at_us: IntArray
    lows: IntArray
    highs: IntArray
    mark: IntArray | None = None
    group: IntArray | None = None

    @property
    def instants(self) -> IntArray:
        """What tells extents apart: their marks, or their times."""
        return self.at_us if self.mark is None else self.mark


class Marks(NamedTuple):
    """Tuples at which windows of rows end, in order of (time, group): their times, and their group columns."""

    times: IntArray
    groups: pa.Table


def whole_groups(tuples: TemporalTuples) -> Ranges:
    """Every group as one range."""
    return Ranges(np.zeros(len(tuples.starts) - 1, np.int64), tuples.starts[:-1], tuples.starts[1:])


def ranges_at(tuples: TemporalTuples, window: Window, instants: IntArray, group_names: tuple[str, ...] = ()) -> Ranges:
    """The extents at the given instants, which rise. O(tuples + groups * instants), and a sort for stream-wide rows."""
    keys, least, greatest = tuples.times, np.full(len(instants), -(2**63)), instants
    if window.width_us is not None:
        least = instants - window.reach_us
    elif window.over_all_groups and window.rows is not None:
        keys = places_of(tuples, group_names)
        greatest = np.searchsorted(np.sort(tuples.times), instants, side="right") - 1
        least = greatest - window.rows + 1
    lows, highs = _between(tuples, keys, least, greatest)
    if window.per_group and window.rows is not None:
        lows = np.maximum(np.repeat(tuples.starts[:-1], len(instants)), highs - window.rows)
    return Ranges(np.tile(instants, len(tuples.starts) - 1), lows, highs)


def ranges_of_slides(tuples: TemporalTuples, window: Window, slide_us: int, first: int, last: int) -> Ranges:
    """The extents of a time-based window at `k * slide_us`, `first <= k <= last`, none of them empty."""
    return sliding(tuples.times, tuples.starts[:-1], tuples.starts[1:], slide_us, window.reach_us, first, last)


def sliding(
    times: IntArray, starts: IntArray, stops: IntArray, slide_us: int, reach_us: int, first: int, last: int
) -> Ranges:
    """As `ranges_of_slides`, of groups that are the tuples `[starts[g], stops[g])`."""
    from whenabouts.core.coalescing.kernels import sliding_ranges

    nothing = np.empty(0, np.int64)
    given = times, starts, stops, slide_us, reach_us, first, last
    size = sliding_ranges(*given, *[nothing] * 4)
    require_room(size, 4 * 8, EXTENTS)
    group, instants, lows, highs = (np.empty(size, np.int64) for _ in range(4))
    if size:
        sliding_ranges(*given, group, instants, lows, highs)
    return Ranges(instants, lows, highs, group=group)


def ranges_of_row_slides(
    tuples: TemporalTuples, window: Window, every: int, group_names: tuple[str, ...] = ()
) -> Ranges:
    """The extents of a tuple-based window at each tuple whose number is a multiple of `every`.

    Tuples are numbered from 1 in the order of (time, group), of the stream or of each group. O(tuples + ranges).
    """
    assert window.rows is not None
    if window.per_group:
        group = np.repeat(np.arange(len(tuples.starts) - 1), np.diff(tuples.starts))
        ends = np.flatnonzero((np.arange(len(tuples)) - tuples.starts[group] + 1) % every == 0)
        lows = np.maximum(tuples.starts[group[ends]], ends + 1 - window.rows)
        return Ranges(tuples.times[ends], lows, ends + 1)
    ends = np.arange(every - 1, len(tuples), every)
    lows, highs = _between(tuples, places_of(tuples, group_names), ends - window.rows + 1, ends)
    groups = len(tuples.starts) - 1
    return Ranges(np.tile(np.sort(tuples.times)[ends], groups), lows, highs, np.tile(np.arange(len(ends)), groups))


def marks_of(times: IntArray, order: IntArray, ranges: Ranges, groups: Callable[[IntArray], pa.Table]) -> Marks:
    """The tuples at which the ranges of a window of rows of the whole stream end.

    `times`, and `order` by (time, group), of all tuples; `groups`: the group columns of tuples at places.
    """
    assert ranges.mark is not None
    count = int(ranges.mark.max(initial=-1)) + 1
    held = np.flatnonzero(ranges.highs > ranges.lows)
    last = ranges.highs[held] - 1
    by_mark = np.lexsort((order[last], ranges.mark[held]))
    ends = np.zeros(count, np.int64)
    ends[ranges.mark[held][by_mark]] = last[by_mark]  # of a mark's ranges, the one that holds its last tuple comes last
    return Marks(times[ends], groups(ends))


def ranges_up_to(tuples: TemporalTuples, window: Window, marks: Marks, group_names: tuple[str, ...]) -> Ranges:
    """The extents of a window of rows that end at, or before, the tuples of another stream."""
    assert window.rows is not None
    size, groups = len(tuples), len(tuples.starts) - 1
    ranks = np.zeros(size + len(marks.times), np.int64)
    if group_names:
        own = pa.Table.from_arrays(tuples.taken(np.arange(size), group_names), schema=marks.groups.schema)
        ranks = ranks_of_rows(pa.concat_tables([own, marks.groups]).combine_chunks())
    is_mark = np.repeat([0, 1], [size, len(marks.times)])
    order = np.lexsort((is_mark, ranks, np.concatenate([tuples.times, marks.times])))
    before = np.cumsum(1 - is_mark[order])
    last = np.empty(len(order), np.int64)
    last[order] = before - 1
    ends = last[size:]
    lows, highs = _between(tuples, last[:size], ends - window.rows + 1, ends)
    return Ranges(np.tile(marks.times, groups), lows, highs, np.tile(np.arange(len(ends)), groups))


def _between(tuples: TemporalTuples, keys: IntArray, least: IntArray, greatest: IntArray) -> tuple[IntArray, IntArray]:
    return stretches_between(keys, tuples.starts[:-1], tuples.starts[1:], least, greatest)


def stretches_between(
    keys: IntArray, starts: IntArray, stops: IntArray, least: IntArray, greatest: IntArray
) -> tuple[IntArray, IntArray]:
    """Where the tuples with `least[k] <= key <= greatest[k]` of each group lie, groups being `[starts, stops)`."""
    from whenabouts.core.coalescing.kernels import ranges_between

    require_room(len(starts) * len(least), 3 * 8, EXTENTS)
    lows, highs = (np.empty(len(starts) * len(least), np.int64) for _ in range(2))
    ranges_between(keys, starts, stops, least, greatest, lows, highs)
    return lows, highs


def places_of(tuples: TemporalTuples, group_names: tuple[str, ...]) -> IntArray:
    """The place of each tuple in the order of (time, group), from 0."""
    held = np.flatnonzero(tuples.starts[1:] > tuples.starts[:-1])
    heads = tuples.taken(tuples.starts[:-1][held], group_names)
    if not heads:
        return np.arange(len(tuples))
    rank = np.zeros(len(tuples.starts) - 1, np.int64)
    rank[held] = ranks_of_rows(pa.table(heads, names=list(map(str, range(len(heads))))))
    of_tuple = np.repeat(rank, np.diff(tuples.starts))
    places = np.empty(len(tuples), np.int64)
    places[np.lexsort((of_tuple, tuples.times))] = np.arange(len(tuples))
    return places

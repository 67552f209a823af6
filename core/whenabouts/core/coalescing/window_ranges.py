"""Which tuples a window's extents contain: for each instant and group, a range of the sorted tuples.

At the instant T a time-based window of width w contains the tuples with `T - w <= time <= T`, both ends included as in
Al-Kateb 2010, section 2.1 (`closed="right"`: `T - w < time`). A row-count window contains the n tuples with the largest
(time, group) up to T, of the whole stream or of each group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.row_ranks import ranks_of_rows
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.coalescing.tuples import TemporalTuples
from whenabouts.core.runtime.output_memory import require_room

EXTENTS = "extents of a window and a group"


@dataclass(frozen=True, slots=True)
class Window:
    """Its width in microseconds or its number of `rows`; neither means the whole history."""

    width_us: int | None = None
    rows: int | None = None
    per_group: bool = False
    closed: str = "both"

    @property
    def reach_us(self) -> int:
        """How far before T a tuple in a time-based window may lie."""
        assert self.width_us is not None
        return self.width_us - (self.closed == "right")

    @property
    def is_time_based(self) -> bool:
        """Whether it is a period of time, not a number of rows."""
        return self.width_us is not None

    @property
    def can_share(self) -> bool:
        """Whether queries can share one extent of rows in time order: it then has a least time that still matters.

        Not so if rows are counted per group: those of a quiet group matter for ever.
        """
        return self.is_time_based or self.over_all_groups

    @property
    def over_all_groups(self) -> bool:
        """Whether the tuples that it contains of one group depend on the other groups."""
        return self.rows is not None and not self.per_group


class Ranges(NamedTuple):
    """Range r is tuples `[lows[r], highs[r])` of one group at the instant `at_us[r]`; ranges may be empty.

    `end[r]`: the number of the tuple at which the window ends, if windows slide by rows (two tuples can share a time).
    `group[r]`: the id of the group, if it is known.
    """

    at_us: IntArray
    lows: IntArray
    highs: IntArray
    end: IntArray | None = None
    group: IntArray | None = None

    @property
    def instants(self) -> IntArray:
        """What identifies an extent: the tuple at which it ends, or its time."""
        return self.at_us if self.end is None else self.end


class WindowEnds(NamedTuple):
    """The tuples at which row-count windows end, in order of (time, group): their times and group columns."""

    times: IntArray
    groups: pa.Table

    def merged_with(self, times: IntArray, groups: list[pa.Array]) -> tuple[IntArray, BoolArray]:
        """Tuples and these ends in the order of (time, group), tuples first among equals; and which are ends."""
        size = len(times)
        ranks = np.zeros(size + len(self.times), np.int64)
        if groups:
            own = pa.Table.from_arrays(groups, schema=self.groups.schema)
            ranks = ranks_of_rows(pa.concat_tables([own, self.groups]).combine_chunks())
        is_end = np.arange(len(ranks)) >= size
        return np.lexsort((is_end, ranks, np.concatenate([times, self.times]))), is_end


def whole_groups(tuples: TemporalTuples) -> Ranges:
    """Every group as one range."""
    return Ranges(np.zeros(len(tuples.starts) - 1, np.int64), tuples.starts[:-1], tuples.starts[1:])


def ranges_at(tuples: TemporalTuples, window: Window, instants: IntArray, group_names: tuple[str, ...] = ()) -> Ranges:
    """The extents at ascending instants. O(tuples + groups * instants), and sorting times for stream-wide rows."""
    least, over_all = np.full(len(instants), -(2**63)), window.over_all_groups and len(tuples) > 0
    if window.width_us is not None:
        least = instants - window.reach_us
    elif over_all and window.rows is not None:
        ordered = np.sort(tuples.times)
        first = np.maximum(np.searchsorted(ordered, instants, side="right") - window.rows, 0)
        least = ordered[first]
    lows, highs = _between(tuples, tuples.times, least, instants)
    if over_all:  # of the tuples at the least time, the first ones by group may be too many
        _drop_least(tuples, lows, highs, first - np.searchsorted(ordered, least), least, group_names)
    elif window.per_group and window.rows is not None:
        lows = np.maximum(np.repeat(tuples.starts[:-1], len(instants)), highs - window.rows)
    return Ranges(np.tile(instants, len(tuples.starts) - 1), lows, highs)


def _drop_least(
    tuples: TemporalTuples,
    lows: IntArray,
    highs: IntArray,
    excess: IntArray,
    least: IntArray,
    group_names: tuple[str, ...],
) -> None:
    """Drop the first `excess[k]` tuples at the time `least[k]`, by group, from the ranges at instant k."""
    for k in np.flatnonzero(excess):
        ranges = np.arange(k, len(lows), len(least))
        ranges = ranges[lows[ranges] < highs[ranges]]
        ranges = ranges[tuples.times[lows[ranges]] == least[k]]
        columns = tuples.taken(lows[ranges], group_names)
        if columns:
            ranges = ranges[np.argsort(ranks_of_rows(pa.table(columns, names=list(map(str, range(len(columns)))))))]
        lows[ranges[: excess[k]]] += 1


def ranges_of_slides(tuples: TemporalTuples, window: Window, slide_us: int, first: int, last: int) -> Ranges:
    """The non-empty extents of a time-based window at `k * slide_us`, `first <= k <= last`."""
    return sliding(tuples.times, tuples.starts[:-1], tuples.starts[1:], slide_us, window.reach_us, first, last)


def sliding(
    times: IntArray, starts: IntArray, stops: IntArray, slide_us: int, reach_us: int, first: int, last: int
) -> Ranges:
    """As `ranges_of_slides`, where group g is the tuples `[starts[g], stops[g])`."""
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
    tuples: TemporalTuples,
    window: Window,
    every: int,
    group_names: tuple[str, ...] = (),
    *,
    before: int = 0,
    after: int = 0,
) -> Ranges:
    """The extents of a row-count window at each tuple whose number is a multiple of `every`.

    Tuples are numbered from 1 in the order of (time, group), over the stream or per group. Over the stream: `before`
    tuples came before these, and only the extents at tuples with a number above `after` are wanted. O(tuples + ranges).
    """
    assert window.rows is not None
    if window.per_group:
        group = np.repeat(np.arange(len(tuples.starts) - 1), np.diff(tuples.starts))
        ends = np.flatnonzero((np.arange(len(tuples)) - tuples.starts[group] + 1) % every == 0)
        lows = np.maximum(tuples.starts[group[ends]], ends + 1 - window.rows)
        return Ranges(tuples.times[ends], lows, ends + 1)
    ends = np.arange((max(before, after) // every + 1) * every - before - 1, len(tuples), every)
    lows, highs = _between(tuples, stream_positions(tuples, group_names), ends - window.rows + 1, ends)
    groups = len(tuples.starts) - 1
    return Ranges(np.tile(np.sort(tuples.times)[ends], groups), lows, highs, np.tile(np.arange(len(ends)), groups))


def window_ends_of(
    times: IntArray, order: IntArray, ranges: Ranges, groups: Callable[[IntArray], pa.Table]
) -> WindowEnds:
    """The tuples at which the ranges of a stream-wide row-count window end.

    `times`, and `order` by (time, group), of all tuples; `groups`: gives the group columns of tuples by index.
    """
    assert ranges.end is not None
    count = int(ranges.end.max(initial=-1)) + 1
    held = np.flatnonzero(ranges.highs > ranges.lows)
    last = ranges.highs[held] - 1
    by_end = np.lexsort((order[last], ranges.end[held]))
    ends = np.zeros(count, np.int64)
    ends[ranges.end[held][by_end]] = last[by_end]  # the last assignment wins: the range with the latest tuple
    return WindowEnds(times[ends], groups(ends))


def ranges_up_to(tuples: TemporalTuples, window: Window, ends: WindowEnds, group_names: tuple[str, ...]) -> Ranges:
    """The extents of a row-count window that end at, or before, the tuples of another stream."""
    assert window.rows is not None
    size, groups = len(tuples), len(tuples.starts) - 1
    own = tuples.taken(np.arange(size), group_names)
    order, is_end = ends.merged_with(tuples.times, own)
    last = np.empty(len(order), np.int64)
    last[order] = np.cumsum(~is_end[order]) - 1
    stops = last[size:]
    lows, highs = _between(tuples, last[:size], stops - window.rows + 1, stops)
    return Ranges(np.tile(ends.times, groups), lows, highs, np.tile(np.arange(len(stops)), groups))


def _between(tuples: TemporalTuples, keys: IntArray, least: IntArray, greatest: IntArray) -> tuple[IntArray, IntArray]:
    return spans_between(keys, tuples.starts[:-1], tuples.starts[1:], least, greatest)


def spans_between(
    keys: IntArray, starts: IntArray, stops: IntArray, least: IntArray, greatest: IntArray
) -> tuple[IntArray, IntArray]:
    """The index ranges of the tuples with `least[k] <= key <= greatest[k]`, by group; group g is `[starts, stops)`."""
    from whenabouts.core.coalescing.kernels import ranges_between

    require_room(len(starts) * len(least), 3 * 8, EXTENTS)
    lows, highs = (np.empty(len(starts) * len(least), np.int64) for _ in range(2))
    ranges_between(keys, starts, stops, least, greatest, lows, highs)
    return lows, highs


def stream_positions(tuples: TemporalTuples, group_names: tuple[str, ...]) -> IntArray:
    """The position of each tuple in the stream's order of (time, group), from 0."""
    held = np.flatnonzero(tuples.starts[1:] > tuples.starts[:-1])
    heads = tuples.taken(tuples.starts[:-1][held], group_names)
    if not heads:
        return np.arange(len(tuples))
    rank = np.zeros(len(tuples.starts) - 1, np.int64)
    rank[held] = ranks_of_rows(pa.table(heads, names=list(map(str, range(len(heads))))))
    of_tuple = np.repeat(rank, np.diff(tuples.starts))
    positions = np.empty(len(tuples), np.int64)
    positions[np.lexsort((of_tuple, tuples.times))] = np.arange(len(tuples))
    return positions

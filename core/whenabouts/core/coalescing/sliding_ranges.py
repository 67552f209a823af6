"""Which tuples of a window in memory are in the extents that a step makes final; see `window_ranges`.

Windows over the last rows of the whole stream use the numbers of tuples in (time, group) order. New tuples are later
than all tuples held, so only these have to be sorted. O(groups log tuples + tuples added and dropped + ranges).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.coalescing.sliding_window import SlidingWindow
from whenabouts.core.coalescing.tuples import TemporalTuples
from whenabouts.core.coalescing.window_ranges import Ranges, WindowEnds, sliding, spans_between, stream_positions
from whenabouts.core.times.limits import NEVER_US


class NewTuples(NamedTuple):
    """New tuples in (time, group) order: their times, their indices in `tuples`, and how many tuples came before."""

    tuples: TemporalTuples
    times: IntArray
    at: IntArray
    before: int

    @classmethod
    def of(cls, tuples: TemporalTuples, group: tuple[str, ...], before: int) -> NewTuples:
        """Sorts them."""
        positions = stream_positions(tuples, group)
        at = np.empty(len(positions), np.int64)
        at[positions] = np.arange(len(positions))
        return cls(tuples, tuples.times[at], at, before)

    @property
    def numbers(self) -> IntArray:
        """The number of each tuple in the stream, from 1."""
        numbers = np.empty(len(self.at), np.int64)
        numbers[self.at] = self.before + 1 + np.arange(len(self.at))
        return numbers


def ranges_in_time(window: SlidingWindow, slide_us: int, reach_us: int, first: int, last: int) -> Ranges:
    """The non-empty extents of a time-based window at `k * slide_us`, `first <= k <= last`."""
    ids, (begins, ends) = window.spans()
    found = sliding(window.times, begins, ends, slide_us, reach_us, first, last)
    assert found.group is not None
    return found._replace(group=ids[found.group])


def ranges_of_last(window: SlidingWindow, rows: int, instants: IntArray) -> Ranges:
    """The last tuples of each group at ascending instants, all later than those of earlier steps."""
    ids, (begins, ends) = window.spans()
    before = np.full(len(instants), NEVER_US)
    lows, highs = spans_between(window.times, begins, ends, before, instants)
    lows = np.maximum(np.repeat(begins, len(instants)), highs - rows)
    return _non_empty(ids, instants, lows, highs)._replace(end=None)


def ranges_of_group_slides(window: SlidingWindow, rows: int, every: int, from_us: int) -> Ranges:
    """The last tuples of each group at each tuple since `from_us` whose number in its group is divisible by `every`."""
    ids, (begins, ends) = window.spans()
    _, counts = window.counted()
    (new, _) = spans_between(window.times, begins, ends, np.array([from_us]), np.array([2**62]))
    seen = counts - (ends - new)
    slides = counts // every - seen // every
    of = np.repeat(np.arange(len(ids)), slides)
    nth = np.arange(len(of)) - np.repeat(np.cumsum(slides) - slides, slides)
    highs = ends[of] - counts[of] + (seen[of] // every + 1 + nth) * every
    lows = np.maximum(begins[of], highs - rows)
    return Ranges(window.times[highs - 1], lows, highs, group=ids[of])


def ranges_of_stream_slides(window: SlidingWindow, rows: int, every: int, new: NewTuples) -> Ranges:
    """The last tuples of the stream at each new tuple whose number is a multiple of `every`."""
    ends = np.arange(new.before // every + 1, (new.before + len(new.at)) // every + 1) * every
    return _up_to(window, rows, new.times[ends - 1 - new.before], ends)


def ranges_at_instants(window: SlidingWindow, rows: int, instants: IntArray, new: NewTuples) -> Ranges:
    """The last tuples of the stream at ascending instants, all later than the tuples of earlier steps."""
    ends = new.before + np.searchsorted(new.times, instants, side="right")
    return _up_to(window, rows, instants, ends)._replace(end=None)


def ranges_at_window_ends(
    window: SlidingWindow, rows: int, ends: WindowEnds, new: NewTuples, group: tuple[str, ...]
) -> Ranges:
    """The last tuples of the stream up to each of the tuples at which another stream's windows end."""
    order, is_end = ends.merged_with(new.times, new.tuples.taken(new.at, group))
    stops = new.before + np.cumsum(~is_end[order])[is_end[order]]
    return _up_to(window, rows, ends.times, stops)


def _up_to(window: SlidingWindow, rows: int, at_us: IntArray, ends: IntArray) -> Ranges:
    """The tuples with `end - rows < number <= end`, for each of the ascending ends."""
    ids, (begins, stops) = window.spans()
    lows, highs = spans_between(window.numbers, begins, stops, ends - rows + 1, ends)
    return _non_empty(ids, at_us, lows, highs)


def _non_empty(ids: IntArray, at_us: IntArray, lows: IntArray, highs: IntArray) -> Ranges:
    held = np.flatnonzero(lows < highs)
    of, end = np.divmod(held, max(len(at_us), 1))
    return Ranges(at_us[end], lows[held], highs[held], end, ids[of])

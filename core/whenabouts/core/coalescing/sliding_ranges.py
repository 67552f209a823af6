"""Which tuples of a window in memory lie in the extents that a step makes final; see `window_ranges`.

Windows of rows of the whole stream go by the numbers of tuples, which follow (time, group): new tuples are later than
all that were there, so that only these are put in order. O(groups log tuples + tuples that come and go + ranges).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.row_ranks import ranks_of_rows
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.coalescing.sliding_window import MovingWindow
from whenabouts.core.coalescing.tuples import TemporalTuples
from whenabouts.core.coalescing.window_ranges import Marks, Ranges, places_of, sliding, stretches_between

_BEFORE_ALL = -(2**63)


class Arrivals(NamedTuple):
    """New tuples in order of (time, group): their times, which of `tuples` each is, and how many there were before."""

    tuples: TemporalTuples
    times: IntArray
    at: IntArray
    before: int

    @classmethod
    def of(cls, tuples: TemporalTuples, group: tuple[str, ...], before: int) -> Arrivals:
        """Sorts them."""
        places = places_of(tuples, group)
        at = np.empty(len(places), np.int64)
        at[places] = np.arange(len(places))
        return cls(tuples, tuples.times[at], at, before)

    @property
    def numbers(self) -> IntArray:
        """By tuple its number in the stream, from 1."""
        numbers = np.empty(len(self.at), np.int64)
        numbers[self.at] = self.before + 1 + np.arange(len(self.at))
        return numbers


def ranges_in_time(window: MovingWindow, slide_us: int, reach_us: int, first: int, last: int) -> Ranges:
    """The extents of a time-based window at `k * slide_us`, `first <= k <= last`, none of them empty."""
    which, (begins, ends) = window.stretches()
    found = sliding(window.times, begins, ends, slide_us, reach_us, first, last)
    assert found.group is not None
    return found._replace(group=which[found.group])


def ranges_of_last(window: MovingWindow, rows: int, instants: IntArray) -> Ranges:
    """The last tuples of each group at instants that rise, all of them behind those of earlier steps."""
    which, (begins, ends) = window.stretches()
    before = np.full(len(instants), _BEFORE_ALL)
    lows, highs = stretches_between(window.times, begins, ends, before, instants)
    lows = np.maximum(np.repeat(begins, len(instants)), highs - rows)
    return _not_empty(which, instants, lows, highs)._replace(mark=None)


def ranges_of_group_slides(window: MovingWindow, rows: int, every: int, from_us: int) -> Ranges:
    """The last tuples of each group at each one at or after `from_us` whose number in its group `every` divides."""
    which, (begins, ends) = window.stretches()
    _, counts = window.counted()
    (new, _) = stretches_between(window.times, begins, ends, np.array([from_us]), np.array([2**62]))
    seen = counts - (ends - new)
    slides = counts // every - seen // every
    of = np.repeat(np.arange(len(which)), slides)
    nth = np.arange(len(of)) - np.repeat(np.cumsum(slides) - slides, slides)
    highs = ends[of] - counts[of] + (seen[of] // every + 1 + nth) * every
    lows = np.maximum(begins[of], highs - rows)
    return Ranges(window.times[highs - 1], lows, highs, group=which[of])


def ranges_of_stream_slides(window: MovingWindow, rows: int, every: int, new: Arrivals) -> Ranges:
    """The last tuples of the stream at each new one whose number `every` divides."""
    ends = np.arange(new.before // every + 1, (new.before + len(new.at)) // every + 1) * every
    return _up_to(window, rows, new.times[ends - 1 - new.before], ends)


def ranges_at_instants(window: MovingWindow, rows: int, instants: IntArray, new: Arrivals) -> Ranges:
    """The last tuples of the stream at instants that rise, all of them behind the tuples of earlier steps."""
    ends = new.before + np.searchsorted(new.times, instants, side="right")
    return _up_to(window, rows, instants, ends)._replace(mark=None)


def ranges_at_marks(window: MovingWindow, rows: int, marks: Marks, new: Arrivals, group: tuple[str, ...]) -> Ranges:
    """The last tuples of the stream up to those of another stream."""
    size = len(new.at)
    ranks = np.zeros(size + len(marks.times), np.int64)
    if group:
        own = pa.Table.from_arrays(new.tuples.taken(new.at, group), schema=marks.groups.schema)
        ranks = ranks_of_rows(pa.concat_tables([own, marks.groups]).combine_chunks())
    is_mark = np.repeat([0, 1], [size, len(marks.times)])
    order = np.lexsort((is_mark, ranks, np.concatenate([new.times, marks.times])))
    ends = new.before + np.cumsum(1 - is_mark[order])[is_mark[order] == 1]
    return _up_to(window, rows, marks.times, ends)


def _up_to(window: MovingWindow, rows: int, at_us: IntArray, ends: IntArray) -> Ranges:
    """The tuples of numbers `end - rows < number <= end`, for each end; they rise."""
    which, (begins, stops) = window.stretches()
    lows, highs = stretches_between(window.numbers, begins, stops, ends - rows + 1, ends)
    return _not_empty(which, at_us, lows, highs)


def _not_empty(which: IntArray, at_us: IntArray, lows: IntArray, highs: IntArray) -> Ranges:
    held = np.flatnonzero(lows < highs)
    of, mark = np.divmod(held, max(len(at_us), 1))
    return Ranges(at_us[mark], lows[held], highs[held], mark, which[of])

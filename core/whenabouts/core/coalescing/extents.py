"""Extents that have become final, and the coalesced tuples in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.coalescing.sliding_window import SlidingWindow
from whenabouts.core.coalescing.tuples import TemporalTuples
from whenabouts.core.coalescing.window_ranges import Ranges
from whenabouts.core.runtime.output_memory import require_room


class Runs(NamedTuple):
    """Coalesced tuples: the range each one is in, the index of its first tuple, `[start, end)`, its tuple count,
    and the time of its last tuple."""

    range: IntArray
    first: IntArray
    start: IntArray
    end: IntArray
    n: IntArray
    last: IntArray


@dataclass(frozen=True, slots=True)
class FinalExtents:
    """Extents as ranges of tuples. `linked[i]`: tuple i extends the run of its predecessor.

    `weight[i]`: how many tuples tuple i represents. `open_ended`: the last run of each range is not final yet.
    """

    tuples: TemporalTuples | SlidingWindow
    linked: BoolArray
    ranges: Ranges
    weight: IntArray | None = None
    open_ended: bool = False

    @property
    def coalesced(self) -> int:
        """How many tuples extend the run of their predecessor."""
        return self.tuples.coalesced if isinstance(self.tuples, SlidingWindow) else int(self.linked.sum())

    @property
    def neighbours(self) -> int:
        """How many tuples have a predecessor in their group."""
        if isinstance(self.tuples, SlidingWindow):
            return len(self.tuples) - len(self.tuples.groups)
        return len(self.tuples) - int(self.tuples.heads.sum())

    def runs(self, width: int = 0) -> Runs:
        """The coalesced tuples of all ranges. `width`: bytes of an output row. O(tuples in ranges).

        Raises QueryError WA-2201 if the rows would not fit into memory.
        """
        from whenabouts.core.coalescing.kernels import count_runs_of_ranges, runs_of_ranges  # numba: when first needed

        given = self.tuples.times, self.linked, self.ranges.lows, self.ranges.highs
        size = count_runs_of_ranges(*given[1:])
        require_room(size, 6 * 8 + width, "coalesced rows of all extents")
        of, first, end, n = (np.empty(size, np.int64) for _ in range(4))
        if size:
            runs_of_ranges(*given, of, first, end, n)
        last = self.tuples.times[first + n - 1]
        if self.weight is not None:
            total = np.concatenate([[0], np.cumsum(self.weight)])
            n = total[first + n] - total[first]
        runs = Runs(of, first, self.tuples.times[first], end, n, last)
        if not self.open_ended:
            return runs
        final = np.diff(of, append=-1) == 0
        return Runs(*(column[final] for column in runs))

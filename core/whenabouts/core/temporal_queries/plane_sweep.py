"""A plane sweep over the periods of two sides, extent by extent.

Of two periods that share an instant or meet, one begins inside the other. So if the tuples of each side are sorted by
their begins, the candidates for a tuple are one range of the other side.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.record_batches import take_table
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.coalescing.extents import FinalExtents, Runs
from whenabouts.core.coalescing.sliding_window import SlidingWindow
from whenabouts.core.runtime.keys import NULL_KEY
from whenabouts.core.runtime.output_memory import require_room
from whenabouts.core.temporal_queries.sliding_join import Periods, WindowRuns


class SweepSide:
    """The coalesced tuples of one side: each once, however many extents contain it, and which extents do.

    A coalesced tuple of an extent is identified by the index of its first constituent and by its end.
    """

    def __init__(self, extents: FinalExtents, names: tuple[str, ...]) -> None:
        runs: Runs = extents.runs()
        order = np.lexsort((runs.end, runs.first))
        first, end = runs.first[order], runs.end[order]
        new = np.ones(len(order), bool)
        new[1:] = (np.diff(first) != 0) | (np.diff(end) != 0)
        self.rows = pa.table(extents.tuples.taken(first[new], names), names=list(names))
        self.start, self.end = runs.start[order][new], end[new]
        self._tuple = np.empty(len(order), np.int64)
        self._tuple[order] = np.cumsum(new) - 1
        self._ends_range = np.diff(runs.range, append=-1) != 0
        window, heads = extents.tuples, first[new]
        self._group = window.owner(heads) if isinstance(window, SlidingWindow) else np.zeros(len(heads), np.int64)
        instants = extents.ranges.instants
        self._instants = instants[runs.range]
        self.at_us = dict(zip(instants.tolist(), extents.ranges.at_us.tolist(), strict=True))

    def sort(self, ends: IntArray, key: IntArray | None) -> None:
        """Sort tuples by key and begin. Tuples with a null in their key are left out: they match nothing.

        `ends`: the distinct begins and ends of both sides, ascending.
        """
        key = np.zeros(len(self.start), np.int64) if key is None else key
        stride = len(ends) + 1
        self.begins, self.stops = (key * stride + np.searchsorted(ends, end) for end in (self.start, self.end))
        self.limits = (key + 1) * stride
        order = np.argsort(self.begins, kind="stable")
        self.start, self.end, self.rows = self.start[order], self.end[order], take_table(self.rows, order)
        self.begins, self.stops, self.limits = self.begins[order], self.stops[order], self.limits[order]
        self._group = self._group[order]
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        has_key = key[self._tuple] != NULL_KEY
        self._held = rank[self._tuple]
        instants, held = self._instants[has_key], self._held[has_key]
        by_instant = np.lexsort((held, instants))
        self.instants, starts = np.unique(instants[by_instant], return_index=True)
        spans = pairwise([*starts.tolist(), len(held)])
        self._extents = {
            at: held[by_instant[start:stop]] for at, (start, stop) in zip(self.instants.tolist(), spans, strict=True)
        }
        self.current = np.zeros(len(order), bool)
        self.now = np.empty(0, np.int64)

    def move_to(self, instant: int) -> tuple[IntArray, IntArray]:
        """Move to the extent at an instant: its tuples that the extent before did not have, and those that it had."""
        now = self._extents[instant]
        stayed = self.current[now]
        self.current[self.now] = False
        self.current[now] = True
        self.now = now
        return now[~stayed], now[stayed]

    def periods(self, at: IntArray) -> Periods:
        """Some tuples with their columns."""
        return Periods(self.start[at], self.end[at], lambda chosen: take_table(self.rows, at[chosen]))

    def runs(self, at: IntArray, instant: int) -> WindowRuns:
        """Some tuples of the extent at an instant, as runs of a window in memory."""
        last = self._held[self._ends_range & (self._instants == instant)]
        return WindowRuns(self._group[at], self.start[at], self.end[at], np.isin(at, last))


def candidates(relation: str, left: SweepSide, right: SweepSide, a: IntArray, b: IntArray) -> tuple[IntArray, IntArray]:
    """The pairs with equal keys that can be in a relation: periods that share an instant or meet, or that lie apart.

    `a` and `b`: sorted tuples of both sides. O(log) for each tuple, plus the pairs.
    """
    if relation == "after":
        b, a = candidates("before", right, left, b, a)
        return a, b
    if relation == "before":
        return _expanded(a, b, right.begins, left.stops[a] + 1, left.limits[a])
    one = _expanded(a, b, right.begins, left.begins[a], left.stops[a] + 1)
    other, base = _expanded(b, a, left.begins, right.begins[b] + 1, right.stops[b] + 1)
    return np.concatenate([one[0], base]), np.concatenate([one[1], other])


def _expanded(
    base: IntArray, ordered: IntArray, begins: IntArray, least: IntArray, limit: IntArray
) -> tuple[IntArray, IntArray]:
    """Pairs of each base tuple with the tuples of the other side that begin in `[least, limit)`."""
    low, high = (np.searchsorted(begins[ordered], bound) for bound in (least, limit))
    n = np.maximum(high - low, 0)
    require_room(int(n.sum()), 4 * 8, "pairs of periods to compare")
    offset = np.arange(int(n.sum())) - np.repeat(np.cumsum(n) - n, n)
    return np.repeat(base, n), ordered[np.repeat(low, n) + offset]

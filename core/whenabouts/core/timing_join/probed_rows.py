"""The matching targets beside the sure ranges of base rows, for operations that write no pairs of sure ranges."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.jit import READ_INT32, READ_INT32_2D, READ_INT64, WRITE_INT32, WRITE_INT64, compiled
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.timing_join.candidate_ranges import CandidateRanges
from whenabouts.core.timing_join.pair_fill import EVERYTHING, PROBED, STATE_SLOTS, fill_pairs

_NO_TABLE = np.empty(0, np.int64)


class Beside(NamedTuple):
    """Targets beside the sure ranges: those of base row i are `rows[offsets[i] : offsets[i + 1]]`, ascending indices of
    the ordered targets."""

    offsets: IntArray
    rows: NDArray[np.int32]


def matching_beside(found: CandidateRanges, base: slice, lo: int, hi: int, confidence: float) -> tuple[Beside, int]:
    """The matching targets of the two probed stretches of some base rows, and the number of kernel calls.

    `found` are ranges for this window and this confidence. Decides as `strategies.correlate` does. O(rows probed).
    """
    ranges = found.ranges[base]
    some = np.flatnonzero((ranges[:, 1] > ranges[:, 0]) | (ranges[:, 3] > ranges[:, 2]))
    if not len(some):
        return Beside(np.zeros(len(ranges) + 1, np.int64), np.empty(0, np.int32)), 0
    # Two base rows for one: the stretch before the sure range, and the one after it, each without a sure range.
    stretches = np.empty((len(some), 2, 4), np.int32)
    stretches[:, 0, 0], stretches[:, 1, 3] = ranges[some, 0], ranges[some, 3]
    stretches[:, 0, 1:], stretches[:, 1, :3] = ranges[some, 1, None], ranges[some, 2, None]
    stretches = stretches.reshape(-1, 4)
    row = np.repeat(some, 2)
    t_min, t_max = found.base.t_min[row + base.start], found.base.t_max[row + base.start]
    capacity = int((stretches[:, 3] - stretches[:, 0]).sum())
    kinds = found.kinds.of_base(row + base.start) if found.by_kind else found.kinds
    state = np.zeros(STATE_SLOTS, np.int64)
    out_row, out_target = np.empty(capacity, np.int32), np.empty(capacity, np.int32)
    target = found.target
    count = fill_pairs(
        EVERYTHING, lo, hi, confidence, t_min, t_max, row.astype(np.int32), target.t_min, target.t_max,
        np.arange(len(target.axis), dtype=np.int32), stretches, kinds, _NO_TABLE, 0, state, out_row, out_target,
    )  # fmt: skip
    return Beside(offsets_of(out_row[:count], len(ranges)), out_target[:count]), int(state[PROBED])


def beside(ranges: NDArray[np.int32]) -> tuple[NDArray[np.int32], Beside]:
    """All targets of the two probed stretches, and the base row of each. O(rows probed).

    >>> row, found = beside(np.array([[0, 1, 2, 4], [3, 3, 3, 3]], np.int32))
    >>> row.tolist(), found.offsets.tolist(), found.rows.tolist()
    ([0, 0, 0], [0, 3, 3], [0, 2, 3])
    """
    wide = ranges.astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(wide[:, 1] - wide[:, 0] + wide[:, 3] - wide[:, 2])])
    row, rows = np.empty(offsets[-1], np.int32), np.empty(offsets[-1], np.int32)
    _fill_beside(np.ascontiguousarray(ranges), offsets, row, rows)
    return row, Beside(offsets, rows)


def offsets_of(row: NDArray[np.int32], rows: int) -> IntArray:
    """Where the items of each row begin, and where the last one's end; `row`: the row of each item, ascending.

    >>> offsets_of(np.array([0, 0, 2], np.int32), 4).tolist()
    [0, 2, 2, 3, 3]
    """
    offsets = np.empty(rows + 1, np.int64)
    _fill_offsets(np.ascontiguousarray(row), offsets)
    return offsets


@compiled((READ_INT32, WRITE_INT64))
def _fill_offsets(row: NDArray[np.int32], offsets: IntArray) -> None:
    at = 0
    for i in range(offsets.size - 1):
        offsets[i] = at
        while at < row.size and row[at] == i:
            at += 1
    offsets[offsets.size - 1] = at


@compiled((READ_INT32_2D, READ_INT64, WRITE_INT32, WRITE_INT32))
def _fill_beside(ranges: NDArray[np.int32], offsets: IntArray, row: NDArray[np.int32], rows: NDArray[np.int32]) -> None:
    for i in range(ranges.shape[0]):
        to = offsets[i]
        for j in range(ranges[i, 0], ranges[i, 1]):
            row[to], rows[to] = i, j
            to += 1
        for j in range(ranges[i, 2], ranges[i, 3]):
            row[to], rows[to] = i, j
            to += 1

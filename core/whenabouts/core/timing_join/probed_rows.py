"""Sure ranges of base rows, and the matching targets beside them, for operations that write no pairs of sure ranges."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.gather import gathered
from whenabouts.core.arrays.jit import (
    READ_INT32,
    READ_INT32_2D,
    READ_INT64,
    TWO_INT64,
    WRITE_INT32,
    WRITE_INT32_2D,
    WRITE_INT64,
    compiled,
)
from whenabouts.core.arrays.large_arrays import large_array, large_zeros, row_numbers
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.timing_join.candidate_ranges import CandidateRanges
from whenabouts.core.timing_join.pair_fill import EVERYTHING, PROBED, STATE_SLOTS, fill_pairs

_NO_TABLE = np.empty(0, np.int64)


class Beside(NamedTuple):
    """Targets beside the sure ranges: those of base row i are `rows[offsets[i] : offsets[i + 1]]`, ascending indices of
    the ordered targets."""

    offsets: IntArray
    rows: NDArray[np.int32]


class SureRanges(NamedTuple):
    """`start[i] : stop[i]` of each base row. `sure`: how many targets these have in all; `beside`: how many lie beside
    them."""

    start: IntArray
    stop: IntArray
    sure: int
    beside: int


def sure_ranges(ranges: NDArray[np.int32]) -> SureRanges:
    """The sure ranges among `ranges`, which are those of `CandidateRanges`. O(n).

    >>> found = sure_ranges(np.array([[0, 1, 2, 4], [3, 3, 3, 3]], np.int32))
    >>> found.start.tolist(), found.stop.tolist(), found.sure, found.beside
    ([1, 3], [2, 3], 1, 3)
    """
    start, stop, sums = large_array(len(ranges), np.int64), large_array(len(ranges), np.int64), np.zeros(2, np.int64)
    _fill_sure(ranges, start, stop, sums)
    return SureRanges(start, stop, *map(int, sums))


def matching_beside(found: CandidateRanges, base: slice, lo: int, hi: int, confidence: float) -> tuple[Beside, int]:
    """The matching targets of the two probed stretches of some base rows, and the number of kernel calls.

    `found` are ranges for this window and this confidence. Decides as `strategies.correlate` does. O(rows probed).
    """
    ranges = found.ranges[base]
    stretches, row = large_array(8 * len(ranges), np.int32).reshape(-1, 4), large_array(2 * len(ranges), np.int32)
    count, capacity = _fill_stretches(ranges, stretches, row)
    if not count:
        return Beside(large_zeros(len(ranges) + 1, np.int64), np.empty(0, np.int32)), 0
    stretches, row = stretches[:count], row[:count]
    t_min, t_max = (gathered(values[base], row) for values in (found.base.t_min, found.base.t_max))
    kinds = found.kinds.of_base(row + np.int32(base.start)) if found.by_kind else found.kinds
    state = np.zeros(STATE_SLOTS, np.int64)
    out_row, out_target = large_array(capacity, np.int32), large_array(capacity, np.int32)
    target = found.target
    count = fill_pairs(
        EVERYTHING, lo, hi, confidence, t_min, t_max, row, target.t_min, target.t_max,
        row_numbers(len(target.axis)), stretches, kinds, _NO_TABLE, 0, state, out_row, out_target,
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
    row, rows = large_array(int(offsets[-1]), np.int32), large_array(int(offsets[-1]), np.int32)
    _fill_beside(np.ascontiguousarray(ranges), offsets, row, rows)
    return row, Beside(offsets, rows)


def offsets_of(row: NDArray[np.int32], rows: int) -> IntArray:
    """Where the items of each row begin, and where the last one's end; `row`: the row of each item, ascending.

    >>> offsets_of(np.array([0, 0, 2], np.int32), 4).tolist()
    [0, 2, 2, 3, 3]
    """
    offsets = large_array(rows + 1, np.int64)
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


@compiled(TWO_INT64(READ_INT32_2D, WRITE_INT32_2D, WRITE_INT32))
def _fill_stretches(ranges: NDArray[np.int32], stretches: NDArray[np.int32], row: NDArray[np.int32]) -> tuple[int, int]:
    # The stretches before and after each sure range, as ranges without a sure one, and their base rows. Returns how
    # many there are, and how many targets they have.
    count = targets = 0
    for i in range(ranges.shape[0]):
        for side in range(2):
            first, last = ranges[i, 2 * side], ranges[i, 2 * side + 1]
            if first < last:
                sure = first if side else last
                stretches[count, 0], stretches[count, 1] = first, sure
                stretches[count, 2], stretches[count, 3] = sure, last
                row[count] = i
                count += 1
                targets += int(last - first)
    return count, targets


@compiled((READ_INT32_2D, WRITE_INT64, WRITE_INT64, WRITE_INT64))
def _fill_sure(ranges: NDArray[np.int32], start: IntArray, stop: IntArray, sums: IntArray) -> None:
    for i in range(ranges.shape[0]):
        outer, first, after, end = ranges[i, 0], ranges[i, 1], ranges[i, 2], ranges[i, 3]
        start[i], stop[i] = first, after
        sums[0] += np.int64(after) - np.int64(first)
        sums[1] += np.int64(first) - np.int64(outer) + (np.int64(end) - np.int64(after))


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

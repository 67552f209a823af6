"""Kernels for pairs of rows that have few candidates each.

Pairs that the probability decides are decided some hundred at a time, so that the CPU does not wait for the times of
one after the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.jit import (
    BOOL,
    FLOAT64,
    INT64,
    READ_INT32,
    READ_INT32_2D,
    READ_INT64,
    READ_INT64_2D,
    WRITE_INT32,
    WRITE_INT64,
    compiled,
)
from whenabouts.core.arrays.typing import IntArray, Positions
from whenabouts.core.probability.satisfaction_probability import pair_probability
from whenabouts.core.timing_join.pair_fill import PASSED, PROBED, TAKEN

PAIRS_AT_ONCE = 1 << 10
"""So many pairs get their positions together, and are then decided: they stay in the first-level cache."""

NO_ROOM, MANY = -1, -2

RUN = 8
"""Runs up to this length are written with a constant number of elements: outputs have room for one more."""


@compiled((READ_INT64, READ_INT32, READ_INT64, INT64, READ_INT64, WRITE_INT64, WRITE_INT64, WRITE_INT64))
def rows_in_order(
    axis: IntArray,
    position: Positions,
    starts: IntArray,
    begin: int,
    t_min: IntArray,
    out_min: IntArray,
    out_max: IntArray,
    out_key: IntArray,
) -> None:
    """The times and keys of rows by key and midpoint from `begin` on, as many as there is room for."""
    for i in range(len(out_key)):
        at = np.uint64(begin + i)
        first = t_min[np.uint32(position[at])]
        out_min[i] = first
        out_max[i] = axis[at] - first
    key, after = 0, len(starts) - 1
    while after - key > 1:
        middle = (key + after) >> 1
        if starts[middle] <= begin:
            key = middle
        else:
            after = middle
    for i in range(len(out_key)):
        while begin + i >= starts[key + 1]:
            key += 1
        out_key[i] = key


@compiled(INT64(
    INT64, INT64, FLOAT64, READ_INT64, READ_INT64, READ_INT64, READ_INT32, READ_INT64, READ_INT64_2D, INT64, INT64,
    BOOL, INT64, WRITE_INT32, WRITE_INT32,
), inline=True)  # fmt: skip
def _decide(
    lo: int,
    hi: int,
    confidence: float,
    base_min: IntArray,
    base_max: IntArray,
    axis: IntArray,
    position: Positions,
    target_min: IntArray,
    doubts: IntArray,
    doubtful: int,
    first: int,
    in_order: bool,
    written: int,
    out_base: NDArray[np.int32],
    out_target: NDArray[np.int32],
) -> Any:
    # Unless `in_order`, puts positions for the indices of targets from the pair `first` on. Then leaves out the
    # doubtful pairs that do not match; returns how many pairs are left.
    if not in_order:
        for at in range(first, written):
            slot = np.uint64(at)
            out_target[slot] = position[np.uint32(out_target[slot])]
    if doubtful == 0:
        return written
    start = np.empty(doubtful, np.int64)
    for d in range(doubtful):  # without branches, so that many reads are under way
        start[d] = target_min[np.uint64(out_target[np.uint64(doubts[d, 0])])]
    to = doubts[0, 0]
    for d in range(doubtful):
        slot, row = doubts[d, 0], np.uint64(doubts[d, 1])
        end = axis[np.uint64(doubts[d, 2])] - start[d]
        out_base[np.uint64(to)], out_target[np.uint64(to)] = out_base[np.uint64(slot)], out_target[np.uint64(slot)]
        to += pair_probability(base_min[row], base_max[row], start[d], end, lo, hi) >= confidence
        following = doubts[d + 1, 0] if d + 1 < doubtful else written
        for k in range(slot + 1, following):
            out_base[np.uint64(to)], out_target[np.uint64(to)] = out_base[np.uint64(k)], out_target[np.uint64(k)]
            to += 1
    return to


@compiled(INT64(
    INT64, INT64, FLOAT64, READ_INT32_2D, READ_INT64, READ_INT64, INT64, READ_INT64, READ_INT32, READ_INT64,
    BOOL, WRITE_INT64, INT64, WRITE_INT32, WRITE_INT32,
))  # fmt: skip
def fill_near_pairs(
    lo: int,
    hi: int,
    confidence: float,
    ranges: NDArray[np.int32],
    base_min: IntArray,
    base_max: IntArray,
    first_row: int,
    axis: IntArray,
    position: Positions,
    target_min: IntArray,
    in_order: bool,
    state: IntArray,
    written: int,
    out_base: NDArray[np.int32],
    out_target: NDArray[np.int32],
) -> int:
    """Write the pairs of base rows, the first of which is number `first_row`, after `written` others.

    `axis`, `position`: the sum of both times, and the row, of targets by key and midpoint; `target_min` is by row.
    The pairs and their order are those of `fill_pairs`, and so is what it adds to the counts of `state`. Returns how
    many pairs there are then; with `state` unchanged NO_ROOM if there may be none, MANY if a row has many candidates.
    `in_order`: a row's targets are near those of the last one of its key, in the cache. Otherwise their positions are
    read together, in a loop without branches, so that many reads are under way.
    """
    room = len(out_base) - RUN
    doubts, doubtful = np.empty((2 * PAIRS_AT_ONCE + 2, 3), np.int64), 0  # slot, base row, target
    sure = passed = 0
    first = written  # not `in_order`: of the pairs that have indices of targets, not positions
    for row in range(len(ranges)):
        i = np.uint64(row)  # unsigned: numba omits the test for negative indices
        outer_lo, sure_lo, sure_hi, outer_hi = ranges[i, 0], ranges[i, 1], ranges[i, 2], ranges[i, 3]
        count = np.int64(outer_hi) - outer_lo
        passed += count
        sure += np.int64(sure_hi) - sure_lo
        if count > PAIRS_AT_ONCE:
            return MANY
        if written + count > room:
            return NO_ROOM
        all_sure = sure_lo == outer_lo and sure_hi == outer_hi
        if all_sure and count <= RUN and (not in_order or outer_lo + RUN <= len(position)):
            # What is written beyond the run is overwritten by the next one.
            slot, at = np.uint64(written), np.uint64(outer_lo)
            for j in range(RUN):
                out_base[slot + np.uint64(j)] = first_row + row
            if in_order:
                for j in range(RUN):
                    out_target[slot + np.uint64(j)] = position[at + np.uint64(j)]
            else:
                for j in range(RUN):
                    out_target[slot + np.uint64(j)] = outer_lo + j
            written += count
        else:
            for target in range(outer_lo, outer_hi):
                slot, d = np.uint64(written), np.uint64(doubtful)
                out_base[slot] = first_row + row
                out_target[slot] = position[np.uint64(target)] if in_order else target
                doubts[d, 0], doubts[d, 1], doubts[d, 2] = written, row, target
                doubtful += not sure_lo <= target < sure_hi
                written += 1
        if written - first > PAIRS_AT_ONCE or row == len(ranges) - 1:
            written = _decide(
                lo, hi, confidence, base_min, base_max, axis, position, target_min, doubts, doubtful, first, in_order,
                written, out_base, out_target,
            )  # fmt: skip
            doubtful, first = 0, written
    state[PASSED] += passed
    state[TAKEN] += sure
    state[PROBED] += passed - sure
    return written

"""Fills pairs with any probability above 0: two comparisons each, in place of the canonical kernel.

`overlaps`, and every confidence that no possible pair can miss, ask only whether the window reaches into the support.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.jit import (
    BOOL,
    INT32,
    INT64,
    READ_INT32,
    READ_INT32_2D,
    READ_INT64,
    WRITE_INT32,
    WRITE_INT64,
    compiled,
)
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.timing_join.pair_fill import PASSED, PROBED, TAKEN

_PAIRS = 2048  # their indices stay in the first-level cache


@compiled(BOOL(INT64, INT64, INT64, INT64, INT64, INT64), inline=True)
def is_possible(base_min: int, base_max: int, target_min: int, target_max: int, lo: int, hi: int) -> bool:
    """Whether `pair_probability` is above 0.

    Two instants may be apart by exactly an end of the window; an interval has to reach into it.

    >>> is_possible(0, 10, 15, 20, 0, 5), is_possible(0, 10, 14, 20, 0, 5), is_possible(0, 0, 5, 5, 0, 5)
    (False, True, True)
    """
    first, last = base_min + lo, base_max + hi
    inside = (target_min < last) & (target_max > first) & (lo < hi)
    instants = (base_min == base_max) & (target_min == target_max) & (first <= target_min) & (target_min <= last)
    return inside | instants


@compiled(INT64(
    INT64, INT64, INT64, INT64, INT32, READ_INT64, READ_INT64, INT32, INT32, WRITE_INT32, WRITE_INT32, INT64
), inline=True)  # fmt: skip
def _test(
    lo: int,
    hi: int,
    base_min: int,
    base_max: int,
    base_position: int,
    target_min: IntArray,
    target_max: IntArray,
    start: int,
    end: int,
    out_base: NDArray[np.int32],
    out_target: NDArray[np.int32],
    written: int,
) -> int:
    """Write the indices of the possible targets among `start..end`; returns the new `written`."""
    if base_min == base_max or lo == hi:
        for j in range(np.uint64(start), np.uint64(end)):
            slot = np.uint64(written)
            out_base[slot] = base_position
            out_target[slot] = j
            written += is_possible(base_min, base_max, target_min[j], target_max[j], lo, hi)
        return written
    first, last = base_min + lo, base_max + hi
    for j in range(np.uint64(start), np.uint64(end)):
        # Write first, then count: no branch that could be mispredicted.
        slot = np.uint64(written)
        out_base[slot] = base_position
        out_target[slot] = j
        written += (target_min[j] < last) & (target_max[j] > first)
    return written


@compiled(INT64(
    INT64, INT64, READ_INT64, READ_INT64, READ_INT32, READ_INT64, READ_INT64, READ_INT32, READ_INT32_2D, WRITE_INT64,
    WRITE_INT32, WRITE_INT32,
))  # fmt: skip
def fill_possible_pairs(
    lo: int,
    hi: int,
    base_min: IntArray,
    base_max: IntArray,
    base_position: NDArray[np.int32],
    target_min: IntArray,
    target_max: IntArray,
    target_position: NDArray[np.int32],
    ranges: NDArray[np.int32],
    state: IntArray,
    out_base: NDArray[np.int32],
    out_target: NDArray[np.int32],
) -> int:
    """Write the pairs as `fill_pairs` does with the least confidence, in its order, into room for every candidate.

    Returns how many there are; adds to the counts of `state`.
    """
    written = exchanged = sure = passed = 0
    for row in range(len(ranges)):
        i = np.uint64(row)  # unsigned: numba omits the test for negative indices
        outer_lo, sure_lo, sure_hi, outer_hi = ranges[i, 0], ranges[i, 1], ranges[i, 2], ranges[i, 3]
        low, high, position = base_min[i], base_max[i], base_position[i]
        written = _test(
            lo, hi, low, high, position, target_min, target_max, outer_lo, sure_lo, out_base, out_target, written
        )  # fmt: skip
        count, slot = np.int64(sure_hi) - sure_lo, np.uint64(written)
        for k in range(np.uint64(count)):
            out_base[slot + k] = position
        for k in range(np.uint64(count)):
            out_target[slot + k] = np.uint64(sure_lo) + k
        written += count
        written = _test(
            lo, hi, low, high, position, target_min, target_max, sure_hi, outer_hi, out_base, out_target, written
        )  # fmt: skip
        sure += count
        passed += np.int64(outer_hi) - outer_lo
        if written - exchanged >= _PAIRS or row == len(ranges) - 1:
            # Positions lie all over memory: a loop without branches has many reads under way.
            for at in range(np.uint64(exchanged), np.uint64(written)):
                out_target[at] = target_position[np.uint32(out_target[at])]
            exchanged = written
    state[PASSED] += passed
    state[TAKEN] += sure
    state[PROBED] += passed - sure
    return written

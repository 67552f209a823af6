"""Fills pairs of rows that have few candidates each: most of the time would be waiting for memory.

The rows' candidates lie all over the ordered targets. `pair_fill.fill_pairs` reads the position of each target while
the next row depends on data that cannot be predicted, so that the CPU waits for one after the other. Here the indices
of some hundred rows are written first, and then exchanged for positions in a loop without branches, which has many
reads under way.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.jit import (
    FLOAT64,
    INT64,
    READ_INT32,
    READ_INT32_2D,
    READ_INT64,
    WRITE_INT32,
    WRITE_INT64,
    compiled,
)
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.probability.satisfaction_probability import pair_probability
from whenabouts.core.timing_join.pair_fill import PASSED, PROBED, RUN, TAKEN

MOST_CANDIDATES = 8
"""With more candidates a row than this on average, `fill_pairs` is faster: it copies long runs."""

_ROWS = 512  # their indices stay in the first-level cache


@compiled(INT64(
    INT64, INT64, FLOAT64, READ_INT64, READ_INT64, READ_INT32, READ_INT64, READ_INT64, READ_INT32, READ_INT32_2D,
    WRITE_INT64, WRITE_INT32, WRITE_INT32,
))  # fmt: skip
def fill_short_rows(
    lo: int,
    hi: int,
    confidence: float,
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
    """Write all pairs of intervals as `fill_pairs` does, in its order, into outputs with room for every candidate.

    Returns how many there are; adds to the counts of `state`.
    """
    rows, capacity, written, sure, passed = len(ranges), len(out_base), 0, 0, 0
    for begin in range(0, rows, _ROWS):
        first = written
        for row in range(begin, min(begin + _ROWS, rows)):
            i = np.uint64(row)  # unsigned: numba omits the test for negative indices
            outer_lo, sure_lo, sure_hi, outer_hi = ranges[i, 0], ranges[i, 1], ranges[i, 2], ranges[i, 3]
            count = np.int64(outer_hi) - outer_lo
            passed += count
            sure += np.int64(sure_hi) - sure_lo
            if sure_lo == outer_lo and sure_hi == outer_hi and count <= RUN and written + RUN <= capacity:
                # What is written beyond the run is overwritten by the next one.
                slot = np.uint64(written)
                for k in range(RUN):
                    out_base[slot + np.uint64(k)] = base_position[i]
                for k in range(RUN):
                    out_target[slot + np.uint64(k)] = outer_lo + k
                written += count
                continue
            for target in range(outer_lo, outer_hi):
                slot, j = np.uint64(written), np.uint64(target)
                out_base[slot] = base_position[i]
                out_target[slot] = target
                written += (
                    sure_lo <= target < sure_hi
                    or pair_probability(base_min[i], base_max[i], target_min[j], target_max[j], lo, hi) >= confidence
                )
        for at in range(first, written):
            slot = np.uint64(at)
            out_target[slot] = target_position[np.uint32(out_target[slot])]
    state[PASSED] += passed
    state[TAKEN] += sure
    state[PROBED] += passed - sure
    return written

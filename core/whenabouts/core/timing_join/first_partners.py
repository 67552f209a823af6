"""One partner for each base row that has any: what semi and anti modes ask for, without a list of all pairs.

A row whose sure range holds a target is decided by that alone. Only rows without one look at their candidates, and
only until the first that matches: from the middle outwards, since that is where the probability is greatest.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.jit import (
    FLOAT64,
    INT64,
    READ_INT32_2D,
    READ_INT64,
    WRITE_INT32,
    WRITE_INT64,
    compiled,
)
from whenabouts.core.probability.histogram_probability import UNIFORM, shape_probability
from whenabouts.core.probability.satisfaction_probability import pair_probability
from whenabouts.core.timing_join.pair_fill import KINDS, PASSED, PROBED, TAKEN, Kinds


@compiled((
    INT64, INT64, FLOAT64, READ_INT64, READ_INT64, READ_INT64, READ_INT64, READ_INT32_2D, KINDS, WRITE_INT64,
    WRITE_INT32,
))  # fmt: skip
def find_first_partners(
    lo: int,
    hi: int,
    confidence: float,
    base_min: NDArray[np.int64],
    base_max: NDArray[np.int64],
    target_min: NDArray[np.int64],
    target_max: NDArray[np.int64],
    ranges: NDArray[np.int32],
    kinds: Kinds,
    counts: NDArray[np.int64],
    out: NDArray[np.int32],
) -> None:
    """A matching target of each base row, as an index into the ordered targets, or -1 where there is none.

    Arguments as for `timing_join.pair_fill.fill_pairs`. Of `counts` it adds to `TAKEN` (rows
    decided by their sure range), `PROBED` (kernel calls) and `PASSED` (targets that were looked at). O(1) a row
    that has a sure partner, else its candidates up to the first match.
    """
    thresholds, target_kind = kinds.table, kinds.target
    for i in range(ranges.shape[0]):
        first, sure, sure_end, end = ranges[i, 0], ranges[i, 1], ranges[i, 2], ranges[i, 3]
        out[i] = -1
        if sure < sure_end:
            out[i] = sure
            counts[TAKEN] += 1
            counts[PASSED] += 1
            continue
        middle = first + (end - first) // 2
        for k in range(end - first):
            j = middle + k // 2 if k % 2 == 0 else middle - (k + 1) // 2
            counts[PASSED] += 1
            if thresholds.size:
                kind, other = kinds.base[i], target_kind[j]
                delta = target_max[j] - base_max[i]
                if delta < thresholds[kind, other, 0] or delta > thresholds[kind, other, 3]:
                    continue
                if delta >= thresholds[kind, other, 1] and delta <= thresholds[kind, other, 2]:
                    out[i] = j
                    break
                base_shape = kind if kinds.base_shapes.start.size > 1 else UNIFORM
                target_shape = other if kinds.target_shapes.start.size > 1 else UNIFORM
                if kinds.base_is_right:  # the kernel wants left and right, or its sums would come in another order
                    p = shape_probability(
                        target_min[j], target_max[j], target_shape, base_min[i], base_max[i], base_shape,
                        kinds.target_shapes, kinds.base_shapes, -hi, -lo,
                    )  # fmt: skip
                else:
                    p = shape_probability(
                        base_min[i], base_max[i], base_shape, target_min[j], target_max[j], target_shape,
                        kinds.base_shapes, kinds.target_shapes, lo, hi,
                    )  # fmt: skip
            else:
                p = pair_probability(base_min[i], base_max[i], target_min[j], target_max[j], lo, hi)
            counts[PROBED] += 1
            if p >= confidence:
                out[i] = j
                break

"""Finds one partner for each base row that has any, for semi and anti modes, without listing all pairs.

A row with a target in its sure range has a partner without further tests. For other rows, candidates are tested until
the first match, from the middle of the range outwards, since the probability is greatest there.
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
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.probability.satisfaction_probability import pair_probability
from whenabouts.core.timing_join.pair_decision import (
    KIND_THRESHOLDS,
    OPEN,
    KindThresholds,
    has_templates,
    judge,
    probability_of_kinds,
)
from whenabouts.core.timing_join.pair_fill import PASSED, PROBED, TAKEN


@compiled((
    INT64, INT64, FLOAT64, READ_INT64, READ_INT64, READ_INT64, READ_INT64, READ_INT32_2D, KIND_THRESHOLDS, WRITE_INT64,
    WRITE_INT32,
))  # fmt: skip
def find_first_partners(
    lo: int,
    hi: int,
    confidence: float,
    base_min: IntArray,
    base_max: IntArray,
    target_min: IntArray,
    target_max: IntArray,
    ranges: NDArray[np.int32],
    kinds: KindThresholds,
    counts: IntArray,
    out: NDArray[np.int32],
) -> None:
    """Write a matching target of each base row, as an index into the ordered targets, or -1 if there is none.

    Arguments as for `timing_join.pair_fill.fill_pairs`. Of `counts` it adds to `TAKEN` (rows decided by their sure
    range), `PROBED` (kernel calls) and `PASSED` (targets tested). O(1) for a row with a sure partner, otherwise the
    candidates up to the first match.
    """
    # Read from the tuple once: numba counts references at each access.
    thresholds, kind, target_kind, templates = kinds.table, kinds.base, kinds.target, has_templates(kinds)
    with_thresholds = thresholds.size > 0
    for i in range(ranges.shape[0]):
        first, sure, sure_end, end = ranges[i, 0], ranges[i, 1], ranges[i, 2], ranges[i, 3]
        out[i] = -1
        if sure < sure_end:
            out[i] = sure
            counts[TAKEN] += 1
            counts[PASSED] += 1
            continue
        base_kind = kind[i] if with_thresholds else 0
        middle = first + (end - first) // 2
        for k in range(end - first):
            j = middle + k // 2 if k % 2 == 0 else middle - (k + 1) // 2
            counts[PASSED] += 1
            if with_thresholds:
                p, probed = judge(
                    lo, hi, base_min[i], base_max[i], base_kind, target_min[j], target_max[j], target_kind[j],
                    thresholds, templates,
                )  # fmt: skip
                if p == OPEN:
                    p = probability_of_kinds(
                        lo, hi, base_min[i], base_max[i], base_kind, target_min[j], target_max[j], target_kind[j], kinds
                    )
            else:
                p, probed = pair_probability(base_min[i], base_max[i], target_min[j], target_max[j], lo, hi), True
            counts[PROBED] += probed
            if p >= confidence:
                out[i] = j
                break

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
from whenabouts.core.probability.satisfaction_probability import pair_probability
from whenabouts.core.timing_join.pair_decision import (
    KINDS,
    OPEN,
    Kinds,
    has_templates,
    judge,
    probability_of_kinds,
)
from whenabouts.core.timing_join.pair_fill import PASSED, PROBED, TAKEN


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
    # Out of the tuple once: taking an array out of it counts references.
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

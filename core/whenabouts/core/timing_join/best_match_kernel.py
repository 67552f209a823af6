"""The kernel of `timing_join.best_match_order`: one pass over pairs that keeps each row's best candidate."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.jit import (
    INT64,
    READ_FLOAT64,
    READ_INT32,
    READ_INT64,
    WRITE_FLOAT64,
    WRITE_INT64,
    compiled,
)
from whenabouts.core.arrays.typing import FloatArray, IntArray


@compiled(
    INT64(
        READ_INT32, READ_INT32, READ_FLOAT64, READ_INT64, READ_INT64, READ_INT64, READ_INT64, WRITE_FLOAT64, WRITE_INT64
    )
)
def keep_best(
    chooser: NDArray[np.int32],
    candidate: NDArray[np.int32],
    probability: FloatArray,
    t_max: IntArray,
    t_min: IntArray,
    rank: IntArray,
    middle: IntArray,
    best_probability: FloatArray,
    best: IntArray,
) -> int:
    """Offer `candidate[i]` to row `chooser[i]`, updating `best` (candidate indices, -1: none) and `best_probability`.

    Of equally probable candidates the one with `t_min + t_max` nearest to the row's `middle` is kept (if `middle` is
    not empty), then the one with the earlier `t_max`, the earlier `t_min`, the lesser `rank`. If `rank` is empty, it
    stops at the first pair that needs one. Returns how many pairs it has taken in.

    >>> best, p = np.array([-1]), np.zeros(1)
    >>> t, all_times = np.array([7, 5]), np.empty(0, np.int64)
    >>> pairs = np.zeros(2, np.int32), np.arange(2, dtype=np.int32), np.array([0.5, 0.5])
    >>> keep_best(*pairs, t, t, t, all_times, p, best), best
    (2, array([1]))
    >>> keep_best(*pairs, t, t, t, np.array([13]), p, best), best
    (2, array([0]))
    >>> same = np.array([5, 5])
    >>> keep_best(*pairs, same, same, np.empty(0, np.int64), all_times, p, best), best
    (1, array([0]))
    """
    for i in range(chooser.size):
        row, new, old = chooser[i], np.int64(candidate[i]), best[chooser[i]]
        if old == new or (old >= 0 and probability[i] < best_probability[row]):
            continue
        if old >= 0 and probability[i] == best_probability[row]:
            if middle.size:
                nearer = abs(t_min[new] + t_max[new] - middle[row]) - abs(t_min[old] + t_max[old] - middle[row])
            else:
                nearer = np.int64(0)
            if nearer != 0:
                better = nearer < 0
            elif t_max[new] != t_max[old]:
                better = t_max[new] < t_max[old]
            elif t_min[new] != t_min[old]:
                better = t_min[new] < t_min[old]
            elif not rank.size:
                return i
            else:
                better = rank[new] < rank[old]
            if not better:
                continue
        best_probability[row] = probability[i]
        best[row] = new
    return chooser.size

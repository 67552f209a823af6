"""Which of the right rows that may prevail come out: the most probable one, or all that reach the confidence."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.jit import (
    FLOAT64,
    INT64,
    READ_FLOAT64,
    READ_INT32,
    READ_INT64,
    WRITE_FLOAT64,
    WRITE_INT32,
    compiled,
)
from whenabouts.core.arrays.typing import FloatArray, IntArray


@compiled(
    (
        READ_INT64, READ_INT32, READ_FLOAT64, READ_INT64, READ_INT64, READ_INT64, INT64, FLOAT64,
        WRITE_INT32, WRITE_FLOAT64,
    )
)  # fmt: skip
def most_probable(
    offsets: IntArray,
    rows: NDArray[np.int32],
    probability: FloatArray,
    first: IntArray,
    second: IntArray,
    rank: IntArray,
    sign: int,
    confidence: float,
    best: NDArray[np.int32],
    best_probability: FloatArray,
) -> None:
    """Of the candidates `rows[offsets[i] : offsets[i + 1]]` of each row i the one of the greatest probability.

    Candidates below the confidence do not count; `best` is -1 if none is left. Equally probable ones are compared by
    `first`, `second` and `rank`: the greatest wins, with `sign` -1 the least.

    >>> best, p = np.zeros(1, np.int32), np.zeros(1)
    >>> rows, ends = np.array([0, 1, 2], np.int32), np.array([9, 7, 8])
    >>> most_probable(np.array([0, 3]), rows, np.array([0.2, 0.4, 0.4]), ends, ends, ends, 1, 0.1, best, p)
    >>> best.tolist(), p.tolist()
    ([2], [0.4])
    """
    for i in range(best.size):
        found, greatest = np.int32(-1), 0.0
        for c in range(offsets[i], offsets[i + 1]):
            p, row = probability[c], rows[c]
            if p < confidence or p < greatest:
                continue
            if found >= 0 and p == greatest:
                if first[row] != first[found]:
                    better = sign * first[row] > sign * first[found]
                elif second[row] != second[found]:
                    better = sign * second[row] > sign * second[found]
                else:
                    better = sign * rank[row] > sign * rank[found]
                if not better:
                    continue
            found, greatest = row, p
        best[i] = found
        best_probability[i] = greatest

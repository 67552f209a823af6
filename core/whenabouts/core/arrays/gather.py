"""Gathers the values of a column by index: this writes most of the bytes of a join's output."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.jit import READ_INT32, READ_INT64, WRITE_INT64, compiled
from whenabouts.core.arrays.typing import IntArray


@compiled((READ_INT64, READ_INT32, WRITE_INT64))
def gather(values: IntArray, at: NDArray[np.int32], out: IntArray) -> None:
    """`out[i] = values[at[i]]`; the indices must be valid, they are not checked.

    >>> out = np.empty(3, np.int64)
    >>> gather(np.array([7, 8]), np.array([1, 0, 1], np.int32), out)
    >>> out.tolist()
    [8, 7, 8]
    """
    for i in range(at.size):
        out[i] = values[np.uint32(at[i])]  # unsigned: numba omits the test for negative indices

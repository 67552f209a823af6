"""Gathers the values of a column by index: this writes most of the bytes of a join's output."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.jit import INT64, READ_BOOL, READ_INT32, READ_INT64, WRITE_INT32, WRITE_INT64, compiled
from whenabouts.core.arrays.large_arrays import large_array
from whenabouts.core.arrays.past_caches import put
from whenabouts.core.arrays.prefetch import prefetch
from whenabouts.core.arrays.typing import BoolArray, IntArray, Positions

_AHEAD = 128
"""So many rows before it is written, a value is requested."""


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


@compiled((READ_INT64, READ_INT32, WRITE_INT64))
def gather_output(values: IntArray, at: NDArray[np.int32], out: IntArray) -> None:
    """As `gather`, for output of a megabyte or more, which goes past the caches (decision 0035).

    >>> out = np.empty(3, np.int64)
    >>> gather_output(np.array([7, 8]), np.array([1, 0, 1], np.int32), out)
    >>> out.tolist()
    [8, 7, 8]
    """
    last = at.size - 1
    for i in range(at.size):
        prefetch(values, np.uint64(np.uint32(at[np.uint64(min(i + _AHEAD, last))])))
        put(out, np.uint64(i), values[np.uint32(at[np.uint64(i)])])


def gathered(values: IntArray, at: Positions) -> IntArray:
    """`values[at]`; the indices must be valid, they are not checked.

    >>> gathered(np.array([7, 8]), np.array([1, 0, 1], np.int32)).tolist()
    [8, 7, 8]
    """
    out = large_array(len(at), np.int64)
    gather(values, at, out)
    return out


@compiled(INT64(READ_BOOL, WRITE_INT32))
def positions(chosen: BoolArray, out: Positions) -> Any:
    """The indices of true values, of which it returns the number; `out` has room for all and one more.

    It branches on no value: `np.flatnonzero` takes four times as long where these cannot be predicted.

    >>> out = np.empty(4, np.int32); out[: positions(np.array([True, False, True]), out)].tolist()
    [0, 2]
    """
    count = 0
    for i in range(chosen.size):
        out[count] = i
        count += int(chosen[i])
    return count

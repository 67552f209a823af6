"""Memory that the integrals of many left rows share: allocating an array costs as much as a small integral."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from whenabouts.core.arrays.jit import INT64, WRITE_FLOAT64, WRITE_INT64, compiled
from whenabouts.core.arrays.typing import FloatArray, IntArray

_FEW = 48


class Workspace(NamedTuple):
    """Arrays to cut from, in order. What they hold has no meaning."""

    ints: IntArray
    floats: FloatArray


WORKSPACE = types.NamedTuple((WRITE_INT64, WRITE_FLOAT64), Workspace)  # type: ignore[no-untyped-call]  # numba ships no types


@compiled(INT64(WRITE_INT64), inline=True)
def sort_distinct(values: IntArray) -> int:
    """Sort in place, the distinct values first; returns how many these are."""
    if values.size <= _FEW:
        for i in range(1, values.size):
            value = values[i]
            j = i
            while j > 0 and values[j - 1] > value:
                values[j] = values[j - 1]
                j -= 1
            values[j] = value
    else:
        values.sort()
    n = min(values.size, 1)
    for i in range(1, values.size):
        if values[i] != values[n - 1]:
            values[n] = values[i]
            n += 1
    return n


@compiled(WORKSPACE(INT64, INT64))
def workspace(ints: int, floats: int) -> Workspace:
    """New memory."""
    return Workspace(np.empty(ints, np.int64), np.empty(floats))

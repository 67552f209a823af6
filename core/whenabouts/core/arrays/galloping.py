"""Kernels that search sorted values, from where a value is expected to be; they are inlined where they are called."""

from __future__ import annotations

import numpy as np

from whenabouts.core.arrays.jit import INT64, READ_INT64, compiled
from whenabouts.core.arrays.typing import IntArray

NEAR = 8
"""How many values a search counts at once before it gallops."""


@compiled(INT64(READ_INT64, INT64, INT64, INT64), inline=True)
def first_at_least(axis: IntArray, first: int, last: int, value: int) -> int:
    """The first index in `[first, last]` from which on `axis >= value`."""
    while first < last:
        middle = (first + last) >> 1
        if axis[middle] < value:
            first = middle + 1
        else:
            last = middle
    return first


@compiled(INT64(READ_INT64, INT64, INT64, INT64, INT64), inline=True)
def first_at_least_near(axis: IntArray, first: int, last: int, start: int, value: int) -> int:
    """As `first_at_least`, in doubling steps from `start`: cheap if the result is near.

    It searches in both directions: if lengths vary, the bounds of successive rows are not monotone, even for sorted
    rows.
    """
    # The usual case has no branch that depends on the data: count the smaller ones of a few values around the start.
    low = max(start - NEAR // 2, first)
    if low + NEAR < last and axis[low] < value and axis[low + NEAR] >= value:
        smaller = 0
        for k in range(NEAR):  # a constant number, so that it unrolls
            smaller += axis[np.uint64(low + k)] < value
        return low + smaller
    step = 1
    if start < last and axis[start] < value:
        first = start + 1
        while start + step < last and axis[start + step] < value:
            first = start + step + 1
            step *= 2
        return first_at_least(axis, first, min(last, start + step), value)
    last = start
    while start - step >= first and axis[start - step] >= value:
        last = start - step
        step *= 2
    return first_at_least(axis, max(first, start - step), last, value)

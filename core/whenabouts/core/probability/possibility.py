"""Pairs of exact times outside a window that a window wider by a microsecond lets in (`Condition.decided_by`)."""

from __future__ import annotations

from whenabouts.core.arrays.typing import BoolArray, IntArray, Positions

Ends = tuple[IntArray, IntArray]
"""`t_min` and `t_max` of the rows of a side."""


def instants_outside(left: Ends, right: Ends, left_at: Positions, right_at: Positions, lo: int, hi: int) -> BoolArray:
    """Which pairs (left_at[i], right_at[i]) are of two exact times with a difference outside `[lo, hi]`. O(pairs).

    >>> import numpy as np
    >>> at, zero = np.zeros(2, np.int32), np.array([0])
    >>> times = np.array([3, 3]), np.array([3, 4])
    >>> instants_outside((zero, zero), times, at, np.arange(2, dtype=np.int32), -2, 2).tolist()
    [True, False]
    """
    one, other = left[1][left_at], right[1][right_at]
    exact = (left[0][left_at] == one) & (right[0][right_at] == other)
    outside: BoolArray = exact & ((other - one < lo) | (other - one > hi))
    return outside

"""The canonical kernel: the probability that the difference of two uncertain times lies in a window.

Every strategy, engine and batch size decides with this kernel whether a pair matches, so the sets of pairs are
identical, ties included. It takes points and uniform intervals (`t_min == t_max` is a point).

Arithmetic
----------
With `D = X2 - X1` and the lengths `l1, l2` (`m` the lesser, `M` the greater, `T = l1 + l2`), the density of `D` is a
symmetric trapezoid on `[s0, s0 + T]`, `s0 = min2 - max1`. In offsets from `s0` it rises on `[0, m]`, is constant on
`[m, M]` and falls on `[M, T]`. Let `[u, v]` be the window clipped to the support, in offsets. Then::

    2 l1 l2 P = ramp1 + flat + ramp3
    ramp1 = (v1 - u1)(u1 + v1)      u1, v1 = u, v clipped to [0, m]
    flat  = 2 m (v2 - u2)           u2, v2 = u, v clipped to [m, M]
    ramp3 = (u3 - v3)(u3 + v3)      u3, v3 = distances of u, v, clipped to [M, T], from the end T

All factors are exact integers: absolute times never become floats, and nearly equal floats are never subtracted (the
textbook form with four squared ramps loses up to 1e-4 that way).

Error: factors below 2^53 convert exactly. A ramp is rounded in its product, in the sum of the ramps, and in the sum
with the flat part; the denominator is rounded once (the doubling is exact), the quotient once. All terms are
non-negative, so the relative errors do not add but combine as an average: no path has more than five roundings of
`u = 2^-53`, and `|kernel - P| <= (5u + 6u^2) P`. Lengths of 2^53 us (285 years) or more add up to four roundings in
the conversions: 9u.

Swapping the events and negating the window exchanges ramp1 and ramp3. These are added to each other first, and float
addition commutes, so the swapped call returns the same bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.jit import FLOAT64, INT64, READ_INT32, READ_INT64, WRITE_FLOAT64, compiled
from whenabouts.core.arrays.large_arrays import large_array
from whenabouts.core.arrays.threads import cuts, each
from whenabouts.core.arrays.typing import FloatArray, IntArray

KERNEL_ERROR = 2.0**-49
"""The guard band `e` around a confidence, 16u.

A bound found with the kernel has the kernel's error (at most 5u, or 9u for lengths above 285 years), and the kernel's
value for a pair that the bound decides has its own error (at most 5u). As 9u + 5u < 16u, a value `>= c + e` at a bound
proves that the kernel accepts every pair inside it, and a value `< c - e` that it rejects every pair outside."""

_LEAST = 5e-324  # smallest positive double
_GREATEST = 1.0 - 2.0**-53  # largest double under 1
_GATHERED = 512  # how many pairs' times are gathered at a time: they stay in the first-level cache


@compiled(FLOAT64(INT64, INT64, INT64, INT64, INT64, INT64))
def pair_probability(left_min: int, left_max: int, right_min: int, right_max: int, lo: int, hi: int) -> float:
    """P(lo <= X_right - X_left <= hi) of one pair, for other kernels to call; all arguments are int64 microseconds.

    >>> pair_probability(0, 10, 5, 15, -5, 5)
    0.5
    """
    left_length = left_max - left_min
    right_length = right_max - right_min
    support = left_length + right_length
    start = right_min - left_max
    u = max(lo - start, 0)
    v = min(hi - start, support)
    if u == 0 and v == support:
        return 1.0
    if v <= u:
        return 0.0
    short = min(left_length, right_length)
    long = max(left_length, right_length)
    if short == 0:
        p = float(v - u) / float(long)
    else:
        u1, v1 = min(u, short), min(v, short)
        u2, v2 = max(min(u, long), short), max(min(v, long), short)
        u3, v3 = support - max(u, long), support - max(v, long)
        ramps = float(v1 - u1) * float(u1 + v1) + float(u3 - v3) * float(u3 + v3)
        flat = 2.0 * float(short) * float(v2 - u2)
        p = (ramps + flat) / (2.0 * float(left_length) * float(right_length))
    # Only certain pairs may have probability 1, and only impossible ones 0: confidence 1 relies on it.
    return min(max(p, _LEAST), _GREATEST)


@compiled((READ_INT64, READ_INT64, READ_INT64, READ_INT64, INT64, INT64, WRITE_FLOAT64))
def _fill_probabilities(
    left_min: IntArray,
    left_max: IntArray,
    right_min: IntArray,
    right_max: IntArray,
    lo: int,
    hi: int,
    out: FloatArray,
) -> None:
    for i in range(out.size):
        out[i] = pair_probability(left_min[i], left_max[i], right_min[i], right_max[i], lo, hi)


def _int64(values: IntArray) -> IntArray:
    return np.ascontiguousarray(values, dtype=np.int64)


def satisfaction_probability(
    left_min: IntArray,
    left_max: IntArray,
    right_min: IntArray,
    right_max: IntArray,
    lo: int,
    hi: int,
) -> FloatArray:
    """P(lo <= X_right - X_left <= hi) of each pair of rows (ITC Theorem 1, extended to both ends and to points).

    The arrays are int64 microseconds of equal length n; `t_min <= t_max` and `|t| <= FARTHEST_US` are preconditions.
    `lo` and `hi` are inclusive; `-UNBOUNDED_US` and `UNBOUNDED_US` leave an end open. Returns float64[n] with a
    relative error of at most `5u + 6u^2`, u = 2^-53; 1.0 and 0.0 only for certain and impossible pairs. O(n), about
    5 ns a pair. Raises ValueError if the arrays differ in length.

    >>> zero, ten = np.array([0, 0]), np.array([10, 0])
    >>> satisfaction_probability(zero, ten, np.array([5, 4]), np.array([15, 4]), -5, 5).tolist()
    [0.5, 1.0]
    """
    a, b, c, d = arrays = (_int64(left_min), _int64(left_max), _int64(right_min), _int64(right_max))
    shapes = {array.shape for array in arrays}
    if len(shapes) != 1 or a.ndim != 1:
        raise ValueError(f"the four time arrays must be one-dimensional and equally long, got shapes {shapes}")
    out = large_array(a.size, np.float64)
    each(lambda at: _fill_probabilities(a[at], b[at], c[at], d[at], lo, hi, out[at]), cuts(out.size))
    return out


@compiled((READ_INT64, READ_INT64, READ_INT64, READ_INT64, READ_INT32, READ_INT32, INT64, INT64, WRITE_FLOAT64))
def fill_probabilities_at(
    left_min: IntArray,
    left_max: IntArray,
    right_min: IntArray,
    right_max: IntArray,
    left_at: NDArray[np.int32],
    right_at: NDArray[np.int32],
    lo: int,
    hi: int,
    out: FloatArray,
) -> None:
    """Kernel of `probabilities_at`, for other kernels to call."""
    # Times are gathered first: loops without branches have many reads of memory under way, the formula few.
    size = min(out.size, _GATHERED)
    left_first, left_last = np.empty(size, np.int64), np.empty(size, np.int64)
    right_first, right_last = np.empty(size, np.int64), np.empty(size, np.int64)
    for begin in range(0, out.size, _GATHERED):
        count = min(_GATHERED, out.size - begin)
        for i in range(count):
            left = np.uint32(left_at[begin + i])  # unsigned: no check for negative indices
            left_first[i], left_last[i] = left_min[left], left_max[left]
        for i in range(count):
            right = np.uint32(right_at[begin + i])
            right_first[i], right_last[i] = right_min[right], right_max[right]
        for i in range(count):
            out[begin + i] = pair_probability(left_first[i], left_last[i], right_first[i], right_last[i], lo, hi)


def probabilities_at(
    left_min: IntArray,
    left_max: IntArray,
    right_min: IntArray,
    right_max: IntArray,
    left_at: NDArray[np.int32],
    right_at: NDArray[np.int32],
    lo: int,
    hi: int,
) -> FloatArray:
    """`satisfaction_probability` of the pairs (left_at[i], right_at[i]), without gathering their times first.

    `left_at` and `right_at` are int32 row positions of equal length, each a valid index into the time arrays.

    >>> zero, ten = np.array([0, 0]), np.array([10, 0])
    >>> at = np.array([0], np.int32)
    >>> probabilities_at(zero, ten, np.array([5, 4]), np.array([15, 4]), at, at, -5, 5).tolist()
    [0.5]
    """
    out = large_array(left_at.size, np.float64)
    arrays = (_int64(left_min), _int64(left_max), _int64(right_min), _int64(right_max))
    at = (np.ascontiguousarray(left_at, np.int32), np.ascontiguousarray(right_at, np.int32))
    each(lambda part: fill_probabilities_at(*arrays, at[0][part], at[1][part], lo, hi, out[part]), cuts(out.size))
    return out


def satisfaction_probability_numpy(
    left_min: IntArray,
    left_max: IntArray,
    right_min: IntArray,
    right_max: IntArray,
    lo: int,
    hi: int,
) -> FloatArray:
    """The same as `satisfaction_probability`, bit for bit, in plain numpy: about ten times slower, no compiled code.

    For code that cannot call a compiled kernel, such as a thread that Python did not start. Arrays broadcast.

    >>> satisfaction_probability_numpy(np.array([0]), np.array([10]), np.array([5]), np.array([15]), -5, 5).tolist()
    [0.5]
    """
    # Line by line the scalar kernel above; tests require the same bits of both.
    left_length = np.asarray(left_max, np.int64) - np.asarray(left_min, np.int64)
    right_length = np.asarray(right_max, np.int64) - np.asarray(right_min, np.int64)
    support = left_length + right_length
    start = np.asarray(right_min, np.int64) - np.asarray(left_max, np.int64)
    u = np.maximum(lo - start, 0)
    v = np.minimum(hi - start, support)
    short = np.minimum(left_length, right_length)
    long = np.maximum(left_length, right_length)
    u1, v1 = np.minimum(u, short), np.minimum(v, short)
    u2, v2 = np.maximum(np.minimum(u, long), short), np.maximum(np.minimum(v, long), short)
    u3, v3 = support - np.maximum(u, long), support - np.maximum(v, long)
    ramps = _product(v1 - u1, u1 + v1) + _product(u3 - v3, u3 + v3)
    flat = 2.0 * _product(short, v2 - u2)
    with np.errstate(divide="ignore", invalid="ignore"):  # 0/0 for points, replaced below
        of_intervals = (ramps + flat) / (2.0 * _product(left_length, right_length))
        of_a_point = (v - u).astype(np.float64) / long.astype(np.float64)
    p = np.clip(np.where(short == 0, of_a_point, of_intervals), _LEAST, _GREATEST)
    p = np.where(v <= u, 0.0, p)
    return np.where((u == 0) & (v == support), 1.0, p)


def _product(x: IntArray, y: IntArray) -> FloatArray:
    return x.astype(np.float64) * y.astype(np.float64)

"""Searches the ordered targets for the index ranges of each base row: bounds in time become ranges of indices."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.galloping import first_at_least, first_at_least_near
from whenabouts.core.arrays.jit import (
    BOOL,
    FOUR_INT64,
    INT64,
    READ_INT32,
    READ_INT32_2D,
    READ_INT64,
    READ_INT64_2D,
    WRITE_INT32_2D,
    WRITE_INT64_2D,
    compiled,
)
from whenabouts.core.arrays.prefetch import prefetch
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.times.limits import ALWAYS_US

_AHEAD = 8  # rows before its search, the place where a row's search starts is requested
_NEAR = 7  # how many values `_first_of_near` looks at


@compiled(FOUR_INT64(READ_INT64, READ_INT64))
def time_extremes(t_min: IntArray, t_max: IntArray) -> tuple[int, int, int, int]:
    """Least `t_min`, greatest `t_max`, least and greatest length; the arrays must not be empty."""
    first, last = t_min[0], t_max[0]
    shortest = longest = last - first
    for i in range(t_min.size):
        at = np.uint64(i)  # with a negative index, or numba's `zip`, the loop is not vectorised
        start, end = t_min[at], t_max[at]
        first, last = min(first, start), max(last, end)
        shortest, longest = min(shortest, end - start), max(longest, end - start)
    return first, last, shortest, longest


@compiled(INT64(READ_INT64, INT64, INT64, INT64), inline=True)
def _first_of_near(axis: IntArray, low: int, last: int, value: int) -> int:
    # The first index of `low : low + _NEAR` from which on `axis >= value`, or the one after them, but at most `last`.
    # No branch depends on the data.
    low += 4 * ((low + 3 < last) & (axis[np.uint64(low + 3)] < value))
    low += 2 * ((low + 1 < last) & (axis[np.uint64(low + 1)] < value))
    low += (low < last) & (axis[np.uint64(low)] < value)
    return low


@compiled((READ_INT64_2D, READ_INT64, READ_INT64, READ_INT64, BOOL, WRITE_INT64_2D, WRITE_INT32_2D))
def locate(
    bounds: IntArray,
    base_key: IntArray,
    axis: IntArray,
    target_starts: IntArray,
    gallop: bool,
    cursors: IntArray,
    out: NDArray[np.int32],
) -> None:
    """Indices of the four bounds (ends inclusive) among the targets of the same key, for each base row.

    Targets are grouped by key (`target_starts`) and sorted along `axis` within a key. With `gallop`, each search starts
    where the last one for this key ended, which is cheap if the rows of a key are nearly in time order. Otherwise each
    is a binary search over the key. `cursors[2, keys]`, initially `target_starts`, pass the ends of the last searches
    on to the next call. O(n) for rows nearly in order, otherwise O(n log m).
    """
    lower, upper = cursors[0], cursors[1]
    for i in range(bounds.shape[0]):
        k = base_key[i]
        if gallop and i + _AHEAD < bounds.shape[0] and base_key[i + _AHEAD] != k:
            soon = np.uint64(lower[base_key[i + _AHEAD]])
            prefetch(axis, soon)
            prefetch(axis, soon + np.uint64(8))
        first, last = target_starts[k], target_starts[k + 1]
        # An inclusive end is searched as the start of what follows; nothing follows ALWAYS_US.
        outer, sure, after_sure, after_outer = bounds[i, 0], bounds[i, 1], bounds[i, 2], bounds[i, 3]
        after_sure += after_sure < ALWAYS_US
        after_outer += after_outer < ALWAYS_US
        low = lower[k]
        # The sure range is inside the outer one, and close to its ends.
        if (
            gallop
            and low + _NEAR < axis.size
            and (low == first or axis[low - 1] < outer)
            and (low + _NEAR >= last or axis[low + _NEAR] >= max(outer, after_outer))
        ):
            lower[k] = outer_lo = _first_of_near(axis, low, last, outer)
            upper[k] = outer_hi = _first_of_near(axis, low, last, after_outer)
            outer_hi = max(outer_lo, outer_hi)
            sure_lo, sure_hi = outer_lo, outer_hi
            while sure_lo < outer_hi and axis[np.uint64(sure_lo)] < sure:
                sure_lo += 1
            while sure_hi > sure_lo and axis[np.uint64(sure_hi - 1)] >= after_sure:
                sure_hi -= 1
        elif gallop:
            lower[k] = outer_lo = first_at_least_near(axis, first, last, low, outer)
            upper[k] = outer_hi = first_at_least_near(axis, first, last, upper[k], after_outer)
            outer_hi = max(outer_lo, outer_hi)
            sure_lo = first_at_least_near(axis, outer_lo, outer_hi, outer_lo, sure)
            sure_hi = first_at_least_near(axis, sure_lo, outer_hi, outer_hi, after_sure)
        else:
            outer_lo = first_at_least(axis, first, last, outer)
            outer_hi = max(first_at_least(axis, first, last, after_outer), outer_lo)
            sure_lo = first_at_least(axis, outer_lo, outer_hi, sure)
            sure_hi = first_at_least(axis, sure_lo, outer_hi, after_sure)
        out[i, 0], out[i, 1], out[i, 2], out[i, 3] = outer_lo, sure_lo, sure_hi, outer_hi


@compiled((READ_INT32_2D, READ_INT32, WRITE_INT32_2D))
def scatter_rows(rows: NDArray[np.int32], index: NDArray[np.int32], out: NDArray[np.int32]) -> None:
    """`out[index[i]] = rows[i]` for rows of four."""
    for i in range(index.size):
        p = np.uint32(index[i])
        out[p, 0], out[p, 1], out[p, 2], out[p, 3] = rows[i, 0], rows[i, 1], rows[i, 2], rows[i, 3]


@compiled((READ_INT64, READ_INT64, WRITE_INT32_2D))
def probe_all(base_key: IntArray, target_starts: IntArray, out: NDArray[np.int32]) -> None:
    """The ranges of a strategy without bounds: every target of the key is probed."""
    for i in range(base_key.size):
        out[i, 0] = target_starts[base_key[i]]
        out[i, 1] = out[i, 2] = out[i, 3] = target_starts[base_key[i] + 1]

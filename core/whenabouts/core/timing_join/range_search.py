"""Searches the ordered targets for the index ranges of each base row: bounds in time become ranges of indices."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.galloping import NEAR, first_at_least, first_at_least_near
from whenabouts.core.arrays.jit import (
    BOOL,
    FOUR_INT64,
    READ_INT32,
    READ_INT32_2D,
    READ_INT64,
    READ_INT64_2D,
    WRITE_INT32_2D,
    WRITE_INT64_2D,
    compiled,
)
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.times.limits import ALWAYS_US

_WINDOW = 16  # how many values all four searches of a row look at together


@compiled(FOUR_INT64(READ_INT64, READ_INT64))
def time_extremes(t_min: IntArray, t_max: IntArray) -> tuple[int, int, int, int]:
    """Least `t_min`, greatest `t_max`, least and greatest length; the arrays must not be empty."""
    first, last = t_min[0], t_max[0]
    shortest = longest = last - first
    for start, end in zip(t_min, t_max):  # noqa: B905  (numba's zip has no `strict`)
        first, last = min(first, start), max(last, end)
        shortest, longest = min(shortest, end - start), max(longest, end - start)
    return first, last, shortest, longest


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
        first, last = target_starts[k], target_starts[k + 1]
        # An inclusive end is searched as the start of what follows; nothing follows ALWAYS_US.
        outer, sure, after_sure, after_outer = bounds[i, 0], bounds[i, 1], bounds[i, 2], bounds[i, 3]
        after_sure += after_sure < ALWAYS_US
        after_outer += after_outer < ALWAYS_US
        low = max(lower[k] - NEAR // 2, first)
        # Rows with few partners find all four ends in one look at a few values, without a branch that depends on them.
        if (
            gallop
            and low + _WINDOW <= axis.size
            and (low == first or axis[low] < outer)
            and (low + _WINDOW >= last or axis[low + _WINDOW - 1] >= max(outer, after_outer))
        ):
            to_outer = to_sure = to_end_of_sure = to_end = 0
            own = last - low
            for j in range(_WINDOW):  # a constant number, so that it is vectorised
                value, is_own = axis[np.uint64(low + j)], j < own
                to_outer += is_own & (value < outer)
                to_sure += is_own & (value < sure)
                to_end_of_sure += is_own & (value < after_sure)
                to_end += is_own & (value < after_outer)
            lower[k] = i0 = low + to_outer
            upper[k] = i3 = low + to_end
            outer_hi = max(i0, i3)
            sure_lo = min(max(low + to_sure, i0), outer_hi)
            sure_hi = min(max(low + to_end_of_sure, sure_lo), outer_hi)
            out[i, 0], out[i, 1], out[i, 2], out[i, 3] = i0, sure_lo, sure_hi, outer_hi
            continue
        if gallop:
            lower[k] = i0 = first_at_least_near(axis, first, last, lower[k], outer)
            upper[k] = i3 = first_at_least_near(axis, first, last, upper[k], after_outer)
        else:
            i0 = first_at_least(axis, first, last, outer)
            i3 = first_at_least(axis, first, last, after_outer)
        outer_hi = max(i0, i3)
        # The sure range is inside the outer one, and close to its ends.
        if gallop:
            sure_lo = first_at_least_near(axis, i0, outer_hi, i0, sure)
            sure_hi = first_at_least_near(axis, sure_lo, outer_hi, outer_hi, after_sure)
        else:
            sure_lo = first_at_least(axis, i0, outer_hi, sure)
            sure_hi = first_at_least(axis, sure_lo, outer_hi, after_sure)
        out[i, 0], out[i, 1], out[i, 2], out[i, 3] = i0, sure_lo, sure_hi, outer_hi


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

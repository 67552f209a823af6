"""Kernels that expand partial combinations: ranges of rows, and what is filled with them.

Indices of output are unsigned: numba omits the test for negative ones.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.galloping import first_at_least
from whenabouts.core.arrays.jit import (
    INT64,
    READ_INT32,
    READ_INT32_2D,
    READ_INT64,
    WRITE_INT32_2D,
    WRITE_INT64,
    compiled,
)
from whenabouts.core.arrays.typing import IntArray, Positions


@compiled(INT64(READ_INT64, INT64, INT64, INT64, INT64), inline=True)
def _gallop(axis: IntArray, first: int, last: int, start: int, value: int) -> int:
    """As `first_at_least_near`, without its look at some values together: a key has few rows in a window, for which
    that look costs a quarter more."""
    step = 1
    if start > first and axis[start - 1] >= value:
        high = start - 1
        low = high - step
        while low >= first and axis[low] >= value:
            high = low
            step *= 2
            low -= step
        return first_at_least(axis, max(low + 1, first), high, value)
    low = high = start
    while high < last and axis[high] < value:
        low = high + 1
        high += step
        step *= 2
    return first_at_least(axis, low, min(high, last), value)


@compiled((
    READ_INT64, READ_INT32_2D, READ_INT64, READ_INT64, READ_INT64, READ_INT64, READ_INT32, WRITE_INT64, WRITE_INT64
))  # fmt: skip
def fill_periods(
    anchor: IntArray,
    at: NDArray[np.int32],
    key: IntArray,
    starts: IntArray,
    lo: IntArray,
    hi: IntArray,
    members: Positions,
    first: IntArray,
    count: IntArray,
) -> None:
    """The index range in the next stream that all bounding members of each partial combination allow.

    `at[m, p]`: the row of partial combination p at level m; `lo`, `hi`: by `members`, the levels that bound. One
    galloping search for each end, from the one before.
    """
    current = -1
    begin = end = stop = 0
    for p in range(first.size):
        low, high = anchor[at[members[0], p]] + lo[0], anchor[at[members[0], p]] + hi[0]
        for m in range(1, members.size):
            other = anchor[at[members[m], p]]
            low, high = max(low, other + lo[m]), min(high, other + hi[m])
        if key[p] != current:
            current = key[p]
            begin = stop = starts[current]
            end = starts[current + 1]
            first[p] = begin
        else:
            first[p] = first[p - 1]
        if low > high:
            count[p] = 0
            continue
        first[p] = _gallop(anchor, starts[current], end, first[p], low)
        stop = _gallop(anchor, starts[current], end, max(stop, first[p]), high + 1)
        count[p] = stop - first[p]


@compiled((READ_INT32_2D, INT64, READ_INT64, READ_INT64, WRITE_INT32_2D))
def fill_level(at: NDArray[np.int32], begin: int, first: IntArray, count: IntArray, out: NDArray[np.int32]) -> None:
    """The partial combinations from `begin` on, each with all rows of its range at the next level."""
    levels = at.shape[0]
    written = 0
    for p in range(first.size):
        end = written + count[p]
        for m in range(levels):
            member = at[m, begin + p]
            for i in range(written, end):
                out[np.uint64(m), np.uint64(i)] = member
        here = first[p] - written
        for i in range(written, end):
            out[np.uint64(levels), np.uint64(i)] = here + i
        written = end


@compiled((READ_INT32_2D, INT64, READ_INT64, READ_INT64, READ_INT32, WRITE_INT32_2D))
def fill_positions(
    at: NDArray[np.int32], begin: int, first: IntArray, count: IntArray, position: Positions, out: NDArray[np.int32]
) -> None:
    """As `fill_level`, for a last level without tests: also translates indices into positions."""
    levels = at.shape[0]
    written = 0
    for p in range(first.size):
        end = written + count[p]
        for m in range(levels):
            member = position[np.uint32(at[m, begin + p])]
            for i in range(written, end):
                out[np.uint64(m), np.uint64(i)] = member
        here = first[p] - written
        for i in range(written, end):
            out[np.uint64(levels), np.uint64(i)] = position[np.uint64(here + i)]
        written = end


@compiled(INT64(READ_INT32_2D, READ_INT64, READ_INT64, INT64, WRITE_INT64))
def count_products(chains: NDArray[np.int32], at: IntArray, column: IntArray, most: int, total: IntArray) -> int:
    """How many combinations each base row has with one row of each of its chains, `most` + 1 if they are more.

    `column`: where the chains of a level are in a row of `chains`. Returns how many partial combinations those bases
    try that have no more. In floats, which do not overflow.
    """
    tried = 0.0
    for n in range(at.size):
        product = 1.0
        partial = 0.0
        for level in range(column.size):
            first = column[level]
            product *= float(chains[at[n], first + 1] - chains[at[n], first])
            partial += product
        total[n] = int(min(product, float(most + 1)))
        if product <= most:
            tried += partial
    return int(tried)


@compiled((
    READ_INT32_2D, READ_INT64, INT64, READ_INT64, READ_INT64, READ_INT64, READ_INT32, WRITE_INT32_2D
))  # fmt: skip
def fill_products(
    chains: NDArray[np.int32],
    at: IntArray,
    begin: int,
    column: IntArray,
    offset: IntArray,
    total: IntArray,
    position: Positions,
    out: NDArray[np.int32],
) -> None:
    """All combinations of each base row, from number `begin` on, and one row of each of its chains; indices, or
    positions if they are given. From the last level on, whose rows alternate fastest: the first rows of a level are
    repeated to the end.
    """
    written = 0
    for n in range(begin, begin + total.size):
        end = written + total[n - begin]
        if end == written:
            continue
        row = position[np.uint64(n)] if position.size else n
        for i in range(written, end):
            out[0, np.uint64(i)] = row
        run = 1
        for level in range(column.size, 0, -1):
            first = chains[at[n], column[level - 1]] + offset[level - 1]
            stop = chains[at[n], column[level - 1] + 1] + offset[level - 1]
            i = written
            for member in range(first, stop):
                row = position[np.uint64(member)] if position.size else member
                for _ in range(run):
                    out[np.uint64(level), np.uint64(i)] = row
                    i += 1
            run *= stop - first
            for i in range(written + run, end):
                out[np.uint64(level), np.uint64(i)] = out[np.uint64(level), np.uint64(i - run)]
        written = end

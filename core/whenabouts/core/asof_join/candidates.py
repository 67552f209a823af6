"""The candidates of a left row: the right rows of its key that can prevail, or share a world with one that does.

Backward, with the left time in `[a, b]` and the right times in `[s_k, e_k]`: of the rows that surely lie at or before
a, the one that begins last prevails over all rows that end before it begins, at p. So candidates are the rows whose
support meets `[max(p, a - tolerance), b]`. Removing the others changes no probability. Nearest is the same to both
sides. The candidates are a function of the data alone: their edges are breakpoints of integrals, so an additional one
would change the last bit of a probability.

The right rows of a key are sorted by their begin, and the walk starts at the last one that begins by b. Going down, the
first row that ends by a is the one that attains p. A maximum of the ends so far says where the walk ends, and a tree of
maxima skips rows that end too early, so that one long row does not make every walk long.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from whenabouts.core.arrays.jit import (
    BOOL,
    INT64,
    READ_INT32,
    READ_INT64,
    TWO_INT64,
    WRITE_INT32,
    WRITE_INT64,
    compiled,
)
from whenabouts.core.arrays.key_time_order import sorted_positions
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.times.limits import UNBOUNDED_US

INFINITE = UNBOUNDED_US
"""No bound; `-INFINITE` below."""

BLOCK = 64
"""Rows under a leaf of the tree of maxima."""

_MOVES_PER_ROW = 24


class RightIndex(NamedTuple):
    """Right rows by (key, begin, end, shape, rank): those of key k are `starts[k] : starts[k + 1]`.

    `begin`, `end`: the supports. `shape`: numbers in the catalogue, -1 for points and uniform times. `position`: of the
    row in the input. `last_end`: the latest end of the rows of the key so far. `tree`: maxima of the ends of blocks of
    rows, as a heap whose root is 1.
    """

    begin: IntArray
    end: IntArray
    shape: NDArray[np.int32]
    position: NDArray[np.int32]
    starts: IntArray
    last_end: IntArray
    tree: IntArray


RIGHT_INDEX = types.NamedTuple(  # type: ignore[no-untyped-call]  # numba ships no types
    (READ_INT64, READ_INT64, READ_INT32, READ_INT32, READ_INT64, READ_INT64, READ_INT64), RightIndex
)


@compiled(BOOL(INT64, INT64, READ_INT64, READ_INT64, READ_INT32, READ_INT64, READ_INT64), inline=True)
def _comes_after(
    x: int, y: int, begin: IntArray, end: IntArray, shape: NDArray[np.int32], rank: IntArray, key: IntArray
) -> bool:
    if key[x] != key[y]:
        return bool(key[x] > key[y])
    if begin[x] != begin[y]:
        return bool(begin[x] > begin[y])
    if end[x] != end[y]:
        return bool(end[x] > end[y])
    if shape[x] != shape[y]:
        return bool(shape[x] > shape[y])
    return bool(rank[x] > rank[y])


@compiled(BOOL(WRITE_INT64, READ_INT64, READ_INT64, READ_INT32, READ_INT64, READ_INT64))
def _finish_order(
    order: IntArray, begin: IntArray, end: IntArray, shape: NDArray[np.int32], rank: IntArray, key: IntArray
) -> bool:
    # Insertion sort of rows that are nearly in order. False, the rows partly sorted, if it takes too many moves.
    budget = 1 << 16
    for i in range(1, order.size):
        budget += _MOVES_PER_ROW
        row = order[i]
        j = i
        while j > 0 and _comes_after(order[j - 1], row, begin, end, shape, rank, key):
            order[j] = order[j - 1]
            j -= 1
        order[j] = row
        budget -= i - j
        if budget < 0:
            return False
    return True


@compiled((READ_INT64, READ_INT64, WRITE_INT64, WRITE_INT64))
def _fill_maxima(end: IntArray, starts: IntArray, last_end: IntArray, tree: IntArray) -> None:
    for k in range(starts.size - 1):
        latest = -INFINITE
        for i in range(starts[k], starts[k + 1]):
            latest = max(latest, end[i])
            last_end[i] = latest
    leaves = tree.size // 2
    tree[:] = -INFINITE
    for i in range(end.size):
        leaf = leaves + i // BLOCK
        tree[leaf] = max(tree[leaf], end[i])
    for node in range(leaves - 1, 0, -1):
        tree[node] = max(tree[2 * node], tree[2 * node + 1])


def right_index(
    begin: IntArray, end: IntArray, shape: NDArray[np.int32], key: NDArray[np.int32], rank: IntArray, keys: int
) -> RightIndex:
    """Sort right rows and number them; rows with key -1 are left out. `keys`: one more than the greatest code.

    O(n log n), about 0.2 us a row; less if the rows are nearly in order.
    """
    rows = np.flatnonzero(key >= 0)
    every = len(rows) == len(key)
    codes = key.astype(np.int64) if every else key[rows].astype(np.int64)
    if not every:
        begin, end, shape, rank = begin[rows], end[rows], shape[rows], rank[rows]
    order = sorted_positions(begin, codes, keys) if len(rows) else rows
    if not _finish_order(order, begin, end, shape, rank, codes):
        order = np.lexsort((rank, shape, end, begin, codes))
    begin, end, shape = begin.take(order), end.take(order), shape.take(order)
    starts = np.zeros(keys + 1, np.int64)
    np.cumsum(np.bincount(codes, minlength=keys), out=starts[1:])
    blocks = max(-(-len(order) // BLOCK), 1)
    tree = np.empty(2 << (blocks - 1).bit_length(), np.int64)
    last_end = np.empty(len(order), np.int64)
    _fill_maxima(end, starts, last_end, tree)
    position = (order if every else rows[order]).astype(np.int32)
    index = RightIndex(begin, end, shape, position, starts, last_end, tree)
    for column in index:
        column.setflags(write=False)  # as numba's type of the index says
    return index


@compiled(INT64(INT64, INT64, INT64, READ_INT64, READ_INT64), inline=True)
def _previous_that_reaches(at: int, first: int, low: int, end: IntArray, tree: IntArray) -> int:
    # The last row in [first, at] that ends at or after `low`, or first - 1.
    while at >= first:
        if end[at] >= low:
            return at
        if at % BLOCK:
            at -= 1
            continue
        # The rows of this block are done: up the tree to a subtree on the left that reaches, and down in it.
        node = tree.size // 2 + at // BLOCK
        while node > 1 and (node % 2 == 0 or tree[node - 1] < low):
            node //= 2
        if node <= 1:
            return first - 1
        node -= 1
        while node < tree.size // 2:
            node = 2 * node + 1 if tree[2 * node + 1] >= low else 2 * node
        at = (node - tree.size // 2) * BLOCK + BLOCK - 1
    return first - 1


@compiled(INT64(INT64, INT64, INT64, INT64, READ_INT64), inline=True)
def first_after(at: int, first: int, beyond: int, time: int, begin: IntArray) -> int:
    """The first row in [first, beyond) that begins after `time`, or `beyond`; searched outwards from a guess `at`."""
    low, high = first, beyond  # the answer is in [low, high]
    step = 1
    if at < beyond and begin[at] <= time:
        low = at + 1
        while low + step < beyond:
            if begin[low + step] > time:
                high = low + step
                break
            low += step + 1
            step *= 2
    else:
        high = at
        while high - step >= first:
            if begin[high - step] <= time:
                low = high - step + 1
                break
            high -= step
            step *= 2
    while low < high:
        middle = (low + high) >> 1
        if begin[middle] <= time:
            low = middle + 1
        else:
            high = middle
    return low


@compiled(TWO_INT64(INT64, INT64, INT64, INT64, INT64, BOOL, RIGHT_INDEX, WRITE_INT32, WRITE_INT64), inline=True)
def walk_backward(
    at: int,
    first: int,
    a: int,
    b: int,
    tolerance: int,
    no_exact: bool,
    index: RightIndex,
    found: NDArray[np.int32],
    bounds: IntArray,
) -> tuple[int, int]:
    """Candidates backward of the left time [a, b], from the first row `at` that begins after b, down to `first`.

    `no_exact`: points at the left time, a point, are excluded. Writes the sorted rows, ascending, to `found[c0:c1]` and
    the ends of the stretch that they meet to `bounds`. Returns (c0, c1), or (-1, capacity needed).
    """
    begin, end, last_end, tree = index.begin, index.end, index.last_end, index.tree
    low = a - tolerance if tolerance < INFINITE else -INFINITE
    c = found.size
    sure = False
    j = at - 1
    while j >= first and last_end[j] >= low:
        if end[j] < low:
            j = _previous_that_reaches(j, first, low, end, tree)
            continue
        if not (no_exact and begin[j] == a and end[j] == a):
            if c == 0:
                return -1, 2 * found.size
            c -= 1
            found[c] = j
            if not sure and end[j] <= a:
                sure = True
                low = max(low, begin[j])
        j -= 1
    bounds[0], bounds[1] = low, b
    return c, found.size


@compiled(TWO_INT64(INT64, INT64, INT64, INT64, INT64, INT64, BOOL, RIGHT_INDEX, WRITE_INT32, WRITE_INT64))
def walk_nearest(
    at: int,
    first: int,
    beyond: int,
    a: int,
    b: int,
    tolerance: int,
    no_exact: bool,
    index: RightIndex,
    found: NDArray[np.int32],
    bounds: IntArray,
) -> tuple[int, int]:
    """Candidates to both sides; as `walk_backward`, the rows of the key being `[first, beyond)`."""
    begin, end, last_end, tree = index.begin, index.end, index.last_end, index.tree
    low = a - tolerance if tolerance < INFINITE else -INFINITE
    high = b + tolerance if tolerance < INFINITE else INFINITE
    # Up: all begin after b. Each row visited is a candidate unless a later one lowers `high`.
    up = at
    while up < beyond and begin[up] <= high:
        high = min(high, end[up])
        low = max(low, 2 * a - end[up])
        up += 1
    c = found.size
    j = at - 1
    while j >= first and last_end[j] >= low:
        if end[j] < low:
            j = _previous_that_reaches(j, first, low, end, tree)
            continue
        if not (no_exact and begin[j] == a and end[j] == a):
            if c == 0:
                return -1, 2 * found.size
            c -= 1
            found[c] = j
            low = max(low, min(begin[j], 2 * a - end[j]))
            high = min(high, max(end[j], 2 * b - begin[j]))
        j -= 1
    if found.size - c + up - at > found.size:
        return -1, 2 * (found.size - c + up - at)
    # Rows on the way that the final bounds exclude are dropped.
    n = 0
    for i in range(c, found.size):
        if end[found[i]] >= low and begin[found[i]] <= high:
            found[n] = found[i]
            n += 1
    for j in range(at, up):
        if begin[j] <= high and end[j] >= low:
            found[n] = j
            n += 1
    bounds[0], bounds[1] = low, high
    return 0, n

"""Decided functions over ranges of rows: for each left row a range of ordered right rows, and some rows beside it.

The range `start[i] : stop[i]` holds the rows that match for sure. The rows beside it, `rows[offsets[i] : offsets[i +
1]]`, are those of the probed stretches that match. Both are indices of the ordered right rows. An empty range may have
any ends. Values enter as keys in the order of `min` (`value_keys`), or where only equality counts as ranks, -1 for a
null.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.jit import (
    INT64,
    READ_INT32,
    READ_INT64,
    READ_INT64_2D,
    WRITE_INT32,
    WRITE_INT64,
    WRITE_INT64_2D,
    compiled,
)
from whenabouts.core.arrays.large_arrays import large_array
from whenabouts.core.arrays.typing import IntArray

BLOCK = 16
"""Rows whose minimum is one entry of the sparse table."""

NO_KEY = np.iinfo(np.int64).max
"""The key of a null, and the least of no keys."""

_NO_TABLE: IntArray = np.empty((0, 0), np.int64)

Beside = tuple[IntArray, NDArray[np.int32]]
"""(offsets, rows): the rows beside the ranges."""


def counts(start: IntArray, stop: IntArray, offsets: IntArray) -> IntArray:
    """How many rows each left row has. O(n).

    >>> counts(np.array([0, 5]), np.array([3, 4]), np.array([0, 1, 1])).tolist()
    [4, 0]
    """
    found: IntArray = np.maximum(stop - start, 0) + np.diff(offsets)
    return found


@dataclass(frozen=True)
class RangeMinimum:
    """The least key of any range of rows, in O(1) with O(n) memory; a row with `NO_KEY` has none.

    `table[k, b]` is the least key of the 2^k blocks of 16 rows from block b on. A query takes two overlapping entries
    and scans the rows of the blocks that it cuts. (Windows that move on cannot be used: where lengths vary, the ends of
    successive ranges are not monotone.)
    """

    keys: IntArray

    @cached_property
    def table(self) -> IntArray:
        """The sparse table. O(n)."""
        blocks = max(len(self.keys) // BLOCK, 1)
        table = np.full((blocks.bit_length(), blocks), NO_KEY)
        _fill_table(self.keys, table)
        return table

    def of_ranges(self, start: IntArray, stop: IntArray, beside: Beside) -> IntArray:
        """The least key of each left row's rows, `NO_KEY` if there is none. Cost: about 15 ns per left row.

        >>> keys = RangeMinimum(np.array([3, NO_KEY, 2, 5]))
        >>> beside = np.array([0, 1, 1]), np.array([2], np.int32)
        >>> (keys.of_ranges(np.array([0, 1]), np.array([2, 2]), beside) == [2, NO_KEY]).all()
        np.True_
        """
        out = large_array(len(start), np.int64)
        # A range that is shorter than a block holds none.
        lengths = np.subtract(stop, start, out=out)
        table = self.table if lengths.max(initial=0) >= BLOCK else _NO_TABLE
        _fill_minima(self.keys, table, *_ends(start, stop), *_arrays(beside), out)
        return out


def reversed_keys(keys: IntArray) -> IntArray:
    """Keys in the opposite order, so that their minimum is the maximum; twice reversed they are as before.

    No key may be the least int64.

    >>> reversed_keys(np.array([3, -1, NO_KEY])).tolist() == [-4, 0, NO_KEY]
    True
    """
    return np.where(keys == NO_KEY, NO_KEY, ~keys)


def distinct_counts(ranks: IntArray, start: IntArray, stop: IntArray, beside: Beside) -> IntArray:
    """How many different values each left row's rows have, nulls apart. O((n + m) log m + rows beside x log m).

    Ranges are taken in the order of their ends. A Fenwick tree counts the places at which a value occurs last so far. A
    row beside the range counts if its value occurs neither in the range nor in a row beside it that came before.

    >>> distinct_counts(np.array([7, 7, 0, -1]), np.array([0]), np.array([2]), (np.array([0, 2]), np.array([2, 3])))
    array([2])
    """
    start, stop = _ends(start, stop)
    stop = np.maximum(stop, start)
    codes = int(ranks.max(initial=-1)) + 1
    order = np.argsort(stop, kind="stable")
    valid = np.flatnonzero(ranks >= 0)
    places = valid[np.argsort(ranks[valid], kind="stable")]
    place_starts = np.searchsorted(ranks[places], np.arange(codes + 1))
    out = large_array(len(start), np.int64)
    _fill_distinct(ranks, places, place_starts, order, start, stop, *_arrays(beside), out)
    return out


def collected(rank: IntArray, start: IntArray, stop: IntArray, beside: Beside) -> tuple[IntArray, NDArray[np.int32]]:
    """All rows of each left row by `rank`, the order of the rows: offsets and rows. O(rows) if they are in order.

    >>> rank = np.arange(5)
    >>> offsets, rows = collected(rank, np.array([2, 0]), np.array([4, 0]), (np.array([0, 2, 2]), np.array([4, 1])))
    >>> offsets.tolist(), rows.tolist()
    ([0, 4, 4], [1, 2, 3, 4])
    """
    start, stop = _ends(start, stop)
    offsets = np.concatenate([[0], np.cumsum(counts(start, stop, beside[0]))])
    out = np.empty(int(offsets[-1]), np.int32)
    _fill_collected(rank, start, stop, *_arrays(beside), offsets, out)
    return offsets, out


def _ends(start: IntArray, stop: IntArray) -> tuple[IntArray, IntArray]:
    return np.ascontiguousarray(start, np.int64), np.ascontiguousarray(stop, np.int64)


def _arrays(beside: Beside) -> Beside:
    return np.ascontiguousarray(beside[0], np.int64), np.ascontiguousarray(beside[1], np.int32)


@compiled((READ_INT64, WRITE_INT64_2D))
def _fill_table(keys: IntArray, table: IntArray) -> None:
    blocks = table.shape[1]
    for block in range(keys.size // BLOCK):
        least = NO_KEY
        for row in range(block * BLOCK, (block + 1) * BLOCK):
            least = min(least, keys[row])
        table[0, block] = least
    for k in range(1, table.shape[0]):
        half = 1 << (k - 1)
        for block in range(blocks - 2 * half + 1):
            table[k, block] = min(table[k - 1, block], table[k - 1, block + half])


@compiled((READ_INT64, READ_INT64_2D, READ_INT64, READ_INT64, READ_INT64, READ_INT32, WRITE_INT64))
def _fill_minima(
    keys: IntArray,
    table: IntArray,
    start: IntArray,
    stop: IntArray,
    offsets: IntArray,
    rows: NDArray[np.int32],
    out: IntArray,
) -> None:
    for i in range(out.size):
        least = NO_KEY
        first, last = start[i], stop[i]
        if first < last:
            low, high = (first + BLOCK - 1) // BLOCK, last // BLOCK
            if low >= high:
                for row in range(first, last):
                    least = min(least, keys[row])
            else:
                k = 0
                while (2 << k) <= high - low:
                    k += 1
                least = min(table[k, low], table[k, high - (1 << k)])
                for row in range(first, low * BLOCK):
                    least = min(least, keys[row])
                for row in range(high * BLOCK, last):
                    least = min(least, keys[row])
        for r in range(offsets[i], offsets[i + 1]):
            least = min(least, keys[rows[r]])
        out[i] = least


@compiled(INT64(READ_INT64, INT64), inline=True)
def _sum_below(tree: IntArray, row: int) -> int:
    """The sum of a Fenwick tree's entries before `row`."""
    total = 0
    while row > 0:
        total += tree[row]
        row &= row - 1
    return total


@compiled((WRITE_INT64, INT64, INT64), inline=True)
def _add_at(tree: IntArray, row: int, change: int) -> None:
    row += 1
    while row < tree.size:
        tree[row] += change
        row += row & -row


@compiled((
    READ_INT64, READ_INT64, READ_INT64, READ_INT64, READ_INT64, READ_INT64, READ_INT64, READ_INT32, WRITE_INT64,
))  # fmt: skip
def _fill_distinct(
    ranks: IntArray,
    places: IntArray,
    place_starts: IntArray,
    order: IntArray,
    start: IntArray,
    stop: IntArray,
    offsets: IntArray,
    rows: NDArray[np.int32],
    out: IntArray,
) -> None:
    tree = np.zeros(ranks.size + 1, np.int64)
    last_place = np.full(place_starts.size, -1, np.int64)
    seen_by = np.full(place_starts.size, -1, np.int64)
    added = different = 0
    for i in order:
        while added < min(stop[i], ranks.size):
            rank = ranks[added]
            if rank >= 0:
                if last_place[rank] >= 0:
                    _add_at(tree, last_place[rank], -1)
                else:
                    different += 1
                _add_at(tree, added, 1)
                last_place[rank] = added
            added += 1
        count = different - _sum_below(tree, start[i]) if start[i] < stop[i] else 0
        for r in range(offsets[i], offsets[i + 1]):
            rank = ranks[rows[r]]
            if rank < 0 or seen_by[rank] == i:
                continue
            seen_by[rank] = i
            low, high = place_starts[rank], place_starts[rank + 1]
            while low < high:  # the first place of the value in the range
                middle = (low + high) >> 1
                if places[middle] < start[i]:
                    low = middle + 1
                else:
                    high = middle
            count += low == place_starts[rank + 1] or places[low] >= stop[i]
        out[i] = count


@compiled((READ_INT64, READ_INT64, READ_INT64, READ_INT64, READ_INT32, READ_INT64, WRITE_INT32))
def _fill_collected(
    rank: IntArray,
    start: IntArray,
    stop: IntArray,
    offsets: IntArray,
    rows: NDArray[np.int32],
    out_offsets: IntArray,
    out: NDArray[np.int32],
) -> None:
    for i in range(start.size):
        first = to = out_offsets[i]
        low, high = offsets[i], offsets[i + 1]
        while low < high and rows[low] < start[i]:  # the rows of the probe before the range
            out[to] = rows[low]
            to, low = to + 1, low + 1
        for row in range(start[i], stop[i]):
            out[to] = row
            to += 1
        for r in range(low, high):
            out[to] = rows[r]
            to += 1
        ordered = True
        for r in range(first + 1, to):
            ordered &= rank[out[r - 1]] <= rank[out[r]]
        if not ordered:
            taken = out[first:to].copy()
            keys = rank[taken]
            out[first:to] = taken[np.argsort(keys, kind="mergesort")]

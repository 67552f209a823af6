"""Rows of a block grouped by key and sorted along one time axis: the input of every strategy.

Sorted blocks are returned as they are. Others are sorted by radix (`grouped_sort`), which finishes by insertion what is
nearly in order, as blocks mostly are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.grouped_sort import sorted_in_groups
from whenabouts.core.arrays.jit import (
    BOOL,
    INT64,
    READ_INT64,
    READ_INT64_2D,
    WRITE_INT32,
    WRITE_INT64,
    compiled,
)
from whenabouts.core.arrays.typing import IntArray

Axis = Literal["arrival", "t_max", "midpoint", "shifted"]


@dataclass(frozen=True, slots=True)
class Times:
    """The times of n rows and the codes of their keys; a row is identified by its index.

    ``t_min``, ``t_max``: int64 microseconds [n], ``t_min <= t_max``. ``key``: int64 codes >= 0 [n], dense
    (time and memory grow with the greatest code), shared by both sides of a join; None: all rows have the same
    key. ``template``: int32 numbers of the rows' templates [n]; None: rows are uniform between their ends.
    """

    t_min: IntArray
    t_max: IntArray
    key: IntArray | None = None
    template: NDArray[np.int32] | None = None

    def __len__(self) -> int:
        return len(self.t_min)


@dataclass(frozen=True, slots=True)
class OrderedRows:
    """Rows grouped by key: those of key k are ``starts[k] : starts[k + 1]``, sorted along ``axis``.

    ``position``: the index of each row in the input. ``axis``: the values that searches compare (t_max or twice the
    midpoint).
    """

    t_min: IntArray
    t_max: IntArray
    position: NDArray[np.int32]
    axis: IntArray
    starts: IntArray

    def check(self) -> None:
        """Raise AssertionError unless the invariants hold. O(n log n); for tests."""
        n = self.t_min.size
        assert self.starts[0] == 0
        assert self.starts[-1] == n
        assert (np.diff(self.starts) >= 0).all()
        assert np.array_equal(np.sort(self.position), np.arange(n))
        for first, last in zip(self.starts[:-1].tolist(), self.starts[1:].tolist(), strict=True):
            assert (np.diff(self.axis[first:last]) >= 0).all()


@compiled((READ_INT64, WRITE_INT64))
def _count_keys(key: IntArray, starts: IntArray) -> None:
    for code in key:
        starts[code + 1] += 1
    for k in range(1, starts.size):
        starts[k] += starts[k - 1]


@compiled((READ_INT64, READ_INT64, READ_INT64, READ_INT64, WRITE_INT64, WRITE_INT64, WRITE_INT32))
def _group_by_key(
    key: IntArray,
    starts: IntArray,
    axis: IntArray,
    t_min: IntArray,
    out_axis: IntArray,
    out_min: IntArray,
    out_position: NDArray[np.int32],
) -> None:
    # Counting sort, stable: rows of a key keep their order.
    free = starts.copy()
    for i in range(key.size):
        to = free[key[i]]
        free[key[i]] = to + 1
        out_axis[to] = axis[i]
        out_min[to] = t_min[i]
        out_position[to] = i


@compiled(BOOL(READ_INT64, READ_INT64))
def _is_ordered(axis: IntArray, starts: IntArray) -> bool:
    for k in range(starts.size - 1):
        for i in range(starts[k] + 1, starts[k + 1]):
            if axis[i] < axis[i - 1]:
                return False
    return True


def is_ascending(values: IntArray) -> bool:
    """Whether values are sorted. O(n).

    >>> is_ascending(np.array([1, 1, 2])), is_ascending(np.array([2, 1]))
    (True, False)
    """
    return bool(_is_ordered(np.ascontiguousarray(values), np.array([0, len(values)])))


def nearly_in_order(values: IntArray) -> bool:
    """Whether rows are nearly sorted, judged by a sample of pairs that are a sixteenth of the block apart.

    >>> nearly_in_order(np.arange(1000) ^ 7), nearly_in_order(np.arange(1000)[::-1])
    (True, False)
    """
    apart = max(len(values) // 16, 1)
    sample = slice(None, None, max(len(values) // 4096, 1))
    descents = np.count_nonzero(values[apart:][sample] < values[:-apart][sample])
    return bool(descents * 16 <= len(values[apart:][sample]))  # newer numpy counts in numbers of its own


def sorted_positions(values: IntArray, key: IntArray | None, keys: int) -> IntArray:
    """Indices sorted by key (codes below ``keys``), then value, then index. O(n + keys).

    >>> sorted_positions(np.array([5, 2, 5]), np.array([1, 1, 0]), 2).tolist()
    [2, 1, 0]
    """
    codes = np.zeros(len(values), np.int64) if key is None else key
    return np.ascontiguousarray(sorted_in_groups(np.ascontiguousarray(values), None, codes, 0, keys).pairs[:, 1])


@compiled((READ_INT64_2D, INT64, BOOL, WRITE_INT64, WRITE_INT64, WRITE_INT64, WRITE_INT32))
def _unpack(
    pairs: IntArray,
    index_bits: int,
    doubled: bool,
    axis: IntArray,
    t_min: IntArray,
    t_max: IntArray,
    position: NDArray[np.int32],
) -> None:
    # Pairs of the axis, and length and index in one word; `doubled`: the axis is twice the midpoint, not the end.
    for i in range(len(position)):
        value, word = pairs[i, 0], pairs[i, 1]
        length = word >> index_bits
        end = (value + length) >> 1 if doubled else value
        axis[i] = value
        t_min[i] = end - length
        t_max[i] = end
        position[i] = word & ((1 << index_bits) - 1)


@compiled((READ_INT64_2D, READ_INT64, READ_INT64, WRITE_INT64, WRITE_INT64, WRITE_INT64, WRITE_INT32))
def _take(
    pairs: IntArray,
    given_min: IntArray,
    given_max: IntArray,
    axis: IntArray,
    t_min: IntArray,
    t_max: IntArray,
    position: NDArray[np.int32],
) -> None:
    for i in range(len(position)):
        row = np.uint64(pairs[i, 1])  # unsigned: numba omits the test for negative indices
        axis[i] = pairs[i, 0]
        t_min[i] = given_min[row]
        t_max[i] = given_max[row]
        position[i] = row


@compiled(BOOL(READ_INT64, READ_INT64, INT64, WRITE_INT64))
def _pack_lengths(t_min: IntArray, t_max: IntArray, index_bits: int, packed: IntArray) -> bool:
    # Length and index of each row as one word; False if a length has too many bits.
    most = 0
    for i in range(len(packed)):
        length = t_max[i] - t_min[i]
        most |= length
        packed[i] = (length << index_bits) | i
    return most >> (63 - index_bits) == 0


def sorted_rows(times: Times, values: IntArray, axis: Axis, keys: int) -> OrderedRows:
    """Rows sorted by key and the values of `axis`, then as they came. O(n + keys)."""
    n, key = len(times), times.key if keys > 1 else None
    index_bits = max(n - 1, 1).bit_length()
    lengths: IntArray | None = None
    if axis in ("t_max", "midpoint"):  # the row's times follow from its axis and its length
        lengths = np.empty(n, np.int64)
        if not _pack_lengths(times.t_min, times.t_max, index_bits, lengths):
            lengths = None
    codes = np.zeros(n, np.int64) if key is None else key
    found = sorted_in_groups(values, lengths, codes, 0, keys)
    t_min, t_max, position = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int32)
    along = t_max if axis == "t_max" else np.empty(n, np.int64)
    if lengths is None:
        _take(found.pairs, times.t_min, times.t_max, along, t_min, t_max, position)
    else:
        _unpack(found.pairs, index_bits, axis == "midpoint", along, t_min, t_max, position)
    return OrderedRows(t_min, t_max, position, along, found.starts)


def order_rows(times: Times, axis: Axis, keys: int, shift: IntArray | None = None) -> OrderedRows:
    """Group ``times`` by key and sort each key's rows along ``axis``: "arrival" keeps the order of arrival, "shifted"
    is ``t_max + shift``.

    ``keys`` is one more than the greatest code of either side (1 without keys). The arrays of ``times`` must be
    contiguous int64, and the codes within range; sorted input is returned without a copy. O(n + keys); stable.

    >>> rows = order_rows(Times(np.array([5, 1, 3]), np.array([6, 9, 4]), np.array([1, 0, 1])), "t_max", 2)
    >>> rows.position.tolist(), rows.axis.tolist(), rows.starts.tolist()
    ([1, 2, 0], [9, 4, 6], [0, 1, 3])
    """
    values = times.t_min + times.t_max if axis == "midpoint" else times.t_max
    if shift is not None:
        values = times.t_max + shift
    key = times.key if keys > 1 else None
    starts = np.array([0] * keys + [len(times)])
    if key is not None:
        starts[:] = 0
        _count_keys(key, starts)
    grouped = key is None or _is_ordered(key, np.array([0, len(times)]))
    if grouped and (axis == "arrival" or _is_ordered(values, starts)):
        return OrderedRows(times.t_min, times.t_max, np.arange(len(times), dtype=np.int32), values, starts)
    if axis != "arrival" or key is None:
        return sorted_rows(times, values, axis, keys)
    position = np.empty(len(times), np.int32)
    t_min, t_max = np.empty_like(values), np.empty_like(values)
    _group_by_key(key, starts, values, times.t_min, t_max, t_min, position)
    return OrderedRows(t_min, t_max, position, t_max, starts)

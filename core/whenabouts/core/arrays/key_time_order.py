"""Rows of a block grouped by key and sorted along one time axis: the input of every strategy.

Blocks usually arrive almost in time order. So the cheapest sufficient method is used: nothing if the rows are sorted, a
counting sort by key (stable, linear) and an insertion sort within each key if they are nearly sorted, and a full sort
only for shuffled input.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.jit import (
    BOOL,
    INT64,
    READ_INT64,
    WRITE_INT32,
    WRITE_INT64,
    compiled,
)
from whenabouts.core.arrays.typing import IntArray

Axis = Literal["arrival", "t_max", "midpoint", "shifted"]

_MOVES_PER_ROW = 24  # beyond this a full sort is cheaper than insertion
_MOVES_AHEAD = 1 << 16  # an initial allowance, for blocks whose first rows are unsorted


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


@compiled(BOOL(WRITE_INT64, WRITE_INT64, WRITE_INT32, READ_INT64))
def _insertion_sort(
    axis: IntArray,
    t_min: IntArray,
    position: NDArray[np.int32],
    starts: IntArray,
) -> bool:
    # Stable, within each key. Returns False, leaving the rows partly sorted, if they need too many moves.
    budget = _MOVES_AHEAD
    for k in range(starts.size - 1):
        first = starts[k]
        for i in range(first + 1, starts[k + 1]):
            budget += _MOVES_PER_ROW
            value = axis[i]
            if axis[i - 1] <= value:
                continue
            row_min, row = t_min[i], position[i]
            j = i
            while j > first and axis[j - 1] > value:
                axis[j], t_min[j], position[j] = axis[j - 1], t_min[j - 1], position[j - 1]
                j -= 1
            axis[j], t_min[j], position[j] = value, row_min, row
            budget -= i - j
            if budget < 0:
                return False
    return True


def nearly_in_order(values: IntArray) -> bool:
    """Whether rows are nearly sorted, judged by a sample of pairs that are a sixteenth of the block apart.

    >>> nearly_in_order(np.arange(1000) ^ 7), nearly_in_order(np.arange(1000)[::-1])
    (True, False)
    """
    apart = max(len(values) // 16, 1)
    sample = slice(None, None, max(len(values) // 4096, 1))
    descents = np.count_nonzero(values[apart:][sample] < values[:-apart][sample])
    return bool(descents * 16 <= len(values[apart:][sample]))  # newer numpy counts in numbers of its own


@compiled((READ_INT64, READ_INT64, INT64, INT64, INT64, INT64, WRITE_INT64))
def _pack(
    values: IntArray, key: IntArray, least: int, cut: int, value_bits: int, index_bits: int, packed: IntArray
) -> None:
    # Key, value less the least one and its lowest `cut` bits, and index as one number.
    for i in range(values.size):
        word = (values[i] - least) >> cut
        if key.size:
            word |= key[i] << value_bits
        packed[i] = (word << index_bits) | i


def _sorted_packed(values: IntArray, key: IntArray | None, keys: int) -> tuple[IntArray, int]:
    """Packed rows as `sorted_positions` orders them, and the mask of their index."""
    least = int(values.min())
    index_bits, key_bits = max(len(values) - 1, 1).bit_length(), (keys - 1).bit_length()
    value_bits = (int(values.max()) - least).bit_length()
    cut = min(max(value_bits + index_bits + key_bits - 63, 0), value_bits)
    packed = np.empty(len(values), np.int64)
    _pack(values, values[:0] if key is None else key, least, cut, value_bits - cut, index_bits, packed)
    packed.sort()
    return packed, (1 << index_bits) - 1


def sorted_positions(values: IntArray, key: IntArray | None, keys: int) -> IntArray:
    """Indices sorted by key (codes below ``keys``), then value, then index.

    If all three need more than 63 bits, the lowest bits of the value are ignored: rows that differ only in these stay
    in their order of arrival.

    numpy's vectorised sort of one packed number is four to ten times faster than any argsort.
    """
    packed, mask = _sorted_packed(np.ascontiguousarray(values), key, keys)
    packed &= mask
    return packed


@compiled((READ_INT64, INT64, READ_INT64, READ_INT64, WRITE_INT64, WRITE_INT64, WRITE_INT32))
def _take_packed(
    packed: IntArray,
    mask: int,
    values: IntArray,
    t_min: IntArray,
    out_values: IntArray,
    out_min: IntArray,
    out_position: NDArray[np.int32],
) -> None:
    for i in range(packed.size):
        row = np.uint64(packed[i] & mask)  # unsigned: numba omits the test for negative indices
        out_values[i] = values[row]
        out_min[i] = t_min[row]
        out_position[i] = row


def sorted_rows(
    values: IntArray, t_min: IntArray, key: IntArray | None, keys: int
) -> tuple[IntArray, IntArray, NDArray[np.int32]]:
    """`values`, `t_min` and the int32 positions of rows in the order of `sorted_positions`."""
    packed, mask = _sorted_packed(values, key, keys)
    taken = np.empty_like(values), np.empty_like(t_min), np.empty(len(values), np.int32)
    _take_packed(packed, mask, values, t_min, *taken)
    return taken


def order_rows(times: Times, axis: Axis, keys: int, shift: IntArray | None = None) -> OrderedRows:
    """Group ``times`` by key and sort each key's rows along ``axis``: "arrival" keeps the order of arrival, "shifted"
    is ``t_max + shift``.

    ``keys`` is one more than the greatest code of either side (1 without keys). The arrays of ``times`` must be
    contiguous int64, and the codes within range; sorted input is returned without a copy. O(n + keys) for nearly sorted
    rows, O(n log n) otherwise; stable.

    >>> rows = order_rows(Times(np.array([5, 1, 3]), np.array([6, 9, 4]), np.array([1, 0, 1])), "t_max", 2)
    >>> rows.position.tolist(), rows.axis.tolist(), rows.starts.tolist()
    ([1, 2, 0], [9, 4, 6], [0, 1, 3])
    """
    position = np.arange(len(times), dtype=np.int32)
    starts = np.array([0] * keys + [len(times)])
    # Only (axis, t_min, position) of a row are moved: t_max is the axis or can be computed from it.
    values, t_min = times.t_min + times.t_max if axis == "midpoint" else times.t_max, times.t_min
    if shift is not None:
        values = times.t_max + shift
    key = times.key if keys > 1 else None
    if key is not None:
        starts[:] = 0
        _count_keys(key, starts)
    grouped = key is None or _is_ordered(key, np.array([0, len(times)]))
    if grouped and (axis == "arrival" or _is_ordered(values, starts)):
        return OrderedRows(t_min, times.t_max, position, values, starts)
    in_place = axis == "arrival" or nearly_in_order(values)
    if in_place:
        if key is None or grouped:
            moved = values.copy(), t_min.copy(), position
        else:
            moved = np.empty_like(values), np.empty_like(t_min), position
            _group_by_key(key, starts, values, t_min, *moved)
        in_place = axis == "arrival" or _insertion_sort(*moved, starts)
    if not in_place:
        moved = sorted_rows(values, t_min, key, keys)
        if not _insertion_sort(*moved, starts):  # too many bits of the values were ignored
            moved = _taken(values, t_min, np.lexsort((values,) if key is None else (values, key)))
    values, t_min, position = moved
    t_max = values - t_min if axis == "midpoint" else values if shift is None else times.t_max[position]
    return OrderedRows(t_min, t_max, position, values, starts)


def _taken(values: IntArray, t_min: IntArray, order: IntArray) -> tuple[IntArray, IntArray, NDArray[np.int32]]:
    # mode="clip" only avoids checking every index: `order` is a permutation.
    return values.take(order, mode="clip"), t_min.take(order, mode="clip"), order.astype(np.int32)

"""Rows of a block grouped by key and sorted along one time axis: the input of every strategy.

Sorted blocks are returned as they are. Others are sorted by radix (`grouped_words`), which finishes by insertion what
is nearly in order, as blocks mostly are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.gather import gathered
from whenabouts.core.arrays.grouped_words import rows_in_groups
from whenabouts.core.arrays.jit import (
    BOOL,
    READ_INT64,
    WRITE_INT32,
    WRITE_INT64,
    compiled,
)
from whenabouts.core.arrays.large_arrays import large_array, row_numbers
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


def nearly_in_order(values: IntArray | NDArray[np.int32]) -> bool:
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
    return rows_in_groups(np.ascontiguousarray(values), key, keys).position.astype(np.int64)


def sorted_rows(times: Times, values: IntArray, axis: Axis, keys: int) -> OrderedRows:
    """Rows sorted by key and the values of `axis`, then as they came. O(n + keys)."""
    along, position, starts = rows_in_groups(values, times.key if keys > 1 else None, keys)
    t_min = gathered(times.t_min, position)
    if axis == "t_max":
        t_max = along
    elif axis == "midpoint":
        t_max = along - t_min
    else:
        t_max = gathered(times.t_max, position)
    return OrderedRows(t_min, t_max, position, along, starts)


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
        return OrderedRows(times.t_min, times.t_max, row_numbers(len(times)), values, starts)
    if axis != "arrival" or key is None:
        return sorted_rows(times, values, axis, keys)
    position = large_array(len(times), np.int32)
    t_min, t_max = large_array(len(times), np.int64), large_array(len(times), np.int64)
    _group_by_key(key, starts, values, times.t_min, t_max, t_min, position)
    return OrderedRows(t_min, t_max, position, t_max, starts)

"""Rows of a block grouped by key and ordered along one time axis: what every strategy joins.

Blocks usually arrive almost in time order. So the order is found by the cheapest means that works: nothing at all when it already
holds, a counting sort by key (stable, linear), an insertion sort inside each key as long as rows are nearly in place, and a
full argsort of the axis only for shuffled input.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.compiled import (
    BOOL,
    INT64,
    READ_INT32,
    READ_INT64,
    WRITE_INT32,
    WRITE_INT64,
    compiled,
)

Axis = Literal["arrival", "t_max", "midpoint"]

_MOVES_PER_ROW = 24  # beyond this an argsort of the whole axis is cheaper than insertion


@dataclass(frozen=True, slots=True)
class Times:
    """The times of n rows and the codes of their keys; a row's identity is its position.

    ``t_min``, ``t_max``: int64 microseconds [n], ``t_min <= t_max``. ``key``: int64 codes >= 0 [n], dense (work and memory grow with the
    greatest code), shared by the two sides of a join; None puts all rows under one key.
    """

    t_min: NDArray[np.int64]
    t_max: NDArray[np.int64]
    key: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.t_min)


@dataclass(frozen=True, slots=True)
class OrderedRows:
    """Rows grouped by key: those of key k are at ``starts[k] : starts[k + 1]``, ordered along ``axis`` within.

    ``position`` says where a row stood in the input; ``axis`` holds the values searched for (t_max or twice the midpoint).
    """

    t_min: NDArray[np.int64]
    t_max: NDArray[np.int64]
    position: NDArray[np.int32]
    axis: NDArray[np.int64]
    starts: NDArray[np.int64]

    def check(self) -> None:
        """Raise AssertionError unless the invariants hold. O(n log n); for tests."""
        n = self.t_min.size
        assert self.starts[0] == 0 and self.starts[-1] == n and (np.diff(self.starts) >= 0).all()
        assert np.array_equal(np.sort(self.position), np.arange(n))
        for first, last in zip(self.starts[:-1].tolist(), self.starts[1:].tolist(), strict=True):
            assert (np.diff(self.axis[first:last]) >= 0).all()


@compiled((READ_INT64, WRITE_INT64))
def _count_keys(key: NDArray[np.int64], starts: NDArray[np.int64]) -> None:
    for code in key:
        starts[code + 1] += 1
    for k in range(1, starts.size):
        starts[k] += starts[k - 1]


@compiled((READ_INT64, READ_INT32, READ_INT64, WRITE_INT32))
def _group_by_key(
    key: NDArray[np.int64], order: NDArray[np.int32], starts: NDArray[np.int64], out: NDArray[np.int32]
) -> None:
    # Stable: rows of a key keep the order in which `order` names them. An empty `order` is the arrival order.
    free = starts.copy()
    for i in range(key.size):
        row = order[i] if order.size else np.int32(i)
        code = key[row]
        out[free[code]] = row
        free[code] += 1


@compiled((READ_INT32, READ_INT64, READ_INT64, WRITE_INT64, WRITE_INT64))
def _gather(
    order: NDArray[np.int32],
    t_min: NDArray[np.int64],
    t_max: NDArray[np.int64],
    out_min: NDArray[np.int64],
    out_max: NDArray[np.int64],
) -> None:
    for i in range(order.size):
        out_min[i] = t_min[order[i]]
        out_max[i] = t_max[order[i]]


@compiled(BOOL(READ_INT64, READ_INT64))
def _is_ordered(axis: NDArray[np.int64], starts: NDArray[np.int64]) -> bool:
    for k in range(starts.size - 1):
        for i in range(starts[k] + 1, starts[k + 1]):
            if axis[i] < axis[i - 1]:
                return False
    return True


@compiled(BOOL(WRITE_INT64, WRITE_INT32, READ_INT64, INT64))
def _insertion_sort(
    axis: NDArray[np.int64], order: NDArray[np.int32], starts: NDArray[np.int64], budget: int
) -> bool:
    # Stable, inside each key. False when the rows were too far from their places; the arrays are then half sorted.
    for k in range(starts.size - 1):
        first = starts[k]
        for i in range(first + 1, starts[k + 1]):
            value = axis[i]
            if axis[i - 1] <= value:
                continue
            row = order[i]
            j = i
            while j > first and axis[j - 1] > value:
                axis[j] = axis[j - 1]
                order[j] = order[j - 1]
                j -= 1
            axis[j] = value
            order[j] = row
            budget -= i - j
            if budget < 0:
                return False
    return True


def _axis_values(times: Times, axis: Axis) -> NDArray[np.int64]:
    return times.t_min + times.t_max if axis == "midpoint" else times.t_max


def _starts(times: Times, keys: int) -> NDArray[np.int64]:
    starts = np.zeros(keys + 1, np.int64)
    if times.key is None:
        starts[1:] = len(times)
    else:
        _count_keys(times.key, starts)
    return starts


def order_rows(times: Times, axis: Axis, keys: int) -> OrderedRows:
    """Group ``times`` by key and order each key's rows along ``axis`` ("arrival" keeps the order of arrival).

    ``keys`` is one more than the greatest code of either side (1 without keys). The arrays of ``times`` must be contiguous int64 and the
    codes within range; they are returned as they are when nothing has to move. O(n + keys) for rows nearly in order, O(n log n) otherwise;
    stable.

    >>> rows = order_rows(Times(np.array([5, 1, 3]), np.array([6, 9, 4]), np.array([1, 0, 1])), "t_max", 2)
    >>> rows.position.tolist(), rows.axis.tolist(), rows.starts.tolist()
    ([1, 2, 0], [9, 4, 6], [0, 1, 3])
    """
    arrival = np.arange(len(times), dtype=np.int32)
    starts = _starts(times, keys)
    values = _axis_values(times, axis)
    grouped = times.key is None or keys == 1 or _is_ordered(times.key, np.array([0, len(times)]))
    if grouped and (axis == "arrival" or _is_ordered(values, starts)):
        return OrderedRows(times.t_min, times.t_max, arrival, values, starts)
    order = arrival
    if not grouped:
        assert times.key is not None
        order = np.empty_like(arrival)
        _group_by_key(times.key, arrival[:0], starts, order)
    if axis != "arrival":
        order = _order_within_keys(times, values, order, starts)
    t_min, t_max = np.empty_like(times.t_min), np.empty_like(times.t_max)
    _gather(order, times.t_min, times.t_max, t_min, t_max)
    return OrderedRows(t_min, t_max, order, _axis_values(Times(t_min, t_max), axis), starts)


def _order_within_keys(
    times: Times, values: NDArray[np.int64], order: NDArray[np.int32], starts: NDArray[np.int64]
) -> NDArray[np.int32]:
    nearly = order.copy()
    if _insertion_sort(values[order], nearly, starts, _MOVES_PER_ROW * len(times)):
        return nearly
    by_time = np.argsort(values, kind="stable").astype(np.int32)
    if times.key is None:
        return by_time
    _group_by_key(times.key, by_time, starts, nearly)
    return nearly

"""Kernels of coalescing: one pass over rows in time order; grouping and sorting of other rows.

All take group codes `low .. low + groups - 1` (0-based if there is no `low`) and times in microseconds, and write to
arrays that the caller allocated.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from whenabouts.core.arrays.jit import (
    BOOL,
    INT64,
    READ_BOOL,
    READ_FLOAT64,
    READ_INT64,
    TWO_INT64,
    WRITE_INT32,
    WRITE_INT64,
    compiled,
)
from whenabouts.core.arrays.typing import BoolArray, IntArray, Positions

_RADIX_BITS = 11
_RADIX = 1 << _RADIX_BITS
_SMALL = 64
"""Groups of up to this size are sorted by insertion."""

READ_INT32 = types.Array(types.int32, 1, "C", readonly=True)


@compiled(TWO_INT64(READ_INT64))
def least_and_greatest(values: IntArray) -> Any:
    """The least and the greatest value in one pass; (0, -1) for an empty array.

    >>> least_and_greatest(np.array([3, 1, 2]))
    (1, 3)
    """
    if len(values) == 0:
        return 0, -1
    low = high = values[0]
    for value in values:
        low = min(low, value)
        high = max(high, value)
    return low, high


def _runs_in_order(
    times: IntArray,
    codes: IntArray,
    low: int,
    groups: int,
    values: NDArray[Any],
    first: IntArray,
    start: IntArray,
    end: IntArray,
    n: IntArray,
    last: IntArray,
) -> Any:
    """Runs of equal values in one pass over rows whose times strictly increase within each group.

    Writes for each run, in the order of first rows, its first row, `[start, end)`, its row count, and the time of its
    last row. Returns the number of runs, or -1 if the rows are not in that order. No nulls.
    """
    last_time = np.empty(groups, np.int64)
    last_run = np.full(groups, -1, np.int64)
    last_value = np.empty(groups, values.dtype)
    count = np.empty(groups, np.int64)
    runs = 0
    for row in range(len(times)):
        group = codes[row] - low
        time, value, run = times[row], values[row], last_run[group]
        if run >= 0:
            if time <= last_time[group]:
                return -1
            previous = last_value[group]
            if value == previous or (value != value and previous != previous):
                count[group] += 1
                last_time[group] = time
                continue
            end[run] = time
            n[run] = count[group]
            last[run] = last_time[group]
        first[runs] = row
        start[runs] = time
        last_run[group] = runs
        last_value[group] = value
        last_time[group] = time
        count[group] = 1
        runs += 1
    for group in range(groups):
        if last_run[group] >= 0:
            end[last_run[group]] = last_time[group]
            n[last_run[group]] = count[group]
            last[last_run[group]] = last_time[group]
    return runs


_SHAPE = (READ_INT64, READ_INT64, INT64, INT64), (WRITE_INT64,) * 5
runs_in_order_of_integers = compiled(INT64(*_SHAPE[0], READ_INT64, *_SHAPE[1]))(_runs_in_order)
runs_in_order_of_floats = compiled(INT64(*_SHAPE[0], READ_FLOAT64, *_SHAPE[1]))(_runs_in_order)


@compiled((READ_INT64, INT64, INT64, WRITE_INT32, WRITE_INT64))
def group_rows(codes: IntArray, low: int, groups: int, order: Positions, starts: IntArray) -> None:
    """Row indices by group, ascending within each; group g is `order[starts[g] : starts[g + 1]]`.

    >>> order, starts = np.empty(3, np.int32), np.empty(3, np.int64)
    >>> group_rows(np.array([6, 5, 6]), 5, 2, order, starts)
    >>> order.tolist(), starts.tolist()
    ([1, 0, 2], [0, 1, 3])
    """
    starts[:] = 0
    for code in codes:
        starts[code - low + 1] += 1
    for group in range(groups):
        starts[group + 1] += starts[group]
    free = starts[:groups].copy()
    for row in range(len(codes)):
        group = codes[row] - low
        order[free[group]] = row
        free[group] += 1


@compiled(BOOL(READ_INT64, READ_INT64, WRITE_INT32, WRITE_INT64))
def sort_by_time(times: IntArray, starts: IntArray, order: Positions, sorted_times: IntArray) -> Any:
    """Sort each group's rows by time, stably, and write their times to `sorted_times`; sorted groups are not moved.

    Each group is sorted separately (LSD radix sort, 11 bits a digit), so that it stays in the CPU cache. Returns
    whether two rows of a group have the same time.
    """
    most = 0
    for group in range(len(starts) - 1):
        most = max(most, starts[group + 1] - starts[group])
    key_a, key_b = np.empty(most, np.int64), np.empty(most, np.int64)
    row_a, row_b = np.empty(most, np.int32), np.empty(most, np.int32)
    counts = np.empty(_RADIX, np.int64)
    has_ties = False
    for group in range(len(starts) - 1):
        begin, size = starts[group], starts[group + 1] - starts[group]
        rises = True
        low = high = np.int64(0)
        for i in range(size):
            time = times[order[begin + i]]
            sorted_times[begin + i] = time
            if i == 0:
                low = high = time
            else:
                rises &= time > sorted_times[begin + i - 1]
                low = min(low, time)
                high = max(high, time)
        if rises:
            continue
        if size <= _SMALL:
            for i in range(1, size):
                time, row = sorted_times[begin + i], order[begin + i]
                j = begin + i - 1
                while j >= begin and sorted_times[j] > time:
                    sorted_times[j + 1] = sorted_times[j]
                    order[j + 1] = order[j]
                    j -= 1
                sorted_times[j + 1] = time
                order[j + 1] = row
        else:
            for i in range(size):
                key_a[i] = sorted_times[begin + i] - low
                row_a[i] = order[begin + i]
            shift = 0
            while (high - low) >> shift > 0:
                counts[:] = 0
                for i in range(size):
                    counts[(key_a[i] >> shift) & (_RADIX - 1)] += 1
                total = 0
                for digit in range(_RADIX):
                    here = counts[digit]
                    counts[digit] = total
                    total += here
                for i in range(size):
                    digit = (key_a[i] >> shift) & (_RADIX - 1)
                    to = counts[digit]
                    counts[digit] = to + 1
                    key_b[to] = key_a[i]
                    row_b[to] = row_a[i]
                key_a, key_b = key_b, key_a
                row_a, row_b = row_b, row_a
                shift += _RADIX_BITS
            for i in range(size):
                sorted_times[begin + i] = key_a[i] + low
                order[begin + i] = row_a[i]
        for i in range(1, size):
            has_ties |= sorted_times[begin + i] == sorted_times[begin + i - 1]
    return has_ties


@compiled(INT64(READ_INT64, READ_BOOL, READ_INT64, READ_INT64, WRITE_INT64, WRITE_INT64, WRITE_INT64, WRITE_INT64))
def runs_of_ranges(
    times: IntArray,
    linked: BoolArray,
    lows: IntArray,
    highs: IntArray,
    run_range: IntArray,
    first: IntArray,
    end: IntArray,
    n: IntArray,
) -> Any:
    """The runs of each range `[lows[r], highs[r])` of sorted tuples of one group.

    `linked[i]`: tuple i extends tuple i - 1. The first tuple of a range always begins a run, and the last run ends with
    the last tuple. Returns the number of runs.
    """
    found = 0
    for r in range(len(lows)):
        at, stop = lows[r], highs[r]
        while at < stop:
            head = at
            at += 1
            while at < stop and linked[at]:
                at += 1
            run_range[found] = r
            first[found] = head
            end[found] = times[at] if at < stop else times[stop - 1]
            n[found] = at - head
            found += 1
    return found


@compiled(INT64(READ_INT64, INT64, INT64, INT64), inline=True)
def first_from(times: IntArray, low: int, high: int, us: int) -> Any:
    """The first index in `[low, high)` whose time is at or after `us`, or `high`."""
    while low < high:
        middle = (low + high) // 2
        if times[middle] < us:
            low = middle + 1
        else:
            high = middle
    return low


@compiled((READ_INT64, READ_INT64, READ_INT64, READ_INT64, READ_INT64, WRITE_INT64, WRITE_INT64))
def ranges_between(
    keys: IntArray,
    starts: IntArray,
    stops: IntArray,
    least: IntArray,
    greatest: IntArray,
    lows: IntArray,
    highs: IntArray,
) -> None:
    """The index ranges of the tuples with `least[k] <= key <= greatest[k]` of each group.

    Keys increase within a group, and both bounds with k. Group g is `[starts[g], stops[g])`; its range k is number
    `g * len(least) + k`. O(groups log tuples + tuples that enter or leave a range + ranges).
    """
    instants = len(least)
    for group in range(len(starts) if instants > 0 else 0):
        stop = stops[group]
        low = first_from(keys, starts[group], stop, least[0])
        high = first_from(keys, low, stop, greatest[0])
        for k in range(instants):
            while high < stop and keys[high] <= greatest[k]:
                high += 1
            while low < stop and keys[low] < least[k]:
                low += 1
            lows[group * instants + k] = low
            highs[group * instants + k] = max(low, high)


@compiled(INT64(
    READ_INT64, READ_INT64, READ_INT64, INT64, INT64, INT64, INT64,
    WRITE_INT64, WRITE_INT64, WRITE_INT64, WRITE_INT64,
))  # fmt: skip
def sliding_ranges(
    times: IntArray,
    starts: IntArray,
    stops: IntArray,
    slide: int,
    reach: int,
    first: int,
    last: int,
    group: IntArray,
    instants: IntArray,
    lows: IntArray,
    highs: IntArray,
) -> Any:
    """The non-empty ranges of tuples with `k * slide - reach <= time <= k * slide`, for `first <= k <= last`.

    Group g is `[starts[g], stops[g])`, in time order. Instants without tuples cost nothing, and all tuples up to the
    first instant cost one binary search. With empty output arrays it only counts. Returns the number of ranges.
    O(groups log tuples + tuples that enter or leave a range + ranges); to count, O(groups log tuples + tuples).
    """
    counting = len(lows) == 0
    found = 0
    for g in range(len(starts)):
        low = high = starts[g]
        stop = stops[g]
        if low < stop and times[low] <= first * slide and first <= last:
            high = first_from(times, low, stop, first * slide + 1)
            low = first_from(times, low, high, first * slide - reach)
        k = first
        if counting:  # tuple by tuple: an instant has a range if it lies at most `reach` after a tuple
            for i in range(low, stop):
                begin = max(k, -(-times[i] // slide))
                end = min(last, (times[i] + reach) // slide)
                if begin > last:
                    break
                if begin <= end:
                    found += end - begin + 1
                    k = end + 1
            continue
        while k <= last:
            if low == high:
                if high == stop:
                    break
                k = max(k, -(-times[high] // slide))
                if k > last:
                    break
            at = k * slide
            while high < stop and times[high] <= at:
                high += 1
            while low < high and times[low] < at - reach:
                low += 1
            if low < high:
                group[found] = g
                instants[found] = at
                lows[found] = low
                highs[found] = high
                found += 1
            k += 1
    return found

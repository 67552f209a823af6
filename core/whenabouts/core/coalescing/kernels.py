"""Kernels of coalescing: runs of rows in time order, and of ranges of tuples.

All take group codes `low .. low + groups - 1` (0-based if there is no `low`) and times in microseconds, and write to
arrays that the caller allocated.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.jit import (
    BOOL,
    INT64,
    READ_BOOL,
    READ_FLOAT64,
    READ_INT64,
    WRITE_FLOAT64,
    WRITE_INT32,
    WRITE_INT64,
    compiled,
)
from whenabouts.core.arrays.typing import BoolArray, IntArray, Positions


def _runs_in_order(
    times: IntArray,
    codes: IntArray,
    low: int,
    values: NDArray[Any],
    by_group: bool,
    first_of: Positions,
    first: Positions,
    start: IntArray,
    end: IntArray,
    n: IntArray,
    last: IntArray,
    code: IntArray,
    shown: NDArray[Any],
) -> Any:
    """Runs of equal values in one pass over rows whose times strictly increase within each group.

    Writes for each run, in the order of first rows and from index 1 on, `[start, end)`, its row count, and, unless
    these arrays are empty, its first row (`by_group`: its group), the time of its last row, the code of its group, and
    the value of its first row. `first_of`: the first row of each group that has any. Returns the number of runs, or -1
    if the rows are not in that order. The arrays have room for a run of each row and one more. No nulls.
    """
    # Whether a row begins a run cannot be predicted, so that nothing branches on it: every row is written as a run of
    # its own, which the next new run overwrites, and as the end of its group's run so far (0: none yet).
    run_of = np.zeros(len(first_of), np.uint32)
    value_of = np.empty(len(first_of), values.dtype)
    new = np.uint64(1)
    for row in range(len(times)):
        at = np.uint64(row)  # unsigned: numba omits the test for negative indices
        group = np.uint64(codes[at] - low)
        time, value = times[at], values[at]
        run, previous = np.uint64(run_of[group]), value_of[group]
        if len(first) > 0:
            first[new] = group if by_group else row
        if len(code) > 0:
            code[new] = codes[at]
        start[new] = end[new] = time
        n[new] = 1
        if len(shown) > 0:
            shown[new] = value
        value_of[group] = value
        same = False
        if run == 0:
            first_of[group] = row
        elif time <= end[run]:
            return -1
        else:
            same = (value == previous) | ((value != value) & (previous != previous))
            end[run] = time
            n[run] += np.int64(same)
        now = run if same else new
        if len(last) > 0:
            last[now] = time
        run_of[group] = now
        new += np.uint64(not same)
    return np.int64(new) - 1


_SHAPE = (READ_INT64, READ_INT64, INT64), (BOOL, WRITE_INT32, WRITE_INT32, *(WRITE_INT64,) * 5)
runs_in_order_of_integers = compiled(INT64(*_SHAPE[0], READ_INT64, *_SHAPE[1], WRITE_INT64))(_runs_in_order)
runs_in_order_of_floats = compiled(INT64(*_SHAPE[0], READ_FLOAT64, *_SHAPE[1], WRITE_FLOAT64))(_runs_in_order)


@compiled(BOOL(READ_INT64, READ_INT64, INT64, WRITE_INT64, WRITE_INT32, WRITE_INT64))
def rows_in_order(
    times: IntArray, codes: IntArray, low: int, starts: IntArray, at: Positions, in_groups: IntArray
) -> bool:
    """Rows by group, as they came: their indices, their times, and where groups start. False, with nothing of use
    written, unless times strictly increase in each group.

    `starts` has one element more than there are groups, all 0. O(n + groups).

    >>> starts, at, times = np.zeros(3, np.int64), np.empty(3, np.int32), np.empty(3, np.int64)
    >>> rows_in_order(np.array([5, 5, 6]), np.array([8, 7, 8]), 7, starts, at, times)
    True
    >>> starts.tolist(), at.tolist(), times.tolist()
    ([0, 1, 3], [1, 0, 2], [5, 5, 6])
    """
    for code in codes:
        starts[np.uint64(code - low) + np.uint64(1)] += 1
    for number in range(1, len(starts)):
        starts[number] += starts[number - 1]
    free = starts[:-1].copy()
    for row in range(len(codes)):
        group = np.uint64(codes[row] - low)
        to, time = free[group], times[row]
        if to > starts[group] and time <= in_groups[np.uint64(to - 1)]:
            return False
        free[group] = to + 1
        at[np.uint64(to)] = row
        in_groups[np.uint64(to)] = time
    return True


@compiled(INT64(READ_INT64, READ_BOOL, WRITE_INT64, WRITE_INT64, WRITE_INT64, WRITE_INT64, WRITE_INT32))
def split_runs(
    times: IntArray,
    begins: BoolArray,
    heads: IntArray,
    starts: IntArray,
    ends: IntArray,
    more: IntArray,
    offsets: Positions,
) -> Any:
    """Runs and the vectors of their later times: run r begins with tuple `heads[r]` at `starts[r]`, its last one is at
    `ends[r]`, and its times after the first one are `more[offsets[r] : offsets[r + 1]]`. Returns how many there are.

    The first tuple begins a run. The arrays have room for a run of each tuple and one more.
    """
    runs = others = np.uint64(0)
    one = np.uint64(1)
    for at in range(len(times)):  # which tuples begin a run cannot be predicted: each is written as if it did both
        time, begin = times[np.uint64(at)], np.uint64(begins[np.uint64(at)] | (at == 0))
        heads[runs], starts[runs], offsets[runs], more[others] = at, time, others, time
        runs += begin
        others += one - begin
        ends[runs - one] = time
    offsets[runs] = others
    return np.int64(runs)


@compiled(INT64(READ_BOOL, READ_INT64, READ_INT64))
def count_runs_of_ranges(linked: BoolArray, lows: IntArray, highs: IntArray) -> Any:
    """How many runs `runs_of_ranges` finds. O(tuples in ranges), a byte each.

    >>> count_runs_of_ranges(np.array([True, False, True, False]), np.array([0, 1, 2]), np.array([4, 3, 2]))
    4
    """
    found = 0
    for r in range(len(lows)):
        if lows[r] < highs[r]:
            found += 1
            for at in range(lows[r] + 1, highs[r]):
                if not linked[at]:
                    found += 1
    return found


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

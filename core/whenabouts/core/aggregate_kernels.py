"""Kernels of temporal aggregates over ranges of tuples that slide forward within each group."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from whenabouts.core.compiled import BOOL, INT64, READ_FLOAT64, READ_INT64, WRITE_FLOAT64, WRITE_INT64, compiled

IntArray = NDArray[np.int64]
READ_BOOL = types.Array(types.boolean, 1, "C", readonly=True)


@compiled((WRITE_INT64, INT64, INT64), inline=True)
def _add(tree: IntArray, rank: int, change: int) -> None:
    """Fenwick tree: `change` more elements of a rank (from 0)."""
    at = rank + 1
    while at < len(tree):
        tree[at] += change
        at += at & -at


@compiled(INT64(READ_INT64, INT64), inline=True)
def _rank_of(tree: IntArray, k: int) -> Any:
    """The rank of the k-th smallest element (from 1)."""
    at, step = 0, 1
    while step * 2 < len(tree):
        step *= 2
    while step > 0:
        if at + step < len(tree) and tree[at + step] < k:
            at += step
            k -= tree[at]
        step //= 2
    return at


@compiled((
    READ_INT64, READ_BOOL, READ_BOOL, READ_INT64, READ_INT64, BOOL,
    WRITE_INT64, WRITE_INT64, WRITE_INT64, WRITE_INT64, WRITE_INT64,
))  # fmt: skip
def aggregate_ranges(
    times: IntArray,
    linked: NDArray[np.bool_],
    passes: NDArray[np.bool_],
    lows: IntArray,
    highs: IntArray,
    needs_median: bool,
    counts: IntArray,
    sums: IntArray,
    greatest: IntArray,
    least: IntArray,
    twice_median: IntArray,
) -> None:
    """Count, sum, greatest, least and (twice the) median duration of the coalesced tuples of each range.

    Ranges `[lows[r], highs[r])` are not empty; those of a group follow each other, and their ends do not go back. A run
    counts if the tuple that begins it in the range passes. O(tuples + ranges), times log(runs) for medians.
    """
    size = len(times)
    run_of = np.empty(size, np.int64)
    heads = np.empty(size + 1, np.int64)
    runs = 0
    for i in range(size):
        if not linked[i]:
            heads[runs] = i
            runs += 1
        run_of[i] = runs - 1
    heads[runs] = size
    # Runs inside a range, neither first nor last, end where the next one begins.
    duration = np.zeros(runs, np.int64)
    counted, total = np.zeros(runs + 1, np.int64), np.zeros(runs + 1, np.int64)
    for r in range(runs):
        if r + 1 < runs:
            duration[r] = times[heads[r + 1]] - times[heads[r]]
        counted[r + 1] = counted[r] + passes[heads[r]]
        total[r + 1] = total[r] + (duration[r] if passes[heads[r]] else 0)
    rank = np.empty(runs if needs_median else 0, np.int64)
    by_rank = np.empty(runs if needs_median else 0, np.int64)
    if needs_median:
        order = np.argsort(duration)
        for place in range(runs):
            rank[order[place]] = place
            by_rank[place] = duration[order[place]]
    tree = np.zeros(runs + 1 if needs_median else 1, np.int64)
    high_queue, low_queue = np.empty(runs, np.int64), np.empty(runs, np.int64)
    high_from = high_to = low_from = low_to = 0
    inside, done = 0, 0  # runs [inside, done) are in the queues and in the tree
    for r in range(len(lows)):
        first, last = run_of[lows[r]], run_of[highs[r] - 1]
        start, stop = first + 1, max(last, first + 1)
        if start < inside or stop < done or start >= done:
            # Another group, or nothing in common with the range before: begin anew.
            for run in range(inside, done):
                if needs_median and passes[heads[run]]:
                    _add(tree, rank[run], -1)
            high_from = high_to = low_from = low_to = 0
            inside = done = start
        while inside < start:
            if needs_median and passes[heads[inside]]:
                _add(tree, rank[inside], -1)
            inside += 1
        while high_from < high_to and high_queue[high_from] < inside:
            high_from += 1
        while low_from < low_to and low_queue[low_from] < inside:
            low_from += 1
        while done < stop:
            if passes[heads[done]]:
                while high_to > high_from and duration[high_queue[high_to - 1]] <= duration[done]:
                    high_to -= 1
                high_queue[high_to] = done
                high_to += 1
                while low_to > low_from and duration[low_queue[low_to - 1]] >= duration[done]:
                    low_to -= 1
                low_queue[low_to] = done
                low_to += 1
                if needs_median:
                    _add(tree, rank[done], 1)
            done += 1
        n, in_all = counted[stop] - counted[start], total[stop] - total[start]
        most = duration[high_queue[high_from]] if high_from < high_to else 0
        fewest = duration[low_queue[low_from]] if low_from < low_to else 0
        at_ends = 0
        one = other = np.int64(0)
        if passes[lows[r]]:
            one = (times[heads[first + 1]] if last > first else times[highs[r] - 1]) - times[lows[r]]
            at_ends = 1
        if last > first and passes[heads[last]]:
            here = times[highs[r] - 1] - times[heads[last]]
            if at_ends == 0:
                one = here
            else:
                other = here
            at_ends += 1
        if at_ends > 0:
            most = max(most, one) if n > 0 else one
            fewest = min(fewest, one) if n > 0 else one
        if at_ends > 1:
            most = max(most, other)
            fewest = min(fewest, other)
        counts[r], sums[r], greatest[r], least[r] = n + at_ends, in_all + one + other, most, fewest
        if needs_median and n + at_ends > 0:
            if at_ends > 1 and one > other:
                one, other = other, one
            total_n = n + at_ends
            lower = upper = np.int64(0)
            for which in range(2):
                k = (total_n + 1) // 2 if which == 0 else total_n // 2 + 1
                value = np.int64(0)
                # The k-th of the inner runs and up to two more: as many of these come before it as are not larger.
                for before in range(at_ends + 1):
                    inner = k - before
                    if inner >= 1 and inner <= n:
                        candidate = by_rank[_rank_of(tree, inner)]
                        fits_below = before == 0 or (one if before == 1 else other) <= candidate
                        fits_above = before == at_ends or (one if before == 0 else other) >= candidate
                        if fits_below and fits_above:
                            value = candidate
                            break
                    if before > 0:
                        extra = one if before == 1 else other
                        taken = k - before  # inner runs before the extra one
                        if taken >= 0 and taken <= n:
                            low_ok = taken == 0 or by_rank[_rank_of(tree, taken)] <= extra
                            high_ok = taken == n or by_rank[_rank_of(tree, taken + 1)] >= extra
                            if low_ok and high_ok:
                                value = extra
                                break
                if which == 0:
                    lower = value
                else:
                    upper = value
            twice_median[r] = lower + upper


@compiled((READ_INT64, READ_BOOL, READ_BOOL, READ_FLOAT64, READ_INT64, READ_INT64, WRITE_FLOAT64, WRITE_INT64))
def weigh_ranges(
    times: IntArray,
    linked: NDArray[np.bool_],
    counts: NDArray[np.bool_],
    values: NDArray[np.float64],
    lows: IntArray,
    highs: IntArray,
    weighted: NDArray[np.float64],
    total: IntArray,
) -> None:
    """Sums of value times duration, and of durations, over the runs of each range that count.

    Summed anew in each range, in order of time: differences of running sums of floats would depend on what went before.
    O(tuples in ranges).
    """
    for r in range(len(lows)):
        at, stop = lows[r], highs[r]
        while at < stop:
            head = at
            at += 1
            while at < stop and linked[at]:
                at += 1
            if counts[head]:
                duration = (times[at] if at < stop else times[stop - 1]) - times[head]
                weighted[r] += values[head] * duration
                total[r] += duration

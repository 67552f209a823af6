"""Kernels of temporal aggregates over ranges of tuples that slide forward within each group.

The runs *inside* a range, that is all but its first and last one, have final durations. Their count and sum are
maintained, their greatest and least durations in monotone queues, and for medians the durations are kept sorted. This
is stored per group, in a row of numbers and in three arrays parallel to the tuples. So a range costs the tuples that
were added and dropped since the range before, whether that was in the same call or in an earlier one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from whenabouts.core.arrays.jit import (
    BOOL,
    INT64,
    READ_BOOL,
    READ_FLOAT64,
    READ_INT64,
    WRITE_FLOAT64,
    WRITE_INT64,
    WRITE_INT64_2D,
    compiled,
)
from whenabouts.core.arrays.typing import BoolArray, FloatArray, IntArray
from whenabouts.core.coalescing.kernels import first_from

BASE, ROOM, BEGIN, END, SCANNED, HEAD, NEXT, INSIDE, SUM, HIGH_FROM, HIGH_TO, LOW_FROM, LOW_TO, COUNTED = range(14)
"""The columns of a group's row of numbers. BASE, ROOM: its block of indices; BEGIN, END: its tuples in it. SCANNED: the
first index not scanned yet; HEAD: the last head before it; NEXT: the first head after the first tuple of the last
range. INSIDE, SUM: the number of runs inside, and the sum of their durations. HIGH_*, LOW_*: the monotone queues, as
rings over the block, whose size is a power of two. COUNTED: how many tuples the group has had so far."""
WIDTH = 14

_ONE = np.uint64(1)
"""numba does not test unsigned indices for being negative, so that the moves of durations can be vectorised."""

_QUEUES = (WRITE_INT64,) * 3


@compiled((WRITE_INT64_2D, *_QUEUES, INT64, INT64, BOOL, BOOL), inline=True)
def _enter(
    groups: IntArray,
    high: IntArray,
    low: IntArray,
    ordered: IntArray,
    of: int,
    duration: int,
    extremes: bool,
    median: bool,
) -> None:
    """Add a run of this duration to the runs inside."""
    base, room, inside = groups[of, BASE], groups[of, ROOM], groups[of, INSIDE]
    if extremes:
        first, to = groups[of, HIGH_FROM], groups[of, HIGH_TO]
        while to > first and high[base + ((to - 1) & (room - 1))] < duration:
            to -= 1
        high[base + (to & (room - 1))] = duration
        groups[of, HIGH_TO] = to + 1
        first, to = groups[of, LOW_FROM], groups[of, LOW_TO]
        while to > first and low[base + ((to - 1) & (room - 1))] > duration:
            to -= 1
        low[base + (to & (room - 1))] = duration
        groups[of, LOW_TO] = to + 1
    if median:
        at = np.uint64(first_from(ordered, base, base + inside, duration))
        i = np.uint64(base + inside)
        while i > at:
            ordered[i] = ordered[i - _ONE]
            i -= _ONE
        ordered[at] = duration
    groups[of, INSIDE] = inside + 1
    groups[of, SUM] += duration


@compiled((WRITE_INT64_2D, *_QUEUES, INT64, INT64, BOOL, BOOL), inline=True)
def _leave(
    groups: IntArray,
    high: IntArray,
    low: IntArray,
    ordered: IntArray,
    of: int,
    duration: int,
    extremes: bool,
    median: bool,
) -> None:
    """Remove the oldest run inside, which has this duration."""
    base, room, inside = groups[of, BASE], groups[of, ROOM], groups[of, INSIDE]
    if extremes:
        if high[base + (groups[of, HIGH_FROM] & (room - 1))] == duration:
            groups[of, HIGH_FROM] += 1
        if low[base + (groups[of, LOW_FROM] & (room - 1))] == duration:
            groups[of, LOW_FROM] += 1
    if median:
        i, last = np.uint64(first_from(ordered, base, base + inside, duration)), np.uint64(base + inside - 1)
        while i < last:
            ordered[i] = ordered[i + _ONE]
            i += _ONE
    groups[of, INSIDE] = inside - 1
    groups[of, SUM] -= duration


_TUPLES = (READ_INT64, READ_BOOL, READ_BOOL)


@compiled((WRITE_INT64_2D, *_TUPLES, *_QUEUES, INT64, INT64, BOOL, BOOL), inline=True)
def _begin_at(
    groups: IntArray,
    times: IntArray,
    linked: BoolArray,
    passes: BoolArray,
    high: IntArray,
    low: IntArray,
    ordered: IntArray,
    of: int,
    first: int,
    extremes: bool,
    median: bool,
) -> None:
    """The next range begins at index `first`: remove the runs that begin at or before it."""
    scanned = groups[of, SCANNED]
    head = groups[of, NEXT]
    while head <= first and head < scanned:
        stop = head + 1
        while stop < scanned and linked[stop]:
            stop += 1
        if head < groups[of, HEAD] and passes[head]:
            _leave(groups, high, low, ordered, of, times[stop] - times[head], extremes, median)
        head = stop
    groups[of, NEXT] = head


@compiled((WRITE_INT64_2D, *_TUPLES, *_QUEUES, INT64, INT64, BOOL, BOOL), inline=True)
def _scan_up_to(
    groups: IntArray,
    times: IntArray,
    linked: BoolArray,
    passes: BoolArray,
    high: IntArray,
    low: IntArray,
    ordered: IntArray,
    of: int,
    stop: int,
    extremes: bool,
    median: bool,
) -> None:
    """The next range ends before index `stop`: add the runs that another one follows in it."""
    for at in range(groups[of, SCANNED], stop):
        if linked[at]:
            if groups[of, NEXT] == at:
                groups[of, NEXT] = at + 1
            continue
        head = groups[of, HEAD]
        if head >= groups[of, NEXT] and passes[head]:
            _enter(groups, high, low, ordered, of, times[at] - times[head], extremes, median)
        groups[of, HEAD] = at
    groups[of, SCANNED] = stop


@compiled(INT64(WRITE_INT64, INT64, INT64, INT64, INT64, INT64, INT64), inline=True)
def _smallest(ordered: IntArray, base: int, n: int, k: int, extra: int, one: Any, other: Any) -> Any:
    """The k-th smallest (from 1) of `n` sorted durations and `extra` more ones, at most two: `one <= other`."""
    for before in range(extra + 1):
        inner = k - before  # `before` of the extra ones come before it
        if 1 <= inner <= n:
            found = ordered[base + inner - 1]
            below = before == 0 or (one if before == 1 else other) <= found
            if below and (before == extra or (one if before == 0 else other) >= found):
                return found
        if before > 0 and 0 <= inner <= n:
            found = one if before == 1 else other
            below = inner == 0 or ordered[base + inner - 1] <= found
            if below and (inner == n or ordered[base + inner] >= found):
                return found
    return 0


@compiled((
    WRITE_INT64_2D, *_TUPLES, *_QUEUES, READ_INT64, READ_INT64, READ_INT64, BOOL, BOOL,
    WRITE_INT64, WRITE_INT64, WRITE_INT64, WRITE_INT64, WRITE_INT64,
))  # fmt: skip
def aggregate_ranges(
    groups: IntArray,
    times: IntArray,
    linked: BoolArray,
    passes: BoolArray,
    high: IntArray,
    low: IntArray,
    ordered: IntArray,
    of_range: IntArray,
    lows: IntArray,
    highs: IntArray,
    extremes: bool,
    median: bool,
    counts: IntArray,
    sums: IntArray,
    greatest: IntArray,
    least: IntArray,
    twice_median: IntArray,
) -> None:
    """Count, sum, greatest, least and (twice the) median duration of the coalesced tuples of each range.

    Ranges `[lows[r], highs[r])` of group `of_range[r]` are not empty. The ends of a group's ranges never decrease, also
    between calls. A run counts if its first tuple in the range passes the filter. Amortised O(tuples added and dropped
    + ranges); with `median` each run added or dropped also costs a binary search and moves up to 8 bytes for each run
    of the group inside.
    """
    for r in range(len(lows)):
        of, first, stop = of_range[r], lows[r], highs[r]
        if groups[of, SCANNED] <= first:  # no overlap with the range before
            groups[of, INSIDE] = groups[of, SUM] = 0
            groups[of, HIGH_FROM] = groups[of, HIGH_TO] = groups[of, LOW_FROM] = groups[of, LOW_TO] = 0
            groups[of, HEAD] = first
            groups[of, NEXT] = groups[of, SCANNED] = first + 1
        _begin_at(groups, times, linked, passes, high, low, ordered, of, first, extremes, median)
        _scan_up_to(groups, times, linked, passes, high, low, ordered, of, stop, extremes, median)
        base, room, n = groups[of, BASE], groups[of, ROOM], groups[of, INSIDE]
        following, last = groups[of, NEXT], groups[of, HEAD]
        ends = 0  # how many of the first and last run count
        one = other = np.int64(0)
        if passes[first]:
            one = (times[following] if following < stop else times[stop - 1]) - times[first]
            ends = 1
        if following < stop and passes[last]:
            here = times[stop - 1] - times[last]
            if ends == 0:
                one = here
            else:
                one, other = min(one, here), max(one, here)
            ends += 1
        counts[r], sums[r] = n + ends, groups[of, SUM] + one + other
        if extremes and n + ends > 0:
            most = other if ends == 2 else one
            if n > 0:
                inner = high[base + (groups[of, HIGH_FROM] & (room - 1))]
                greatest[r] = max(most, inner) if ends > 0 else inner
                inner = low[base + (groups[of, LOW_FROM] & (room - 1))]
                least[r] = min(one, inner) if ends > 0 else inner
            else:
                greatest[r], least[r] = most, one
        if median and n + ends > 0:
            for k in ((n + ends + 1) // 2, (n + ends) // 2 + 1):
                twice_median[r] += _smallest(ordered, base, n, k, ends, one, other)


@compiled((WRITE_INT64_2D, *_TUPLES, *_QUEUES, READ_INT64, READ_INT64, BOOL, BOOL))
def leave_before(
    groups: IntArray,
    times: IntArray,
    linked: BoolArray,
    passes: BoolArray,
    high: IntArray,
    low: IntArray,
    ordered: IntArray,
    ids: IntArray,
    kept_from: IntArray,
    extremes: bool,
    median: bool,
) -> None:
    """Prepare for dropping the tuples before the indices `kept_from[i]`: no later range has them.

    Amortised O(these tuples + groups).
    """
    for i in range(len(ids)):
        of, first = ids[i], kept_from[i]
        if first < groups[of, SCANNED]:
            _begin_at(groups, times, linked, passes, high, low, ordered, of, first, extremes, median)
            groups[of, HEAD] = max(groups[of, HEAD], first)
        else:
            groups[of, SCANNED] = 0


@compiled((READ_INT64, READ_BOOL, READ_BOOL, READ_FLOAT64, READ_INT64, READ_INT64, WRITE_FLOAT64, WRITE_INT64))
def weigh_ranges(
    times: IntArray,
    linked: BoolArray,
    counts: BoolArray,
    values: FloatArray,
    lows: IntArray,
    highs: IntArray,
    weighted: FloatArray,
    total: IntArray,
) -> None:
    """Sums of value times duration, and of durations, over the runs of each range that count.

    Each range is summed from scratch, in time order: differences of running float sums would depend on earlier tuples.
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

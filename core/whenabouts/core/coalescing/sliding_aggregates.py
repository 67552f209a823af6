"""Kernels of temporal aggregates over ranges of tuples that slide forward within each group.

What a group's last range held is kept in a row of numbers and in three arrays beside the tuples, so that the next range
costs what came and went, in the same call or in a later one: the runs *inside* a range, neither its first nor its last
one, have durations that no longer change. Their number and sum are counted, greatest and least come from monotone
queues, and for medians they lie in order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from whenabouts.core.arrays.jit import (
    BOOL,
    INT64,
    READ_FLOAT64,
    READ_INT64,
    WRITE_FLOAT64,
    WRITE_INT64,
    WRITE_INT64_2D,
    compiled,
)
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.coalescing.kernels import first_from

READ_BOOL = types.Array(types.boolean, 1, "C", readonly=True)

BASE, ROOM, BEGIN, END, SCANNED, HEAD, NEXT, INSIDE, SUM, HIGH_FROM, HIGH_TO, LOW_FROM, LOW_TO, COUNTED = range(14)
"""Of a group: the places that are its own, and its tuples among them; up to where (exclusive) tuples were looked at,
the last head before that, the first head behind the first tuple of the last range; how many runs are inside and their
durations' sum; the monotone queues, as rings (the number of places is a power of two); how many tuples it has had."""
WIDTH = 14

_ONE = np.uint64(1)
"""Places without a sign are not looked at for being negative, so that durations move many at once."""

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
    """A run of this duration is inside from now on."""
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
        place = np.uint64(base + inside)
        while place > at:
            ordered[place] = ordered[place - _ONE]
            place -= _ONE
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
    """The oldest run inside, of this duration, is so no more."""
    base, room, inside = groups[of, BASE], groups[of, ROOM], groups[of, INSIDE]
    if extremes:
        if high[base + (groups[of, HIGH_FROM] & (room - 1))] == duration:
            groups[of, HIGH_FROM] += 1
        if low[base + (groups[of, LOW_FROM] & (room - 1))] == duration:
            groups[of, LOW_FROM] += 1
    if median:
        place, last = np.uint64(first_from(ordered, base, base + inside, duration)), np.uint64(base + inside - 1)
        while place < last:
            ordered[place] = ordered[place + _ONE]
            place += _ONE
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
    """The next range begins with the tuple `first`: runs that begin at it or before it are not inside any more."""
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
    """The next range ends before the tuple `stop`: a run that another one follows there is inside."""
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
    """The k-th smallest (from 1) of `n` durations in order and `extra` more, at most two: `one <= other`."""
    for before in range(extra + 1):
        inner = k - before  # as many of the extra ones come before it as are not larger
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

    Ranges `[lows[r], highs[r])` of group `of_range[r]` are not empty; those of a group follow each other, and their
    ends do not go back, nor behind those of earlier calls. A run counts if the tuple that begins it in the range
    passes. Amortised O(tuples that came and went + ranges); with `median` also a binary search for each run that came
    or went, and a move of at most 8 bytes for each run of the group inside.
    """
    for r in range(len(lows)):
        of, first, stop = of_range[r], lows[r], highs[r]
        if groups[of, SCANNED] <= first:  # nothing in common with the range before
            groups[of, INSIDE] = groups[of, SUM] = 0
            groups[of, HIGH_FROM] = groups[of, HIGH_TO] = groups[of, LOW_FROM] = groups[of, LOW_TO] = 0
            groups[of, HEAD] = first
            groups[of, NEXT] = groups[of, SCANNED] = first + 1
        _begin_at(groups, times, linked, passes, high, low, ordered, of, first, extremes, median)
        _scan_up_to(groups, times, linked, passes, high, low, ordered, of, stop, extremes, median)
        base, room, n = groups[of, BASE], groups[of, ROOM], groups[of, INSIDE]
        following, last = groups[of, NEXT], groups[of, HEAD]
        ends = 0  # runs at the ends of the range that count
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
    which: IntArray,
    stays: IntArray,
    extremes: bool,
    median: bool,
) -> None:
    """Tuples before the places `stays[i]` are about to go: no later range holds them. Amortised O(these + groups)."""
    for i in range(len(which)):
        of, first = which[i], stays[i]
        if first < groups[of, SCANNED]:
            _begin_at(groups, times, linked, passes, high, low, ordered, of, first, extremes, median)
            groups[of, HEAD] = max(groups[of, HEAD], first)
        else:
            groups[of, SCANNED] = 0


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

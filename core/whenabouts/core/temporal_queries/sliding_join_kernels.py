"""Kernels of a join of two windows in memory: which runs change at an instant, and which runs a period touches."""

from __future__ import annotations

from typing import Any

from whenabouts.core.arrays.jit import BOOL, INT64, READ_BOOL, READ_INT64, TWO_INT64, WRITE_BOOL, WRITE_INT64, compiled
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.coalescing.kernels import first_from


@compiled(TWO_INT64(READ_INT64, READ_BOOL, INT64, INT64), inline=True)
def _run_at(times: IntArray, linked: BoolArray, head: int, high: int) -> Any:
    """The index after the run that begins at `head`, and the run's end, in a range up to `high`."""
    at = head + 1
    while at < high and linked[at]:
        at += 1
    return at, times[at] if at < high else times[high - 1]


@compiled(INT64(
    READ_INT64, READ_BOOL, READ_INT64, READ_INT64, READ_INT64, READ_INT64,
    WRITE_INT64, WRITE_BOOL, WRITE_INT64, WRITE_INT64, WRITE_INT64, WRITE_BOOL,
))  # fmt: skip
def changed_runs(
    times: IntArray,
    linked: BoolArray,
    lows: IntArray,
    highs: IntArray,
    first: IntArray,
    last: IntArray,
    new_from: IntArray,
    cut: BoolArray,
    of: IntArray,
    heads: IntArray,
    ends: IntArray,
    is_open: BoolArray,
) -> Any:
    """The new runs of ranges `[lows[i], highs[i])`, whose tuples at the last instant were in `[first[i], last[i]]`.

    New are the runs from `new_from[i]` on (new tuples, and the run that they may extend), and the first run if its
    beginning was cut off. Writes for each run its range, the index of its head, its end, and whether it is the last of
    its range; if `heads` is empty it only counts. O(ranges log tuples + new runs).
    """
    counting = len(heads) == 0
    found = 0
    for i in range(len(lows)):
        low, high = lows[i], highs[i]
        start = first_from(times, low, high, last[i] + 1)
        if low < start < high:
            start -= 1
            while start > low and linked[start]:
                start -= 1
        new_from[i] = start
        cut[i] = linked[low] and times[low] != first[i]
        at = low if cut[i] else start
        while at < high:
            stop, end = _run_at(times, linked, at, high)
            if not counting:
                of[found], heads[found], ends[found], is_open[found] = i, at, end, stop == high
            found += 1
            at = stop if stop > start else start
    return found


@compiled(INT64(
    READ_INT64, READ_INT64, READ_INT64, READ_INT64, READ_BOOL, READ_INT64, READ_INT64, READ_INT64, READ_INT64,
    READ_BOOL, BOOL, WRITE_INT64, WRITE_INT64, WRITE_INT64, WRITE_INT64, WRITE_BOOL,
))  # fmt: skip
def touching_runs(
    starts: IntArray,
    stops: IntArray,
    keys: IntArray,
    times: IntArray,
    linked: BoolArray,
    lows: IntArray,
    highs: IntArray,
    range_keys: IntArray,
    new_from: IntArray,
    cut: BoolArray,
    include_new: bool,
    base: IntArray,
    of: IntArray,
    heads: IntArray,
    ends: IntArray,
    is_open: BoolArray,
) -> Any:
    """For each period `[starts[x], stops[x]]` the runs with its key that share an instant with it or meet it.

    Without `include_new` the runs that `changed_runs` found are left out. Writes as `changed_runs`, plus the period's
    index to `base`. O(periods * ranges of their key * log tuples + runs found).
    """
    counting = len(heads) == 0
    found = 0
    for x in range(len(starts)):
        for i in range(len(lows)):
            if range_keys[i] != keys[x]:
                continue
            low, high = lows[i], highs[i]
            at = first_from(times, low, high, starts[x])
            if at > low:
                at -= 1
                while at > low and linked[at]:
                    at -= 1
            while at < high and times[at] <= stops[x]:
                head = at
                at, end = _run_at(times, linked, head, high)
                is_new = head >= new_from[i] or (head == low and cut[i])
                if end < starts[x] or (is_new and not include_new):
                    continue
                if not counting:
                    base[found], of[found], heads[found], ends[found], is_open[found] = x, i, head, end, at == high
                found += 1
    return found

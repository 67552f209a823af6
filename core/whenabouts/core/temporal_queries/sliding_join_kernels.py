"""Kernels of a join of two windows in memory: which coalesced tuples an instant changes, and which they touch."""

from __future__ import annotations

from typing import Any

from numba import types

from whenabouts.core.arrays.jit import BOOL, INT64, READ_INT64, TWO_INT64, WRITE_INT64, compiled
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.coalescing.kernels import first_from

_READ_BOOL = types.Array(types.boolean, 1, "C", readonly=True)
_WRITE_BOOL = types.Array(types.boolean, 1, "C")


@compiled(TWO_INT64(READ_INT64, _READ_BOOL, INT64, INT64), inline=True)
def _run_at(times: IntArray, linked: BoolArray, head: int, high: int) -> Any:
    """The place behind a run that begins at `head`, and the time at which it ends, in a range up to `high`."""
    at = head + 1
    while at < high and linked[at]:
        at += 1
    return at, times[at] if at < high else times[high - 1]


@compiled(INT64(
    READ_INT64, _READ_BOOL, READ_INT64, READ_INT64, READ_INT64, READ_INT64,
    WRITE_INT64, _WRITE_BOOL, WRITE_INT64, WRITE_INT64, WRITE_INT64, _WRITE_BOOL,
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
    """Runs of ranges `[lows[i], highs[i])` that were not in those before, whose tuples lay in `[first[i], last[i]]`.

    New are those from `new_from[i]` on (what came, and the run that it came behind), and the first one where its
    beginning was cut off. Writes of which range a run is, where it begins, when it ends, and whether it is its range's
    last; with no `heads` only counts. O(ranges log tuples + these runs).
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
    READ_INT64, READ_INT64, READ_INT64, READ_INT64, _READ_BOOL, READ_INT64, READ_INT64, READ_INT64, READ_INT64,
    _READ_BOOL, BOOL, WRITE_INT64, WRITE_INT64, WRITE_INT64, WRITE_INT64, _WRITE_BOOL,
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
    new_too: bool,
    base: IntArray,
    of: IntArray,
    heads: IntArray,
    ends: IntArray,
    is_open: BoolArray,
) -> Any:
    """For each period `[starts[x], stops[x]]` the runs of ranges of its key that share an instant with it or meet it.

    Without `new_too` those that `changed_runs` gave are left out. Writes as `changed_runs`, with the period's number as
    `base`. O(periods * ranges of their key * log tuples + runs found).
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
                if end < starts[x] or (is_new and not new_too):
                    continue
                if not counting:
                    base[found], of[found], heads[found], ends[found], is_open[found] = x, i, head, end, at == high
                found += 1
    return found

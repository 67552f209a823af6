"""Kernels of early answers: the runs that arrivals touch, these runs inside extents, and what links they change."""

from __future__ import annotations

from typing import Any

from numba import types

from whenabouts.core.arrays.jit import (
    INT64,
    READ_INT64,
    READ_INT64_2D,
    TWO_INT64,
    WRITE_INT64,
    WRITE_INT64_2D,
    compiled,
)
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.coalescing.sorted_list_kernels import (
    ARRAYS,
    AT,
    BEGIN,
    DIRECTORY,
    END,
    FIRST,
    SIZE,
    STOP,
    element,
    find,
)

_WRITE_BOOL = types.Array(types.boolean, 1, "C")

NO_NEXT = 2**63 - 1
"""The time of the next tuple, where there is none."""

LIST, EXTENT, FROM, TO, N, VALUES, LATEST = COLUMNS = range(7)
"""The columns of coalesced tuples: list, end of the extent, `[from, to)`, tuple count, row of values, time of the last
tuple (which changes only with the tuple count)."""

INSERT, BEFORE, AFTER, DELETE, DOUBTFUL = 0, 1, 2, 3, 4
"""Indices into `runtime.changes.OPS`. `BEFORE + DOUBTFUL`, `AFTER + DOUBTFUL`: only the rows of values may differ."""

START, ROW, COUNT = range(3)
"""The columns of a carry: where the first tuple's run begins before it, the row of its values, how many tuples."""


@compiled(INT64(*ARRAYS, READ_INT64, READ_INT64, _WRITE_BOOL, WRITE_INT64, WRITE_INT64, WRITE_INT64))
def links_at(
    lists: IntArray,
    chunks: IntArray,
    dirs: IntArray,
    times: IntArray,
    data: IntArray,
    of_list: IntArray,
    wanted: IntArray,
    heads: BoolArray,
    here: IntArray,
    next_time: IntArray,
    next_head: IntArray,
) -> Any:
    """Whether the element at a time, and the one after that time, begin a run: 1 or 0, or -1 if there is none."""
    for i in range(len(wanted)):
        here[i] = next_head[i] = -1
        next_time[i] = NO_NEXT
        of = of_list[i]
        if lists[of, SIZE] == 0:
            continue
        entry, at = find(lists, chunks, dirs, times, data, times[:0], of, wanted[i], 0)
        found = element(lists, chunks, dirs, of, entry, at)
        if found >= 0 and times[found] == wanted[i]:
            here[i] = heads[found]
            chunk = dirs[lists[of, DIRECTORY] + entry]
            if at >= chunks[chunk, END]:
                entry += 1
                at = chunks[dirs[lists[of, DIRECTORY] + entry], BEGIN]
            found = element(lists, chunks, dirs, of, entry, at + 1)
        if found >= 0:
            next_time[i], next_head[i] = times[found], heads[found]
    return len(wanted)


@compiled(
    TWO_INT64(
        *ARRAYS, _WRITE_BOOL, READ_INT64, READ_INT64, WRITE_INT64, _WRITE_BOOL, WRITE_INT64, WRITE_INT64, WRITE_INT64,
        WRITE_INT64,
    )
)  # fmt: skip
def touched_runs(
    lists: IntArray,
    chunks: IntArray,
    dirs: IntArray,
    times: IntArray,
    data: IntArray,
    heads: BoolArray,
    of_list: IntArray,
    wanted: IntArray,
    run_list: IntArray,
    run_is_first: BoolArray,
    run_next: IntArray,
    run_starts: IntArray,
    run_times: IntArray,
    run_data: IntArray,
) -> Any:
    """The runs with the elements at times, before them and after them; the times ascend in each list.

    Run r is `run_starts[r] : run_starts[r + 1]` of `run_times` and `run_data`; `run_next[r]`: the time of the element
    after it, or `NO_NEXT`. Returns the numbers of runs and of elements. O(log n + the elements of these runs).
    """
    runs = count = 0
    done_list, done_time, done_all = -1, 0, False
    for i in range(len(wanted)):
        of = of_list[i]
        if lists[of, SIZE] == 0 or (of == done_list and (wanted[i] < done_time or done_all)):
            continue  # nothing there, or these runs have been written
        base = lists[of, DIRECTORY]
        first_entry, first_at = find(lists, chunks, dirs, times, data, times[:0], of, wanted[i], 0)
        sides = 2
        for side in range(-1, 2):
            if side == sides:
                break
            entry, at = first_entry, first_at + side
            while entry < lists[of, STOP] and at >= chunks[dirs[base + entry], END]:
                at -= chunks[dirs[base + entry], END]
                entry += 1
                if entry < lists[of, STOP]:
                    at += chunks[dirs[base + entry], BEGIN]
            if entry == lists[of, STOP]:
                continue
            if at < chunks[dirs[base + entry], BEGIN]:
                if entry == lists[of, FIRST]:
                    continue
                entry -= 1
                at = chunks[dirs[base + entry], END] - 1
            here = chunks[dirs[base + entry], AT] + at
            if side == 0 and times[here] != wanted[i]:
                sides = 1  # there is none at this time: this is already the one after it
            if of == done_list and times[here] <= done_time:
                continue
            while not heads[here]:  # back to where the run begins
                if at == chunks[dirs[base + entry], BEGIN]:
                    entry -= 1
                    at = chunks[dirs[base + entry], END]
                at -= 1
                here = chunks[dirs[base + entry], AT] + at
            run_list[runs], run_starts[runs], run_next[runs] = of, count, NO_NEXT
            run_is_first[runs] = entry == lists[of, FIRST] and at == chunks[dirs[base + entry], BEGIN]
            head = True
            while head or not heads[here]:
                head = False
                run_times[count], run_data[count] = times[here], data[here]
                count += 1
                done_time = times[here]
                at += 1
                if at == chunks[dirs[base + entry], END]:
                    entry += 1
                    if entry == lists[of, STOP]:
                        break
                    at = chunks[dirs[base + entry], BEGIN]
                here = chunks[dirs[base + entry], AT] + at
            done_list, done_all = of, entry == lists[of, STOP]
            if not done_all:
                run_next[runs] = times[here]
            runs += 1
    run_starts[runs] = count
    return runs, count


@compiled(
    INT64(
        READ_INT64, _WRITE_BOOL, READ_INT64, READ_INT64, READ_INT64, READ_INT64, WRITE_INT64_2D, INT64, INT64, INT64,
        INT64, WRITE_INT64_2D,
    )
)  # fmt: skip
def runs_in_extents(
    run_list: IntArray,
    run_is_first: BoolArray,
    run_next: IntArray,
    run_starts: IntArray,
    run_times: IntArray,
    run_data: IntArray,
    carry: IntArray,
    slide: int,
    reach: int,
    low: int,
    high: int,
    out: IntArray,
) -> Any:
    """Runs cut to the extents `[k * slide - reach, k * slide]`, `low <= k <= high`, or to `[low, high]` if slide is 0.

    Writes rows of `out`, with the columns `LIST` to `LATEST`; the row of values is that of the first tuple.
    `carry`: by list, what precedes the first tuple of its first run. Returns the number of rows; with an empty `out` it
    only counts. O(elements + rows).
    """
    counting = len(out) == 0
    found = 0
    for run in range(len(run_list)):
        start, stop = run_starts[run], run_starts[run + 1]
        if slide == 0:
            k = last = 0
        else:
            k = max(low, -(-run_times[start] // slide))
            last = min(high, (run_times[stop - 1] + reach) // slide)
        first = after = start
        while k <= last:
            at, least = high, low
            if slide != 0:
                at, least = k * slide, k * slide - reach
            while after < stop and run_times[after] <= at:
                after += 1
            while first < after and run_times[first] < least:
                first += 1
            if first == after and slide != 0 and after < stop:  # an extent without a tuple of the run
                k = max(k + 1, -(-run_times[after] // slide))
                continue
            if first < after:
                if not counting:
                    of = run_list[run]
                    begins, row, n = run_times[first], run_data[first], after - first
                    if first == start and run_is_first[run] and carry[of, COUNT] > 0:
                        begins, row, n = carry[of, START], carry[of, ROW], n + carry[of, COUNT]
                    ends = run_times[after - 1]
                    if after == stop and run_next[run] <= at and run_next[run] != NO_NEXT:
                        ends = run_next[run]
                    out[found, LIST], out[found, EXTENT], out[found, FROM] = of, at, begins
                    out[found, TO], out[found, N], out[found, VALUES] = ends, n, row
                    out[found, LATEST] = run_times[after - 1]
                found += 1
            k += 1
    return found


@compiled(INT64(*ARRAYS, _WRITE_BOOL, READ_INT64, INT64, WRITE_INT64_2D, WRITE_INT64, WRITE_INT64))
def carry_settled(
    lists: IntArray,
    chunks: IntArray,
    dirs: IntArray,
    times: IntArray,
    data: IntArray,
    heads: BoolArray,
    of_list: IntArray,
    before: int,
    carry: IntArray,
    passed: IntArray,
    dropped: IntArray,
) -> Any:
    """Note in `carry` the beginning of the run of the last element before a time, in each list.

    `passed[i]`: how many elements precede that one and can be dropped. Writes the data that are then unused, and
    returns their number. O(lists + elements before the time).
    """
    count = 0
    for i in range(len(of_list)):
        of = of_list[i]
        passed[i] = 0
        last = -1
        for entry in range(lists[of, FIRST], lists[of, STOP]):
            chunk = dirs[lists[of, DIRECTORY] + entry]
            begin, end = chunks[chunk, AT] + chunks[chunk, BEGIN], chunks[chunk, AT] + chunks[chunk, END]
            for at in range(begin, end):
                if times[at] >= before:
                    break
                if last >= 0:
                    passed[i] += 1
                    if heads[at]:
                        if carry[of, COUNT] > 0:
                            dropped[count] = carry[of, ROW]
                            count += 1
                        carry[of, COUNT] = 0
                    if not heads[at] and carry[of, COUNT] == 0:
                        carry[of, START], carry[of, ROW] = times[last], data[last]
                    else:
                        dropped[count] = data[last]
                        count += 1
                    carry[of, COUNT] += not heads[at]
                last = at
            if times[end - 1] >= before:
                break
    return count


@compiled(INT64(READ_INT64_2D, READ_INT64_2D, WRITE_INT64_2D, WRITE_INT64))
def merge_changes(old: IntArray, new: IntArray, out: IntArray, op: IntArray) -> Any:
    """Coalesced tuples before and after, each in the order of (list, end of the extent, start): those that differ.

    Returns their number; `op` says what each one is. O(rows).
    """
    i = j = count = 0
    while i < len(old) or j < len(new):
        side = 0
        if i == len(old):
            side = 1
        elif j == len(new):
            side = -1
        else:
            for column in (LIST, EXTENT, FROM):
                if old[i, column] != new[j, column]:
                    side = -1 if old[i, column] < new[j, column] else 1
                    break
        if side < 0:
            out[count] = old[i]
            op[count] = DELETE
            i += 1
            count += 1
        elif side > 0:
            out[count] = new[j]
            op[count] = INSERT
            j += 1
            count += 1
        else:
            same = old[i, TO] == new[j, TO] and old[i, N] == new[j, N]
            if not (same and old[i, VALUES] == new[j, VALUES]):
                out[count], out[count + 1] = old[i], new[j]
                op[count], op[count + 1] = BEFORE + DOUBTFUL * same, AFTER + DOUBTFUL * same
                count += 2
            i += 1
            j += 1
    return count

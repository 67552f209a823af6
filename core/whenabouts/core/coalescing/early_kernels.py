"""Kernels of early answers: the runs that arrivals touch, these runs inside extents, and what links they change."""

from __future__ import annotations

from typing import Any

from whenabouts.core.arrays.jit import (
    INT64,
    READ_BOOL,
    READ_INT64,
    READ_INT64_2D,
    TWO_INT64,
    WRITE_BOOL,
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
    find,
)

NO_NEXT = 2**63 - 1
"""The time of the next tuple, where there is none."""

LIST, EXTENT, FROM, TO, N, VALUES, LATEST = COLUMNS = range(7)
"""The columns of coalesced tuples: list, end of the extent, `[from, to)`, tuple count, row of values, time of the last
tuple (which changes only with the tuple count)."""

INSERT, BEFORE, AFTER, DELETE, DOUBTFUL = 0, 1, 2, 3, 4
"""Indices into `runtime.changes.OPS`. `BEFORE + DOUBTFUL`, `AFTER + DOUBTFUL`: only the rows of values may differ."""

START, ROW, COUNT = range(3)
"""The columns of a carry: where the first tuple's run begins before it, the row of its values, how many tuples."""


@compiled(
    TWO_INT64(
        *ARRAYS, WRITE_BOOL, READ_INT64, READ_INT64, INT64, WRITE_INT64, WRITE_INT64, WRITE_INT64, WRITE_INT64,
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
    up_to: int,
    run_list: IntArray,
    run_next: IntArray,
    run_starts: IntArray,
    run_times: IntArray,
    run_data: IntArray,
) -> Any:
    """The runs with the elements at times, before them and after them; and of the later ones of each list, those that
    begin at or before `up_to`.

    The times ascend in each list. Run r is `run_starts[r] : run_starts[r + 1]` of `run_times` and `run_data`;
    `run_next[r]`: the time of the element after it, or `NO_NEXT`. Returns the numbers of runs and of elements.
    O(log n + the elements of these runs).
    """
    runs = count = i = 0
    while i < len(wanted):
        of = of_list[i]
        base, stop = lists[of, DIRECTORY], lists[of, STOP]
        ended = lists[of, SIZE] == 0
        if not ended:
            chunk = dirs[base + lists[of, FIRST]]
            first = chunks[chunk, AT] + chunks[chunk, BEGIN]
            entry, at = find(lists, chunks, dirs, times, data, times[:0], of, wanted[i], 0)
            chunk = dirs[base + entry]
            here = chunks[chunk, AT] + at
            go_back = here != first  # to the element before the time, and then to where its run begins
            while go_back:
                if here == chunks[chunk, AT] + chunks[chunk, BEGIN]:
                    entry -= 1
                    chunk = dirs[base + entry]
                    here = chunks[chunk, AT] + chunks[chunk, END]
                here -= 1
                go_back = not heads[here]
            end = chunks[chunk, AT] + chunks[chunk, END]
            is_wanted = True
            while is_wanted:
                run_list[runs], run_starts[runs] = of, count
                run_next[runs] = NO_NEXT
                head = True
                while head or not heads[here]:
                    head = False
                    run_times[count], run_data[count] = times[here], data[here]
                    count += 1
                    here += 1
                    if here == end:
                        entry += 1
                        if entry == stop:
                            ended = True
                            break
                        chunk = dirs[base + entry]
                        here, end = chunks[chunk, AT] + chunks[chunk, BEGIN], chunks[chunk, AT] + chunks[chunk, END]
                if not ended:
                    run_next[runs] = times[here]
                runs += 1
                # The next run is wanted if a time lies between its first element and the one before, or at one of them.
                while i < len(wanted) and of_list[i] == of and (ended or wanted[i] < run_times[count - 1]):
                    i += 1
                is_wanted = not ended and (
                    times[here] <= up_to or (i < len(wanted) and of_list[i] == of and wanted[i] <= times[here])
                )
        while ended and i < len(wanted) and of_list[i] == of:
            i += 1
    run_starts[runs] = count
    return runs, count


@compiled(
    INT64(
        READ_INT64, READ_INT64, READ_INT64, READ_INT64, READ_INT64, INT64, INT64, INT64, INT64, WRITE_INT64_2D,
    )
)  # fmt: skip
def runs_in_extents(
    run_list: IntArray,
    run_next: IntArray,
    run_starts: IntArray,
    run_times: IntArray,
    run_data: IntArray,
    slide: int,
    reach: int,
    low: int,
    high: int,
    out: IntArray,
) -> Any:
    """Runs cut to the extents `[k * slide - reach, k * slide]`, `low <= k <= high`.

    Runs come list by list, in time order. Writes rows of `out`, with the columns `LIST` to `LATEST`, ordered by the
    first three; the row of values is that of the first tuple. Returns the number of rows, of which `out` has as many
    as it has room for. O(elements + rows).
    """
    found = 0
    stop_run = 0
    while stop_run < len(run_list):
        first_run, of = stop_run, run_list[stop_run]
        while stop_run < len(run_list) and run_list[stop_run] == of:
            stop_run += 1
        first = after = run_starts[first_run]
        stop = run_starts[stop_run]
        k = max(low, -(-run_times[first] // slide))
        last = min(high, (run_times[stop - 1] + reach) // slide)
        while k <= last:
            at, least = k * slide, k * slide - reach
            while after < stop and run_times[after] <= at:
                after += 1
            while first < after and run_times[first] < least:
                first += 1
            if first == after:  # an extent without a tuple of these runs
                if after == stop:
                    break
                k = max(k + 1, -(-run_times[after] // slide))
                continue
            while run_starts[first_run + 1] <= first:
                first_run += 1
            run = first_run
            while run < stop_run and run_starts[run] < after:
                if found < len(out):
                    begin, end = max(run_starts[run], first), min(run_starts[run + 1], after)
                    ends = run_times[end - 1]
                    if end == run_starts[run + 1] and run_next[run] <= at and run_next[run] != NO_NEXT:
                        ends = run_next[run]
                    out[found, LIST], out[found, EXTENT], out[found, FROM] = of, at, run_times[begin]
                    out[found, TO], out[found, N], out[found, VALUES] = ends, end - begin, run_data[begin]
                    out[found, LATEST] = run_times[end - 1]
                found += 1
                run += 1
            k += 1
    return found


@compiled(INT64(*ARRAYS, WRITE_BOOL, READ_INT64, INT64, WRITE_INT64_2D, WRITE_INT64, WRITE_INT64))
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


@compiled(
    INT64(
        READ_INT64, *(READ_INT64, READ_INT64, READ_INT64, READ_INT64, READ_INT64) * 2, READ_INT64, WRITE_INT64_2D,
        WRITE_INT64,
    )
)  # fmt: skip
def range_changes(
    lists: IntArray,
    old_times: IntArray,
    old_data: IntArray,
    old_ends: IntArray,
    old_lows: IntArray,
    old_highs: IntArray,
    new_times: IntArray,
    new_data: IntArray,
    new_ends: IntArray,
    new_lows: IntArray,
    new_highs: IntArray,
    extents: IntArray,
    out: IntArray,
    op: IntArray,
) -> Any:
    """As `merge_changes`, of the runs in ranges of elements before and after; nothing else is written.

    Range `i * len(extents) + k`, of list i in extent k, is `[lows, highs)`; `ends[j]`: where the run of element j ends.
    Returns the number of rows, of which `out` has as many as it has room for. O(runs in the ranges).
    """
    count = 0
    for r in range(len(old_lows)):
        of, extent = lists[r // len(extents)], extents[r % len(extents)]
        i, i_stop, j, j_stop = old_lows[r], old_highs[r], new_lows[r], new_highs[r]
        while i < i_stop or j < j_stop:
            i_end, j_end, side = i, j, 0
            if i < i_stop:
                i_end = min(old_ends[i], i_stop)
            if j < j_stop:
                j_end = min(new_ends[j], j_stop)
            if i == i_stop:
                side = 1
            elif j == j_stop:
                side = -1
            elif old_times[i] != new_times[j]:
                side = -1 if old_times[i] < new_times[j] else 1
            i_to = old_times[i_end if i_end < i_stop else i_end - 1]
            j_to = new_times[j_end if j_end < j_stop else j_end - 1]
            same = side == 0 and i_to == j_to and i_end - i == j_end - j
            if not (same and old_data[i] == new_data[j]):
                for written in range(2):  # the row before and the row after
                    if side == (1, -1)[written]:
                        continue
                    if count < len(out):
                        out[count, LIST], out[count, EXTENT] = of, extent
                        if written == 0:
                            out[count, FROM], out[count, TO], out[count, N] = old_times[i], i_to, i_end - i
                            out[count, VALUES], out[count, LATEST] = old_data[i], old_times[i_end - 1]
                            op[count] = DELETE if side < 0 else BEFORE + DOUBTFUL * same
                        else:
                            out[count, FROM], out[count, TO], out[count, N] = new_times[j], j_to, j_end - j
                            out[count, VALUES], out[count, LATEST] = new_data[j], new_times[j_end - 1]
                            op[count] = INSERT if side > 0 else AFTER + DOUBTFUL * same
                    count += 1
            if side <= 0:
                i = i_end
            if side >= 0:
                j = j_end
    return count


@compiled((READ_BOOL, WRITE_INT64))
def ends_of_runs(heads: BoolArray, ends: IntArray) -> None:
    """Where the run of each element ends: the index of the next head, or how many elements there are."""
    end = len(heads)
    for at in range(len(heads) - 1, -1, -1):
        ends[at] = end
        if heads[at]:
            end = at

"""Kernels of the runs in sorted lists: reading them, and linking elements to their neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np

from whenabouts.core.arrays.jit import (
    INT64,
    READ_BOOL,
    READ_INT64,
    TWO_INT64,
    WRITE_BOOL,
    WRITE_INT64,
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
    HEADS,
    LAST,
    SIZE,
    STOP,
    element,
    find,
)


@compiled((*ARRAYS, WRITE_BOOL, READ_INT64, WRITE_INT64, WRITE_INT64, WRITE_BOOL, WRITE_INT64))
def read(
    lists: IntArray,
    chunks: IntArray,
    dirs: IntArray,
    times: IntArray,
    data: IntArray,
    heads: BoolArray,
    of_list: IntArray,
    out_times: IntArray,
    out_data: IntArray,
    out_heads: BoolArray,
    starts: IntArray,
) -> None:
    """The elements of lists, one list after the other; list i is `starts[i] : starts[i + 1]`. O(elements)."""
    count = 0
    for i in range(len(of_list)):
        starts[i] = count
        of = of_list[i]
        for entry in range(lists[of, FIRST], lists[of, STOP]):
            chunk = dirs[lists[of, DIRECTORY] + entry]
            for at in range(chunks[chunk, AT] + chunks[chunk, BEGIN], chunks[chunk, AT] + chunks[chunk, END]):
                out_times[count], out_data[count], out_heads[count] = times[at], data[at], heads[at]
                count += 1
    starts[len(of_list)] = count


@compiled(TWO_INT64(*ARRAYS, WRITE_BOOL, READ_INT64, INT64, INT64, WRITE_INT64, WRITE_INT64, WRITE_BOOL, WRITE_INT64))
def read_between(
    lists: IntArray,
    chunks: IntArray,
    dirs: IntArray,
    times: IntArray,
    data: IntArray,
    heads: BoolArray,
    of_list: IntArray,
    least: int,
    before: int,
    out_times: IntArray,
    out_data: IntArray,
    out_heads: BoolArray,
    starts: IntArray,
) -> Any:
    """As `read`, the elements with `least <= time < before`. With an empty `out_times` it only counts them: `starts`.

    Returns their number, and the least time of the elements at or after `before`: 2^63 - 1 if there is none.
    O(lists log n + these elements); to count, O(lists log n + their chunks).
    """
    counting = len(out_times) == 0
    count, following = np.int64(0), np.int64(2**63 - 1)
    for i in range(len(of_list)):
        of = of_list[i]
        starts[i] = count
        if lists[of, SIZE] == 0 or lists[of, LAST] < least:
            continue
        stop, stop_at = lists[of, STOP], 0
        if lists[of, LAST] >= before:
            stop, stop_at = find(lists, chunks, dirs, times, data, times[:0], of, before, 0)
            later = element(lists, chunks, dirs, of, stop, stop_at)
            if later >= 0:
                following = min(following, times[later])
        entry, at = find(lists, chunks, dirs, times, data, times[:0], of, least, 0)
        while entry < stop or (entry == stop and at < stop_at):
            chunk = dirs[lists[of, DIRECTORY] + entry]
            base = chunks[chunk, AT]
            end = stop_at if entry == stop else chunks[chunk, END]
            if not counting:
                for here in range(base + at, base + end):
                    out_times[count], out_data[count], out_heads[count] = times[here], data[here], heads[here]
                    count += 1
            else:
                count += end - at
            entry += 1
            if entry < lists[of, STOP]:
                at = chunks[dirs[lists[of, DIRECTORY] + entry], BEGIN]
    starts[len(of_list)] = count
    return count, following


@compiled(INT64(*ARRAYS, WRITE_BOOL, READ_INT64, *(WRITE_INT64,) * 5))
def read_runs(
    lists: IntArray,
    chunks: IntArray,
    dirs: IntArray,
    times: IntArray,
    data: IntArray,
    heads: BoolArray,
    of_list: IntArray,
    run_list: IntArray,
    first: IntArray,
    start: IntArray,
    end: IntArray,
    n: IntArray,
) -> Any:
    """The runs of lists, each of which begins with a head: list, data of the head, `[start, end)`, element count.

    A run ends where the next one begins; the last run of a list ends at its last element. O(elements).
    """
    run = -1
    for i in range(len(of_list)):
        of = of_list[i]
        time = 0
        for entry in range(lists[of, FIRST], lists[of, STOP]):
            chunk = dirs[lists[of, DIRECTORY] + entry]
            for at in range(chunks[chunk, AT] + chunks[chunk, BEGIN], chunks[chunk, AT] + chunks[chunk, END]):
                time = times[at]
                if heads[at]:
                    if run >= 0 and run_list[run] == of:
                        end[run] = time
                    run += 1
                    run_list[run], first[run], start[run], n[run] = of, data[at], time, 0
                n[run] += 1
        if lists[of, SIZE] > 0:
            end[run] = time
    return run + 1


@compiled(
    INT64(
        *ARRAYS, WRITE_BOOL, READ_INT64, READ_INT64, READ_INT64, READ_INT64, READ_BOOL, READ_BOOL, READ_BOOL, READ_BOOL,
        WRITE_INT64, WRITE_INT64,
    )
)  # fmt: skip
def link_neighbours(
    lists: IntArray,
    chunks: IntArray,
    dirs: IntArray,
    times: IntArray,
    data: IntArray,
    heads: BoolArray,
    of_list: IntArray,
    before: IntArray,
    here: IntArray,
    after: IntArray,
    extends: BoolArray,
    is_extended: BoolArray,
    same_before: BoolArray,
    same_after: BoolArray,
    uses: IntArray,
    freed: IntArray,
) -> Any:
    """Set whether elements extend their predecessors (`extends`), and their successors extend them (`is_extended`).

    The elements, as `neighbours` finds them, exist and ascend in each list. If `same_before` (`same_after`) is also
    true, an element shares the data of its predecessor (its successor, and the rest of that run, share its data).
    `uses` counts the elements of a datum; data without uses are written to `freed`. Returns their number.
    """
    count = 0
    for i in range(len(here)):
        of, element_, following = of_list[i], here[i], after[i]
        lists[of, HEADS] += int(not extends[i]) - int(heads[element_])
        heads[element_] = not extends[i]
        if following >= 0:
            lists[of, HEADS] += int(not is_extended[i]) - int(heads[following])
            heads[following] = not is_extended[i]
        mine = data[element_]
        if extends[i] and same_before[i]:
            data[element_] = data[before[i]]
            uses[data[element_]] += 1
            uses[mine] -= 1
            if uses[mine] == 0:
                freed[count] = mine
                count += 1
            mine = data[element_]
        if following < 0 or not (is_extended[i] and same_after[i]) or data[following] == mine:
            continue
        other = data[following]
        entry, at = find(lists, chunks, dirs, times, data, times[:0], of, times[following], 0)
        while following >= 0 and data[following] == other:
            data[following] = mine
            uses[mine] += 1
            uses[other] -= 1
            if uses[other] == 0:
                freed[count] = other
                count += 1
            if at >= chunks[dirs[lists[of, DIRECTORY] + entry], END]:
                entry += 1
                at = chunks[dirs[lists[of, DIRECTORY] + entry], BEGIN]
            at += 1
            following = element(lists, chunks, dirs, of, entry, at)
    return count


@compiled((READ_BOOL, READ_INT64, READ_INT64, READ_INT64, WRITE_INT64, WRITE_INT64))
def share_data(
    shares: BoolArray, own: IntArray, continued: IntArray, last: IntArray, uses: IntArray, data: IntArray
) -> None:
    """The data of new elements: the next one of `own`, or if it `shares`, that of the element before, which for the
    element `continued[i]` is `last[i]`. Counts the uses of each."""
    owned = known = 0
    datum = np.int64(-1)
    for i in range(len(shares)):
        if known < len(continued) and continued[known] == i:
            datum = last[known]
            known += 1
        if not shares[i]:
            datum = own[owned]
            owned += 1
        data[i] = datum
        uses[datum] += 1


@compiled(INT64(WRITE_INT64, READ_INT64, INT64, WRITE_INT64))
def count_uses(uses: IntArray, data: IntArray, change: int, freed: IntArray) -> Any:
    """Add `change` to the uses of each datum; writes those that are now unused, and returns their number."""
    count = 0
    for datum in data:
        uses[datum] += change
        if uses[datum] == 0:
            freed[count] = datum
            count += 1
    return count

"""Kernels of early answers in a single extent: where it begins in each list, and its runs that a step may change."""

from __future__ import annotations

from typing import Any

from whenabouts.core.arrays.jit import INT64, READ_INT64, WRITE_BOOL, WRITE_INT64, WRITE_INT64_2D, compiled
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.coalescing.early_kernels import (
    COUNT,
    EXTENT,
    FROM,
    LATEST,
    LIST,
    NO_NEXT,
    ROW,
    START,
    TO,
    VALUES,
    N,
)
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


@compiled(
    INT64(
        *ARRAYS, WRITE_BOOL, READ_INT64, READ_INT64, READ_INT64, READ_INT64, READ_INT64, READ_INT64, WRITE_INT64_2D,
        WRITE_INT64_2D,
    )
)  # fmt: skip
def runs_in_window(
    lists: IntArray,
    chunks: IntArray,
    dirs: IntArray,
    times: IntArray,
    data: IntArray,
    heads: BoolArray,
    of_list: IntArray,
    lows: IntArray,
    since: IntArray,
    up_to: IntArray,
    of_wanted: IntArray,
    wanted: IntArray,
    carry: IntArray,
    out: IntArray,
) -> Any:
    """The runs in a window that a step may change, as rows with the columns `LIST` to `LATEST`; returns their number.

    In list `of_list[i]` (these ascend) the window begins at `lows[i]`. Its beginning moves in this step, from
    `since[i]` to no later than `up_to[i]`: the runs that begin there may change. So may those with an element at a
    wanted time, right before it or right after it; wanted times ascend by list and time. `carry`: by list, what
    precedes the first element of its first run. O(log n + the elements of these runs) for each list and wanted time.
    """
    found = w = 0
    for i in range(len(of_list)):
        of, low = of_list[i], lows[i]
        while w < len(wanted) and (of_wanted[w] < of or (of_wanted[w] == of and wanted[w] < since[i])):
            w += 1
        if lists[of, SIZE] == 0:
            continue
        base, stop = lists[of, DIRECTORY], lists[of, STOP]
        chunk = dirs[base + lists[of, FIRST]]
        first = chunks[chunk, AT] + chunks[chunk, BEGIN]
        moves = times[first] < up_to[i]
        while moves or (w < len(wanted) and of_wanted[w] == of):
            entry, at = find(lists, chunks, dirs, times, data, times[:0], of, low if moves else wanted[w], 0)
            chunk = dirs[base + entry]
            here = chunks[chunk, AT] + at
            # To where the run of the element before begins; where the window moves, to that element.
            least = since[i] if moves else low
            go_back = here != first
            while go_back:
                previous, earlier = here, chunk
                if here == chunks[chunk, AT] + chunks[chunk, BEGIN]:
                    earlier = dirs[base + entry - 1]
                    previous = chunks[earlier, AT] + chunks[earlier, END]
                previous -= 1
                if times[previous] < least:
                    break
                entry -= earlier != chunk
                here, chunk = previous, earlier
                go_back = not moves and not heads[here]
            ended = False
            if here == chunks[chunk, AT] + chunks[chunk, END]:
                entry += 1
                ended = entry == stop
                if not ended:
                    chunk = dirs[base + entry]
                    here = chunks[chunk, AT] + chunks[chunk, BEGIN]
            end = chunks[chunk, AT] + chunks[chunk, END]
            is_wanted = not ended and (
                not moves
                or times[here] < up_to[i]
                or (w < len(wanted) and of_wanted[w] == of and wanted[w] <= times[here])
            )
            moves = False
            while is_wanted:
                carried = here == first and carry[of, COUNT] > 0
                begins = row = n = last = 0
                head = True
                while head or not heads[here]:
                    head = False
                    last = times[here]
                    if last >= low:
                        if n == 0:
                            begins, row = last, data[here]
                        n += 1
                    here += 1
                    if here == end:
                        entry += 1
                        if entry == stop:
                            ended = True
                            break
                        chunk = dirs[base + entry]
                        here, end = chunks[chunk, AT] + chunks[chunk, BEGIN], chunks[chunk, AT] + chunks[chunk, END]
                following = NO_NEXT if ended else times[here]
                if n > 0:
                    if carried:
                        begins, row, n = carry[of, START], carry[of, ROW], n + carry[of, COUNT]
                    out[found, LIST], out[found, EXTENT], out[found, FROM] = of, 0, begins
                    out[found, TO], out[found, N], out[found, VALUES] = last if ended else following, n, row
                    out[found, LATEST] = last
                    found += 1
                # The next run is wanted if a time lies between its first element and the one before, or at one of them.
                while w < len(wanted) and of_wanted[w] == of and (ended or wanted[w] < last):
                    w += 1
                is_wanted = not ended and (
                    following < up_to[i] or (w < len(wanted) and of_wanted[w] == of and wanted[w] <= following)
                )
            while ended and w < len(wanted) and of_wanted[w] == of:
                w += 1
    return found


@compiled((*ARRAYS, READ_INT64, READ_INT64, WRITE_INT64))
def times_from_the_end(
    lists: IntArray,
    chunks: IntArray,
    dirs: IntArray,
    times: IntArray,
    data: IntArray,
    of_list: IntArray,
    most: IntArray,
    found: IntArray,
) -> None:
    """The time of the element of each list that has `most[i] - 1` later ones.

    `NO_NEXT` if `most[i]` is not positive; -(2^63) + 1 if the list has fewer elements. O(most / CHUNK) each.
    """
    for i in range(len(of_list)):
        of, left = of_list[i], most[i]
        found[i] = NO_NEXT if left <= 0 else -(2**63) + 1
        entry = lists[of, STOP]
        while 0 < left <= lists[of, SIZE]:
            entry -= 1
            chunk = dirs[lists[of, DIRECTORY] + entry]
            begin, end = chunks[chunk, BEGIN], chunks[chunk, END]
            if left <= end - begin:
                found[i] = times[chunks[chunk, AT] + end - left]
                break
            left -= end - begin

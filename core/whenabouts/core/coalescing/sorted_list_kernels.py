"""Kernels of many sorted lists in a few flat arrays.

A list is a directory of chunks, each a sorted array of up to `CHUNK` elements with room at its end. Appending at the
end and dropping the first element cost O(1) amortised. Any other element is found by two binary searches, and inserting
it shifts at most one chunk. A full chunk is split, which shifts the directory; that is `CHUNK` times shorter than the
list, and happens once in `CHUNK / 2` insertions. (This is the design of Jenks' sortedcontainers, for many lists at once
and for kernels.) Small lists have small chunks, so the memory of a hundred thousand small groups is proportional to
their tuples.
"""

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
    WRITE_INT64_2D,
    compiled,
)
from whenabouts.core.arrays.slab_pool import allocate, log2, release
from whenabouts.core.arrays.typing import BoolArray, IntArray

CHUNK, LEAST = 256, 16
"""The greatest capacity of a chunk, and the capacity of a list's first one."""

DIRECTORY, FIRST, STOP, ROOM, LAST, SIZE, HEADS = range(7)
"""The columns of a list: the index of its directory, the part of that in use, its capacity; the list's greatest time so
far, its element count, its head count."""
AT, BEGIN, END, CAPACITY = range(4)
"""The columns of a chunk: its index, the part in use, its capacity."""
ELEMENTS, DIRECTORIES, CHUNKS, FREE_CHUNK, FREE_ELEMENTS = range(5)
FREE_DIRECTORY = 16
SPACE = 64
"""The size of the allocator's state: how much of each array is in use, and for each size the first free block."""

EMPTY = -(2**63)
"""`LAST` of a list that has never had an element."""

ARRAYS = (WRITE_INT64_2D, WRITE_INT64_2D, WRITE_INT64, WRITE_INT64, WRITE_INT64)
"""Lists, chunks, directories, times, data."""
_POOL = (WRITE_INT64, *ARRAYS, WRITE_BOOL)


@compiled(INT64(WRITE_INT64, WRITE_INT64_2D, WRITE_INT64, INT64), inline=True)
def _new_chunk(space: IntArray, chunks: IntArray, times: IntArray, capacity: int) -> Any:
    chunk = space[FREE_CHUNK]
    if chunk >= 0:
        space[FREE_CHUNK] = chunks[chunk, AT]
    else:
        chunk = space[CHUNKS]
        space[CHUNKS] += 1
    chunks[chunk, AT] = allocate(space, times, ELEMENTS, FREE_ELEMENTS, log2(capacity))
    chunks[chunk, BEGIN] = chunks[chunk, END] = 0
    chunks[chunk, CAPACITY] = capacity
    return chunk


@compiled((WRITE_INT64, WRITE_INT64_2D, WRITE_INT64, INT64, INT64, INT64), inline=True)
def _add_chunk(space: IntArray, lists: IntArray, dirs: IntArray, of: int, entry: int, chunk: int) -> None:
    """Insert a chunk into a list's directory, before an entry from `FIRST` to `STOP`."""
    if lists[of, STOP] == lists[of, ROOM]:
        first, held = lists[of, FIRST], lists[of, STOP] - lists[of, FIRST]
        base, target, room = lists[of, DIRECTORY], lists[of, DIRECTORY], lists[of, ROOM]
        if 2 * first < room or room == 0:
            room = max(2 * room, 2)
            target = allocate(space, dirs, DIRECTORIES, FREE_DIRECTORY, log2(room))
        for i in range(held):
            dirs[target + i] = dirs[base + first + i]
        if room != lists[of, ROOM] and lists[of, ROOM] > 0:
            release(space, dirs, FREE_DIRECTORY, log2(lists[of, ROOM]), base)
        lists[of, DIRECTORY], lists[of, ROOM] = target, room
        lists[of, FIRST], lists[of, STOP] = 0, held
        entry -= first
    base = lists[of, DIRECTORY]
    for i in range(lists[of, STOP], entry, -1):
        dirs[base + i] = dirs[base + i - 1]
    dirs[base + entry] = chunk
    lists[of, STOP] += 1


@compiled(INT64(WRITE_INT64, WRITE_INT64, READ_INT64, INT64, INT64, INT64), inline=True)
def _compare(times: IntArray, data: IntArray, ranks: IntArray, at: int, time: int, rank: int) -> Any:
    """-1, 0 or 1: the element at index `at` is before, at or after (time, rank); without `ranks` compared by time."""
    here = times[at]
    if here == time and len(ranks) > 0:
        here, time = ranks[data[at]], rank
    return int(here > time) - int(here < time)


@compiled(TWO_INT64(*ARRAYS, READ_INT64, INT64, INT64, INT64), inline=True)
def find(
    lists: IntArray,
    chunks: IntArray,
    dirs: IntArray,
    times: IntArray,
    data: IntArray,
    ranks: IntArray,
    of: int,
    time: int,
    rank: int,
) -> Any:
    """The position of the first element at or after (time, rank): its directory entry, and its index in the chunk.

    The index is the chunk's end if all its elements are before (time, rank). The list must not be empty.
    """
    base, low, high = lists[of, DIRECTORY], lists[of, FIRST], lists[of, STOP]
    while high - low > 1:
        middle = (low + high) // 2
        chunk = dirs[base + middle]
        if _compare(times, data, ranks, chunks[chunk, AT] + chunks[chunk, BEGIN], time, rank) <= 0:
            low = middle
        else:
            high = middle
    chunk = dirs[base + low]
    base, begin, end = chunks[chunk, AT], chunks[chunk, BEGIN], chunks[chunk, END]
    while begin < end:
        middle = (begin + end) // 2
        if _compare(times, data, ranks, base + middle, time, rank) < 0:
            begin = middle + 1
        else:
            end = middle
    return low, begin


@compiled(INT64(WRITE_INT64_2D, WRITE_INT64_2D, WRITE_INT64, INT64, INT64, INT64), inline=True)
def element(lists: IntArray, chunks: IntArray, dirs: IntArray, of: int, entry: int, at: int) -> Any:
    """The index of the element at a position, which may be one before or after its chunk; -1 beyond the list's ends."""
    chunk = dirs[lists[of, DIRECTORY] + entry]
    if at >= chunks[chunk, END]:
        if entry + 1 == lists[of, STOP]:
            return -1
        chunk = dirs[lists[of, DIRECTORY] + entry + 1]
        at = chunks[chunk, BEGIN]
    elif at < chunks[chunk, BEGIN]:
        if entry == lists[of, FIRST]:
            return -1
        chunk = dirs[lists[of, DIRECTORY] + entry - 1]
        at = chunks[chunk, END] - 1
    return chunks[chunk, AT] + at


@compiled(INT64(*_POOL, READ_INT64, READ_INT64, READ_INT64, READ_INT64, READ_BOOL, INT64))
def insert(
    space: IntArray,
    lists: IntArray,
    chunks: IntArray,
    dirs: IntArray,
    times: IntArray,
    data: IntArray,
    heads: BoolArray,
    ranks: IntArray,
    of_list: IntArray,
    new_times: IntArray,
    new_data: IntArray,
    new_heads: BoolArray,
    done: int,
) -> Any:
    """Insert the elements from index `done` on into their lists, which have none with an equal (time, rank).

    Returns how many are inserted; if fewer than all, the arrays must grow first. O(1) amortised at the end of a list,
    else O(log n + CHUNK).
    """
    while done < len(new_times):
        of, time, datum = of_list[done], new_times[done], new_data[done]
        if (
            space[ELEMENTS] + CHUNK > len(times)
            or space[CHUNKS] == len(chunks)
            or space[DIRECTORIES] + max(2 * lists[of, ROOM], 2) > len(dirs)
        ):
            return done
        rank = ranks[datum] if len(ranks) > 0 else 0
        if lists[of, SIZE] == 0:
            _add_chunk(space, lists, dirs, of, lists[of, STOP], _new_chunk(space, chunks, times, LEAST))
        entry = lists[of, STOP] - 1
        chunk = dirs[lists[of, DIRECTORY] + entry]
        at = chunks[chunk, END]
        last = chunks[chunk, AT] + at - 1
        if at > chunks[chunk, BEGIN] and _compare(times, data, ranks, last, time, rank) > 0:
            entry, at = find(lists, chunks, dirs, times, data, ranks, of, time, rank)
            chunk = dirs[lists[of, DIRECTORY] + entry]
        begin, end, room = chunks[chunk, BEGIN], chunks[chunk, END], chunks[chunk, CAPACITY]
        base = chunks[chunk, AT]
        if end == room and 4 * begin >= room:  # there is room at the chunk's front
            for i in range(begin, end):
                times[base + i - begin] = times[base + i]
                data[base + i - begin] = data[base + i]
                heads[base + i - begin] = heads[base + i]
            chunks[chunk, BEGIN], chunks[chunk, END] = 0, end - begin
            at -= begin
        elif end == room and room < CHUNK:
            to = allocate(space, times, ELEMENTS, FREE_ELEMENTS, log2(4 * room))
            for i in range(begin, end):
                times[to + i] = times[base + i]
                data[to + i] = data[base + i]
                heads[to + i] = heads[base + i]
            release(space, times, FREE_ELEMENTS, log2(room), base)
            chunks[chunk, AT], chunks[chunk, CAPACITY] = to, 4 * room
        elif end == room:
            other = _new_chunk(space, chunks, times, CHUNK)
            keep = end if at == end and entry + 1 == lists[of, STOP] else (begin + end) // 2
            to = chunks[other, AT]
            for i in range(keep, end):
                times[to + i - keep] = times[base + i]
                data[to + i - keep] = data[base + i]
                heads[to + i - keep] = heads[base + i]
            chunks[chunk, END], chunks[other, END] = keep, end - keep
            first = lists[of, FIRST]
            _add_chunk(space, lists, dirs, of, entry + 1, other)
            entry += lists[of, FIRST] - first  # the directory may have moved to its front
            if at > keep or keep == end:
                chunk, at = other, at - keep
        base, end = chunks[chunk, AT], chunks[chunk, END]
        for i in range(base + end, base + at, -1):
            times[i] = times[i - 1]
            data[i] = data[i - 1]
            heads[i] = heads[i - 1]
        times[base + at], data[base + at], heads[base + at] = time, datum, new_heads[done]
        first, marked = done, np.int64(new_heads[done])
        done += 1
        if at == end and entry + 1 == lists[of, STOP] and len(ranks) == 0:  # append the following elements at once
            room = chunks[chunk, CAPACITY]
            while done < len(new_times) and of_list[done] == of and new_times[done] > time and end + 1 < room:
                end += 1
                time = new_times[done]
                times[base + end], data[base + end], heads[base + end] = time, new_data[done], new_heads[done]
                marked += new_heads[done]
                done += 1
        chunks[chunk, END] = end + 1
        lists[of, LAST] = max(lists[of, LAST], time)
        lists[of, SIZE] += done - first
        lists[of, HEADS] += marked
    return done


@compiled((*ARRAYS, READ_INT64, READ_INT64, WRITE_INT64, WRITE_INT64, WRITE_INT64))
def neighbours(
    lists: IntArray,
    chunks: IntArray,
    dirs: IntArray,
    times: IntArray,
    data: IntArray,
    of_list: IntArray,
    wanted: IntArray,
    before: IntArray,
    here: IntArray,
    after: IntArray,
) -> None:
    """The indices of each list's element at a time, and of the elements before and after it; -1 if there is none."""
    for i in range(len(wanted)):
        before[i] = here[i] = after[i] = -1
        of = of_list[i]
        if lists[of, SIZE] == 0:
            continue
        entry, at = find(lists, chunks, dirs, times, data, times[:0], of, wanted[i], 0)
        before[i] = element(lists, chunks, dirs, of, entry, at - 1)
        after[i] = element(lists, chunks, dirs, of, entry, at)
        if after[i] >= 0 and times[after[i]] == wanted[i]:
            here[i] = after[i]
            after[i] = element(lists, chunks, dirs, of, entry, at + 1)


@compiled(INT64(*_POOL, READ_INT64, INT64, READ_INT64, WRITE_INT64))
def drop_first(
    space: IntArray,
    lists: IntArray,
    chunks: IntArray,
    dirs: IntArray,
    times: IntArray,
    data: IntArray,
    heads: BoolArray,
    of_list: IntArray,
    before: int,
    most: IntArray,
    dropped: IntArray,
) -> Any:
    """Drop the first elements of lists: those before a time, and those in excess of `most[i]`.

    Writes their data and returns their number. The new first element becomes a head. O(1) amortised per element.
    """
    count = 0
    for i in range(len(of_list)):
        of = of_list[i]
        size, most_here = lists[of, SIZE], most[i]
        while size > 0:
            entry = lists[of, DIRECTORY] + lists[of, FIRST]
            chunk = dirs[entry]
            at, end = chunks[chunk, AT] + chunks[chunk, BEGIN], chunks[chunk, AT] + chunks[chunk, END]
            marked = 0
            first = at
            while at < end and (times[at] < before or size > most_here):
                dropped[count] = data[at]
                count += 1
                size -= 1
                marked += heads[at]
                at += 1
            lists[of, HEADS] -= marked
            if at < end:
                chunks[chunk, BEGIN] += at - first
                lists[of, HEADS] += not heads[at]
                heads[at] = True
                break
            release(space, times, FREE_ELEMENTS, log2(chunks[chunk, CAPACITY]), chunks[chunk, AT])
            chunks[chunk, AT] = space[FREE_CHUNK]
            space[FREE_CHUNK] = chunk
            lists[of, FIRST] += 1
        lists[of, SIZE] = size
    return count

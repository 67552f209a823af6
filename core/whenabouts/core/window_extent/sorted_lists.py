"""Many sorted lists of times in a few flat arrays: what an extent in memory stands on.

A list is a directory of chunks, each a sorted stretch of up to `CHUNK` elements with room at its end. An element at the
end of its list is appended and the first one dropped in O(1) amortised; another one is found by two binary searches and
shifts at most a chunk; a full chunk is split, which shifts the directory, `CHUNK` times shorter than the list, once in
`CHUNK / 2` insertions. (The plan of Jenks' sortedcontainers, for many lists at once and for kernels.) Small lists have
small chunks, so that a hundred thousand groups of a few tuples cost what they hold.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from whenabouts.core.arrays.jit import INT64, READ_INT64, TWO_INT64, WRITE_INT64, WRITE_INT64_2D, compiled
from whenabouts.core.arrays.slab_pool import give_back, log2, take_region
from whenabouts.core.arrays.typing import BoolArray, IntArray

CHUNK, LEAST = 256, 16
"""Room of a chunk: the most, and that of a list's first one."""

DIRECTORY, FIRST, STOP, ROOM, LAST, SIZE, HEADS = range(7)
"""Of a list: where its directory lies, which part is in use, its room; its greatest time, its elements, its heads."""
AT, BEGIN, END, CAPACITY = range(4)
"""Of a chunk: where it lies, which part is in use, its room."""
_ELEMENTS, _DIRECTORIES, _CHUNKS, _NO_CHUNK, _NO_ELEMENTS = range(5)
_NO_DIRECTORY = 16
_SPACE = 64
"""How far the arrays are in use, and for each size the first region that was given back."""

EMPTY = -(2**63)
"""`LAST` of a list that has had no element."""

_READ_BOOL = types.Array(types.boolean, 1, "C", readonly=True)
_WRITE_BOOL = types.Array(types.boolean, 1, "C")
_PLACES = (WRITE_INT64_2D, WRITE_INT64_2D, WRITE_INT64, WRITE_INT64, WRITE_INT64)
"""Lists, chunks, directories, times, data."""
_POOL = (WRITE_INT64, *_PLACES, _WRITE_BOOL)


@compiled(INT64(WRITE_INT64, WRITE_INT64_2D, WRITE_INT64, INT64), inline=True)
def _new_chunk(space: IntArray, chunks: IntArray, times: IntArray, capacity: int) -> Any:
    chunk = space[_NO_CHUNK]
    if chunk >= 0:
        space[_NO_CHUNK] = chunks[chunk, AT]
    else:
        chunk = space[_CHUNKS]
        space[_CHUNKS] += 1
    chunks[chunk, AT] = take_region(space, times, _ELEMENTS, _NO_ELEMENTS, log2(capacity))
    chunks[chunk, BEGIN] = chunks[chunk, END] = 0
    chunks[chunk, CAPACITY] = capacity
    return chunk


@compiled((WRITE_INT64, WRITE_INT64_2D, WRITE_INT64, INT64, INT64, INT64), inline=True)
def _enter(space: IntArray, lists: IntArray, dirs: IntArray, of: int, place: int, chunk: int) -> None:
    """Put a chunk into a list's directory, at a place from `FIRST` to `STOP`."""
    if lists[of, STOP] == lists[of, ROOM]:
        first, held = lists[of, FIRST], lists[of, STOP] - lists[of, FIRST]
        base, target, room = lists[of, DIRECTORY], lists[of, DIRECTORY], lists[of, ROOM]
        if 2 * first < room or room == 0:
            room = max(2 * room, 2)
            target = take_region(space, dirs, _DIRECTORIES, _NO_DIRECTORY, log2(room))
        for i in range(held):
            dirs[target + i] = dirs[base + first + i]
        if room != lists[of, ROOM] and lists[of, ROOM] > 0:
            give_back(space, dirs, _NO_DIRECTORY, log2(lists[of, ROOM]), base)
        lists[of, DIRECTORY], lists[of, ROOM] = target, room
        lists[of, FIRST], lists[of, STOP] = 0, held
        place -= first
    base = lists[of, DIRECTORY]
    for i in range(lists[of, STOP], place, -1):
        dirs[base + i] = dirs[base + i - 1]
    dirs[base + place] = chunk
    lists[of, STOP] += 1


@compiled(INT64(WRITE_INT64, WRITE_INT64, READ_INT64, INT64, INT64, INT64), inline=True)
def _compare(times: IntArray, data: IntArray, ranks: IntArray, at: int, time: int, rank: int) -> Any:
    """-1, 0 or 1: the element at a place comes before (time, rank), is it, or comes after; without `ranks` by time."""
    here = times[at]
    if here == time and len(ranks) > 0:
        here, time = ranks[data[at]], rank
    return (here > time) - (here < time)


@compiled(TWO_INT64(*_PLACES, READ_INT64, INT64, INT64, INT64), inline=True)
def _find(
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
    """Where the first element at or after (time, rank) stands: its place in the directory, and in the chunk.

    The end of a chunk, for what belongs behind all of it. The list is not empty.
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
def _element(lists: IntArray, chunks: IntArray, dirs: IntArray, of: int, place: int, at: int) -> Any:
    """Where an element lies that is at, one before, or one behind a place in a chunk; -1 beyond the list's ends."""
    chunk = dirs[lists[of, DIRECTORY] + place]
    if at >= chunks[chunk, END]:
        if place + 1 == lists[of, STOP]:
            return -1
        chunk = dirs[lists[of, DIRECTORY] + place + 1]
        at = chunks[chunk, BEGIN]
    elif at < chunks[chunk, BEGIN]:
        if place == lists[of, FIRST]:
            return -1
        chunk = dirs[lists[of, DIRECTORY] + place - 1]
        at = chunks[chunk, END] - 1
    return chunks[chunk, AT] + at


@compiled(INT64(*_POOL, READ_INT64, READ_INT64, READ_INT64, READ_INT64, _READ_BOOL, INT64))
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
    """Insert elements `done ...` into their lists, none of which holds one of equal (time, rank).

    Returns how many are in; fewer than all where the arrays must grow first. O(1) amortised at the end of a list, else
    O(log n + CHUNK).
    """
    while done < len(new_times):
        of, time, datum = of_list[done], new_times[done], new_data[done]
        if (
            space[_ELEMENTS] + CHUNK > len(times)
            or space[_CHUNKS] == len(chunks)
            or space[_DIRECTORIES] + max(2 * lists[of, ROOM], 2) > len(dirs)
        ):
            return done
        rank = ranks[datum] if len(ranks) > 0 else 0
        if lists[of, SIZE] == 0:
            _enter(space, lists, dirs, of, lists[of, STOP], _new_chunk(space, chunks, times, LEAST))
        place = lists[of, STOP] - 1
        chunk = dirs[lists[of, DIRECTORY] + place]
        at = chunks[chunk, END]
        last = chunks[chunk, AT] + at - 1
        if at > chunks[chunk, BEGIN] and _compare(times, data, ranks, last, time, rank) > 0:
            place, at = _find(lists, chunks, dirs, times, data, ranks, of, time, rank)
            chunk = dirs[lists[of, DIRECTORY] + place]
        begin, end, room = chunks[chunk, BEGIN], chunks[chunk, END], chunks[chunk, CAPACITY]
        base = chunks[chunk, AT]
        if end == room and 4 * begin >= room:  # room at its front: move up
            for i in range(begin, end):
                times[base + i - begin] = times[base + i]
                data[base + i - begin] = data[base + i]
                heads[base + i - begin] = heads[base + i]
            chunks[chunk, BEGIN], chunks[chunk, END] = 0, end - begin
            at -= begin
        elif end == room and room < CHUNK:
            to = take_region(space, times, _ELEMENTS, _NO_ELEMENTS, log2(4 * room))
            for i in range(begin, end):
                times[to + i] = times[base + i]
                data[to + i] = data[base + i]
                heads[to + i] = heads[base + i]
            give_back(space, times, _NO_ELEMENTS, log2(room), base)
            chunks[chunk, AT], chunks[chunk, CAPACITY] = to, 4 * room
        elif end == room:
            other = _new_chunk(space, chunks, times, CHUNK)
            keep = end if at == end and place + 1 == lists[of, STOP] else (begin + end) // 2
            to = chunks[other, AT]
            for i in range(keep, end):
                times[to + i - keep] = times[base + i]
                data[to + i - keep] = data[base + i]
                heads[to + i - keep] = heads[base + i]
            chunks[chunk, END], chunks[other, END] = keep, end - keep
            first = lists[of, FIRST]
            _enter(space, lists, dirs, of, place + 1, other)
            place += lists[of, FIRST] - first  # the directory may have moved up
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
        if at == end and place + 1 == lists[of, STOP] and len(ranks) == 0:  # what follows it goes the same way
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


@compiled((*_PLACES, READ_INT64, READ_INT64, WRITE_INT64, WRITE_INT64, WRITE_INT64))
def look_up(
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
    """The data of each list's element at a time, of the one before it and of the one after; -1 where there is none."""
    for i in range(len(wanted)):
        before[i] = here[i] = after[i] = -1
        of = of_list[i]
        if lists[of, SIZE] == 0:
            continue
        place, at = _find(lists, chunks, dirs, times, data, times[:0], of, wanted[i], 0)
        previous, found = _element(lists, chunks, dirs, of, place, at - 1), _element(lists, chunks, dirs, of, place, at)
        if previous >= 0:
            before[i] = data[previous]
        following = found
        if found >= 0 and times[found] == wanted[i]:
            here[i] = data[found]
            following = _element(lists, chunks, dirs, of, place, at + 1)
        if following >= 0:
            after[i] = data[following]


@compiled((*_PLACES, READ_INT64, READ_INT64, READ_INT64))
def replace(
    lists: IntArray,
    chunks: IntArray,
    dirs: IntArray,
    times: IntArray,
    data: IntArray,
    of_list: IntArray,
    wanted: IntArray,
    new_data: IntArray,
) -> None:
    """Give elements that are there other data."""
    for i in range(len(wanted)):
        place, at = _find(lists, chunks, dirs, times, data, times[:0], of_list[i], wanted[i], 0)
        data[_element(lists, chunks, dirs, of_list[i], place, at)] = new_data[i]


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
    """Drop the first elements of lists: those before a time, and those that are more than `most[i]`.

    Writes their data and returns how many they were. What becomes first is a head. O(1) amortised an element.
    """
    count = 0
    for i in range(len(of_list)):
        of = of_list[i]
        while lists[of, SIZE] > 0:
            place = lists[of, DIRECTORY] + lists[of, FIRST]
            chunk = dirs[place]
            at = chunks[chunk, AT] + chunks[chunk, BEGIN]
            if times[at] >= before and lists[of, SIZE] <= most[i]:
                break
            dropped[count] = data[at]
            count += 1
            chunks[chunk, BEGIN] += 1
            lists[of, SIZE] -= 1
            if chunks[chunk, BEGIN] == chunks[chunk, END]:
                give_back(space, times, _NO_ELEMENTS, log2(chunks[chunk, CAPACITY]), chunks[chunk, AT])
                chunks[chunk, AT] = space[_NO_CHUNK]
                space[_NO_CHUNK] = chunk
                lists[of, FIRST] += 1
                if lists[of, SIZE] == 0:
                    lists[of, HEADS] = 0
                    break
                chunk = dirs[place + 1]
            at = chunks[chunk, AT] + chunks[chunk, BEGIN]
            lists[of, HEADS] -= heads[at]
            heads[at] = True
    return count


@compiled((*_PLACES, _WRITE_BOOL, READ_INT64, WRITE_INT64, WRITE_INT64, _WRITE_BOOL, WRITE_INT64))
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
    """The elements of lists one list after the other, list i at `starts[i] : starts[i + 1]`. O(elements)."""
    count = 0
    for i in range(len(of_list)):
        starts[i] = count
        of = of_list[i]
        for place in range(lists[of, FIRST], lists[of, STOP]):
            chunk = dirs[lists[of, DIRECTORY] + place]
            for at in range(chunks[chunk, AT] + chunks[chunk, BEGIN], chunks[chunk, AT] + chunks[chunk, END]):
                out_times[count], out_data[count], out_heads[count] = times[at], data[at], heads[at]
                count += 1
    starts[len(of_list)] = count


@compiled(INT64(*_PLACES, _WRITE_BOOL, READ_INT64, *(WRITE_INT64,) * 5))
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
    """The stretches of lists that begin with a head: list, data of the head, `[start, end)`, elements.

    A stretch ends where the next one begins, the last one of a list at its last element. No value is looked at.
    """
    run = -1
    for i in range(len(of_list)):
        of = of_list[i]
        time = 0
        for place in range(lists[of, FIRST], lists[of, STOP]):
            chunk = dirs[lists[of, DIRECTORY] + place]
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
        *_PLACES, _WRITE_BOOL, READ_INT64, READ_INT64, _READ_BOOL, _READ_BOOL, _READ_BOOL, _READ_BOOL,
        WRITE_INT64, WRITE_INT64,
    )
)  # fmt: skip
def join_neighbours(
    lists: IntArray,
    chunks: IntArray,
    dirs: IntArray,
    times: IntArray,
    data: IntArray,
    heads: BoolArray,
    of_list: IntArray,
    wanted: IntArray,
    goes_on: BoolArray,
    goes_before: BoolArray,
    same_before: BoolArray,
    same_after: BoolArray,
    uses: IntArray,
    freed: IntArray,
) -> Any:
    """Tell elements that are in their lists, and those after them, whether they go on what stands before them.

    Elements rise in each list. Where `same_before` (`same_after`) is true too, an element and the one before (after) it
    share their data from now on, and so does the rest of the stretch behind; `uses` counts how many elements have a
    datum, and those that none has any more are written to `freed`. Returns how many these are.
    """
    count = 0
    for i in range(len(wanted)):
        of = of_list[i]
        place, at = _find(lists, chunks, dirs, times, data, times[:0], of, wanted[i], 0)
        previous, here = _element(lists, chunks, dirs, of, place, at - 1), _element(lists, chunks, dirs, of, place, at)
        following = _element(lists, chunks, dirs, of, place, at + 1)
        lists[of, HEADS] += (not goes_on[i]) - heads[here]
        heads[here] = not goes_on[i]
        if following >= 0:
            lists[of, HEADS] += (not goes_before[i]) - heads[following]
            heads[following] = not goes_before[i]
        mine = data[here]
        if goes_on[i] and same_before[i]:
            data[here] = data[previous]
            uses[data[here]] += 1
            uses[mine] -= 1
            if uses[mine] == 0:
                freed[count] = mine
                count += 1
            mine = data[here]
        if following >= 0 and goes_before[i] and same_after[i]:
            other = data[following]
            at += 1
            while following >= 0 and data[following] == other and other != mine:
                data[following] = mine
                uses[mine] += 1
                uses[other] -= 1
                if uses[other] == 0:
                    freed[count] = other
                    count += 1
                chunk = dirs[lists[of, DIRECTORY] + place]
                if at >= chunks[chunk, END]:
                    place += 1
                    at = chunks[dirs[lists[of, DIRECTORY] + place], BEGIN]
                at += 1
                following = _element(lists, chunks, dirs, of, place, at)
    return count


@compiled(INT64(WRITE_INT64, READ_INT64, INT64, WRITE_INT64))
def count_uses(uses: IntArray, data: IntArray, change: int, freed: IntArray) -> Any:
    """Add `change` for each datum; writes those that have no use any more and returns how many they are."""
    count = 0
    for datum in data:
        uses[datum] += change
        if uses[datum] == 0:
            freed[count] = datum
            count += 1
    return count


class SortedLists:
    """Numbered lists of (time, datum) in order of time, or of (time, rank of the datum) where ranks are given.

    `heads` marks elements that begin something: what becomes first in its list does.

    >>> lists = SortedLists(); lists.need(2)
    >>> lists.insert(np.array([0, 1, 0]), np.array([5, 9, 3]), np.array([50, 90, 30]), np.ones(3, bool))
    >>> lists.read(np.array([0, 1]))[:2]
    (array([3, 5, 9]), array([30, 50, 90]))
    """

    def __init__(self) -> None:
        self.space = np.full(_SPACE, -1, np.int64)
        self.space[:_NO_CHUNK] = 0
        self.lists = np.zeros((0, 7), np.int64)
        self.chunks = np.zeros((16, 4), np.int64)
        self.dirs, self.times, self.data = np.zeros(64, np.int64), np.zeros(1024, np.int64), np.zeros(1024, np.int64)
        self.heads = np.zeros(1024, bool)

    @property
    def places(self) -> tuple[IntArray, IntArray, IntArray, IntArray, IntArray]:
        """Lists, chunks, directories, times and data, as the kernels take them."""
        return self.lists, self.chunks, self.dirs, self.times, self.data

    @property
    def sizes(self) -> IntArray:
        """Elements of each list."""
        return self.lists[:, SIZE]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays as far as they are in use."""
        of_elements = 17 * self.space[_ELEMENTS] + 8 * self.space[_DIRECTORIES]
        return int(of_elements + 32 * self.space[_CHUNKS] + self.lists.nbytes)

    @property
    def heads_held(self) -> int:
        """Heads of all lists."""
        return int(self.lists[:, HEADS].sum())

    def latest(self, of: IntArray) -> IntArray:
        """The greatest time that lists have had, `EMPTY` of none."""
        return np.asarray(self.lists[of, LAST])

    def forget(self, of: IntArray) -> None:
        """Begin empty lists anew."""
        self.lists[of, LAST] = EMPTY

    def need(self, lists: int) -> None:
        """Have at least so many lists. O(1) amortised for each."""
        if lists > len(self.lists):
            more = np.zeros((max(lists - len(self.lists), len(self.lists) // 2), 7), np.int64)
            more[:, LAST] = EMPTY
            self.lists = np.concatenate([self.lists, more])

    def insert(
        self, of: IntArray, times: IntArray, data: IntArray, heads: BoolArray, ranks: IntArray | None = None
    ) -> None:
        """See the kernel `insert`; the arrays grow by doubling."""
        done, ranks = 0, np.zeros(0, np.int64) if ranks is None else ranks
        while True:
            done = insert(self.space, *self.places, self.heads, ranks, of, times, data, heads, done)
            if done == len(of):
                return
            if self.space[_ELEMENTS] + CHUNK > len(self.times):
                self.times, self.data, self.heads = map(_doubled, (self.times, self.data, self.heads))
            if self.space[_CHUNKS] == len(self.chunks):
                self.chunks = _doubled(self.chunks)
            while self.space[_DIRECTORIES] + max(2 * self.lists[of[done], ROOM], 2) > len(self.dirs):
                self.dirs = _doubled(self.dirs)

    def firsts(self, of: IntArray) -> tuple[IntArray, IntArray]:
        """Time and datum of the first element of lists that are not empty."""
        chunk = self.chunks[self.dirs[self.lists[of, DIRECTORY] + self.lists[of, FIRST]]]
        at = chunk[:, AT] + chunk[:, BEGIN]
        return self.times[at], self.data[at]

    def last_data(self, of: IntArray) -> IntArray:
        """The datum of the last element of lists that are not empty."""
        chunk = self.chunks[self.dirs[self.lists[of, DIRECTORY] + self.lists[of, STOP] - 1]]
        return np.asarray(self.data[chunk[:, AT] + chunk[:, END] - 1])

    def look_up(self, of: IntArray, times: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """The data before, at and after times, see the kernel `look_up`."""
        before, here, after = (np.empty(len(of), np.int64) for _ in range(3))
        look_up(*self.places, of, times, before, here, after)
        return before, here, after

    def replace(self, of: IntArray, times: IntArray, data: IntArray) -> None:
        """Give the elements at times other data."""
        replace(*self.places, of, times, data)

    def join_neighbours(
        self,
        of: IntArray,
        times: IntArray,
        goes_on: BoolArray,
        goes_before: BoolArray,
        same_before: BoolArray,
        same_after: BoolArray,
        uses: IntArray,
    ) -> IntArray:
        """The data that nothing uses any more, see the kernel `join_neighbours`."""
        freed = np.empty(2 * len(of), np.int64)
        count = join_neighbours(
            *self.places, self.heads, of, times, goes_on, goes_before, same_before, same_after, uses, freed
        )
        return freed[:count]

    @staticmethod
    def count_uses(uses: IntArray, data: IntArray, change: int) -> IntArray:
        """The data that nothing uses any more, see the kernel `count_uses`."""
        freed = np.empty(len(data), np.int64)
        return freed[: count_uses(uses, data, change, freed)]

    def drop_first(self, of: IntArray, before: int, most: IntArray) -> IntArray:
        """The data of the elements that are dropped, see the kernel `drop_first`."""
        dropped = np.empty(int(self.sizes[of].sum()), np.int64)
        count = drop_first(self.space, *self.places, self.heads, of, before, most, dropped)
        return dropped[:count]

    def read(self, of: IntArray) -> tuple[IntArray, IntArray, BoolArray, IntArray]:
        """Times, data, heads and starts of lists, see the kernel `read`."""
        size = int(self.sizes[of].sum())
        times, data, heads = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, bool)
        starts = np.empty(len(of) + 1, np.int64)
        read(*self.places, self.heads, of, times, data, heads, starts)
        return times, data, heads, starts

    def read_runs(self, of: IntArray) -> tuple[IntArray, ...]:
        """List, datum, start, end and length of the stretches of lists, see the kernel `read_runs`."""
        number, first, start, end, n = (np.empty(int(self.lists[of, HEADS].sum()), np.int64) for _ in range(5))
        read_runs(*self.places, self.heads, of, number, first, start, end, n)
        return number, first, start, end, n

    def _check(self) -> None:
        """Assert the invariants of the arrays. O(all)."""
        regions, seen = [], set()
        for number, (base, first, stop, room, last, size, heads) in enumerate(self.lists.tolist()):
            assert 0 <= first <= stop <= room, f"directory of list {number}"
            chunks = self.dirs[base + first : base + stop].tolist() if size else []
            assert size or first == stop, f"list {number} has chunks and no element"
            held: list[int] = []
            marked = 0
            for chunk in chunks:
                assert chunk not in seen, f"chunk {chunk} stands twice"
                seen.add(chunk)
                at, begin, end, capacity = self.chunks[chunk].tolist()
                assert 0 <= begin < end <= capacity <= CHUNK, f"chunk {chunk} of list {number}"
                regions.append((at, at + capacity))
                held += self.times[at + begin : at + end].tolist()
                marked += int(self.heads[at + begin : at + end].sum())
            assert held == sorted(held), f"list {number} is out of order"
            assert (len(held), marked) == (size, heads), f"list {number} is miscounted"
            assert not held or held[-1] <= last, f"last time of list {number}"
        regions.sort()
        assert all(one[1] <= other[0] for one, other in pairwise(regions)), "chunks share room"
        assert not regions or regions[-1][1] <= self.space[_ELEMENTS] <= len(self.times), "a chunk lies outside"


def _doubled(array: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([array, np.zeros_like(array)])

"""Many sorted lists of times: what an extent in memory is built on."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.coalescing.sorted_list_kernels import (
    AT,
    BEGIN,
    CHUNK,
    CHUNKS,
    DIRECTORIES,
    DIRECTORY,
    ELEMENTS,
    EMPTY,
    END,
    FIRST,
    FREE_CHUNK,
    HEADS,
    LAST,
    ROOM,
    SIZE,
    SPACE,
    STOP,
    drop_first,
    insert,
    neighbours,
)
from whenabouts.core.coalescing.sorted_list_runs import count_uses, link_neighbours, read, read_between, read_runs


class Neighbours(NamedTuple):
    """Indices of elements into `SortedLists.times`, `data` and `heads`, until elements are added or dropped; or -1."""

    before: IntArray
    here: IntArray
    after: IntArray

    def at(self, indices: IntArray) -> Neighbours:
        """Those at these indices."""
        return Neighbours(*(column[indices] for column in self))


class SortedLists:
    """Numbered lists of (time, datum), sorted by time, or by (time, rank of the datum) if ranks are given.

    `heads` marks the elements that begin a run; the first element of a list always does.

    >>> lists = SortedLists(); lists.need(2)
    >>> lists.insert(np.array([0, 1, 0]), np.array([5, 9, 3]), np.array([50, 90, 30]), np.ones(3, bool))
    >>> lists.read(np.array([0, 1]))[:2]
    (array([3, 5, 9]), array([30, 50, 90]))
    """

    def __init__(self) -> None:
        self.space = np.full(SPACE, -1, np.int64)
        self.space[:FREE_CHUNK] = 0
        self.lists = np.zeros((0, 7), np.int64)
        self.chunks = np.zeros((16, 4), np.int64)
        self.dirs, self.times, self.data = np.zeros(64, np.int64), np.zeros(1024, np.int64), np.zeros(1024, np.int64)
        self.heads = np.zeros(1024, bool)

    @property
    def arrays(self) -> tuple[IntArray, IntArray, IntArray, IntArray, IntArray]:
        """Lists, chunks, directories, times and data, in the order of the kernels' parameters."""
        return self.lists, self.chunks, self.dirs, self.times, self.data

    @property
    def sizes(self) -> IntArray:
        """Elements of each list."""
        return self.lists[:, SIZE]

    @property
    def nbytes(self) -> int:
        """Bytes of the parts of the arrays that are in use."""
        of_elements = 17 * self.space[ELEMENTS] + 8 * self.space[DIRECTORIES]
        return int(of_elements + 32 * self.space[CHUNKS] + self.lists.nbytes)

    @property
    def heads_held(self) -> int:
        """How many heads all lists have."""
        return int(self.lists[:, HEADS].sum())

    def latest(self, of: IntArray) -> IntArray:
        """The greatest time that each list has had, `EMPTY` if none."""
        return np.asarray(self.lists[of, LAST])

    def reset(self, of: IntArray) -> None:
        """Let empty lists start again: clears their greatest times."""
        self.lists[of, LAST] = EMPTY

    def need(self, lists: int) -> None:
        """Grow to at least this many lists. O(1) amortised for each."""
        if lists > len(self.lists):
            more = np.zeros((max(lists - len(self.lists), len(self.lists) // 2), 7), np.int64)
            more[:, LAST] = EMPTY
            self.lists = np.concatenate([self.lists, more])

    def insert(
        self, of: IntArray, times: IntArray, data: IntArray, heads: BoolArray, ranks: IntArray | None = None
    ) -> None:
        """Insert elements, see the kernel `insert`; the arrays grow by doubling."""
        done, ranks = 0, np.zeros(0, np.int64) if ranks is None else ranks
        while True:
            done = insert(self.space, *self.arrays, self.heads, ranks, of, times, data, heads, done)
            if done == len(of):
                return
            if self.space[ELEMENTS] + CHUNK > len(self.times):
                self.times, self.data, self.heads = map(_doubled, (self.times, self.data, self.heads))
            if self.space[CHUNKS] == len(self.chunks):
                self.chunks = _doubled(self.chunks)
            while self.space[DIRECTORIES] + max(2 * self.lists[of[done], ROOM], 2) > len(self.dirs):
                self.dirs = _doubled(self.dirs)

    def firsts(self, of: IntArray) -> tuple[IntArray, IntArray]:
        """Time and datum of the first element of each list; none may be empty."""
        chunk = self.chunks[self.dirs[self.lists[of, DIRECTORY] + self.lists[of, FIRST]]]
        at = chunk[:, AT] + chunk[:, BEGIN]
        return self.times[at], self.data[at]

    def last_data(self, of: IntArray) -> IntArray:
        """The datum of the last element of each list; none may be empty."""
        chunk = self.chunks[self.dirs[self.lists[of, DIRECTORY] + self.lists[of, STOP] - 1]]
        return np.asarray(self.data[chunk[:, AT] + chunk[:, END] - 1])

    def neighbours(self, of: IntArray, times: IntArray) -> Neighbours:
        """The elements before, at and after times, see the kernel `neighbours`. O(log n) each."""
        found = Neighbours(*(np.empty(len(of), np.int64) for _ in range(3)))
        neighbours(*self.arrays, of, times, *found)
        return found

    def link_neighbours(
        self,
        of: IntArray,
        found: Neighbours,
        extends: BoolArray,
        is_extended: BoolArray,
        same_before: BoolArray,
        same_after: BoolArray,
        uses: IntArray,
    ) -> IntArray:
        """Link elements to their neighbours; returns data that are now unused, see the kernel `link_neighbours`."""
        freed = np.empty(2 * len(of), np.int64)
        count = link_neighbours(
            *self.arrays, self.heads, of, *found, extends, is_extended, same_before, same_after, uses, freed
        )
        return freed[:count]

    @staticmethod
    def count_uses(uses: IntArray, data: IntArray, change: int) -> IntArray:
        """Change use counts; returns data that are now unused, see the kernel `count_uses`."""
        freed = np.empty(len(data), np.int64)
        return freed[: count_uses(uses, data, change, freed)]

    def drop_first(self, of: IntArray, before: int, most: IntArray) -> IntArray:
        """Drop first elements; returns their data, see the kernel `drop_first`."""
        dropped = np.empty(int(self.sizes[of].sum()), np.int64)
        count = drop_first(self.space, *self.arrays, self.heads, of, before, most, dropped)
        return dropped[:count]

    def read(self, of: IntArray) -> tuple[IntArray, IntArray, BoolArray, IntArray]:
        """Times, data, heads and starts of lists, see the kernel `read`."""
        size = int(self.sizes[of].sum())
        times, data, heads = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, bool)
        starts = np.empty(len(of) + 1, np.int64)
        read(*self.arrays, self.heads, of, times, data, heads, starts)
        return times, data, heads, starts

    def count_between(self, of: IntArray, least: int, before: int) -> tuple[IntArray, int]:
        """How many elements have `least <= time < before`, summed up to each list, and the least later time.

        That time is 2^63 - 1 if there is none.
        """
        nothing, starts = np.zeros(0, np.int64), np.empty(len(of) + 1, np.int64)
        found = read_between(*self.arrays, self.heads, of, least, before, nothing, nothing, self.heads[:0], starts)
        return starts, int(found[1])

    def read_between(
        self, of: IntArray, least: int, before: int
    ) -> tuple[IntArray, IntArray, BoolArray, IntArray, int]:
        """As `read`, the elements with `least <= time < before`; and the least later time, as `count_between`."""
        size = int(self.sizes[of].sum())
        times, data, heads = np.empty(max(size, 1), np.int64), np.empty(size, np.int64), np.empty(size, bool)
        starts = np.empty(len(of) + 1, np.int64)
        size, later = read_between(*self.arrays, self.heads, of, least, before, times, data, heads, starts)
        return times[:size], data[:size], heads[:size], starts, later

    def read_runs(self, of: IntArray) -> tuple[IntArray, ...]:
        """List, datum of the head, start, end and length of each run, see the kernel `read_runs`."""
        number, first, start, end, n = (np.empty(int(self.lists[of, HEADS].sum()), np.int64) for _ in range(5))
        read_runs(*self.arrays, self.heads, of, number, first, start, end, n)
        return number, first, start, end, n

    def _check(self) -> None:
        """Raise AssertionError unless the invariants of the arrays hold. O(all)."""
        blocks, seen = [], set()
        for number, (base, first, stop, room, last, size, heads) in enumerate(self.lists.tolist()):
            assert 0 <= first <= stop <= room, f"directory of list {number}"
            chunks = self.dirs[base + first : base + stop].tolist() if size else []
            assert size or first == stop, f"list {number} has chunks but no element"
            held: list[int] = []
            marked = 0
            for chunk in chunks:
                assert chunk not in seen, f"chunk {chunk} is used twice"
                seen.add(chunk)
                at, begin, end, capacity = self.chunks[chunk].tolist()
                assert 0 <= begin < end <= capacity <= CHUNK, f"chunk {chunk} of list {number}"
                blocks.append((at, at + capacity))
                held += self.times[at + begin : at + end].tolist()
                marked += int(self.heads[at + begin : at + end].sum())
            assert held == sorted(held), f"list {number} is not sorted"
            assert (len(held), marked) == (size, heads), f"list {number} has wrong counts"
            assert not held or held[-1] <= last, f"last time of list {number}"
        blocks.sort()
        assert all(one[1] <= other[0] for one, other in pairwise(blocks)), "chunks overlap"
        assert not blocks or blocks[-1][1] <= self.space[ELEMENTS] <= len(self.times), "a chunk is out of bounds"


def _doubled(array: NDArray[Any]) -> NDArray[Any]:
    more = np.zeros((2 * len(array), *array.shape[1:]), array.dtype)  # zeroed by the system, where it is first used
    more[: len(array)] = array
    return more

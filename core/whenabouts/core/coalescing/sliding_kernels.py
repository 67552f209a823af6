"""Kernels of tuples that come at one end of their group and go at the other; each group has places of its own.

A group's tuples lie side by side. Where its places are used up they move to the front of them, or to twice as many:
O(1) amortised for each tuple. What aggregates keep of a group (`coalescing.sliding_aggregates`) moves along.
"""

from __future__ import annotations

from typing import Any

from numba import types

from whenabouts.core.arrays.jit import (
    INT64,
    READ_INT64,
    TWO_INT64,
    WRITE_INT64,
    WRITE_INT64_2D,
    compiled,
)
from whenabouts.core.arrays.slab_pool import give_back, log2, take_region
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.coalescing.kernels import first_from
from whenabouts.core.coalescing.sliding_aggregates import (
    BASE,
    BEGIN,
    COUNTED,
    END,
    HEAD,
    HIGH_FROM,
    HIGH_TO,
    INSIDE,
    LOW_FROM,
    LOW_TO,
    NEXT,
    ROOM,
    SCANNED,
)

LEAST = 16
"""Places of the smallest region, and hence of all regions a multiple."""
TOP, FREE = 0, 1
SPACE = 64

_READ_BOOL = types.Array(types.boolean, 1, "C", readonly=True)
_WRITE_BOOL = types.Array(types.boolean, 1, "C")


@compiled((WRITE_INT64, INT64, INT64, INT64, INT64, INT64, INT64), inline=True)
def _move_ring(ring: IntArray, base: int, room: int, to: int, size: int, first: int, stop: int) -> None:
    for at in range(first, stop):
        ring[to + (at & (size - 1))] = ring[base + (at & (room - 1))]


@compiled(INT64(
    WRITE_INT64, WRITE_INT64_2D, WRITE_INT64, WRITE_INT64, WRITE_INT64, WRITE_INT64, _WRITE_BOOL, _WRITE_BOOL,
    WRITE_INT64, WRITE_INT64, WRITE_INT64, READ_INT64, READ_INT64, INT64,
))  # fmt: skip
def make_room(
    space: IntArray,
    groups: IntArray,
    owners: IntArray,
    times: IntArray,
    data: IntArray,
    order: IntArray,
    linked: BoolArray,
    passes: BoolArray,
    high: IntArray,
    low: IntArray,
    ordered: IntArray,
    which: IntArray,
    more: IntArray,
    done: int,
) -> Any:
    """Let groups have room for `more[i]` tuples behind their last one; `owners` tells whose each `LEAST` places are.

    Returns how many groups are ready; fewer than all where the arrays must grow first.
    """
    for i in range(done, len(which)):
        of = which[i]
        base, room, begin = groups[of, BASE], groups[of, ROOM], groups[of, BEGIN]
        held = groups[of, END] - begin
        if begin + held + more[i] <= base + room:
            continue
        to, size = base, room
        if 2 * (held + more[i]) > room:
            size = 1 << log2(max(2 * (held + more[i]), LEAST))
            if space[TOP] + size > len(times):
                return i
            to = take_region(space, times, TOP, FREE, log2(size))
            for place in range(to // LEAST, (to + size) // LEAST):
                owners[place] = of
        for at in range(held):
            times[to + at], data[to + at] = times[begin + at], data[begin + at]
            linked[to + at], passes[to + at] = linked[begin + at], passes[begin + at]
            if len(order) > 0:
                order[to + at] = order[begin + at]
        if to != base and room > 0:
            if len(high) > 0:
                _move_ring(high, base, room, to, size, groups[of, HIGH_FROM], groups[of, HIGH_TO])
                _move_ring(low, base, room, to, size, groups[of, LOW_FROM], groups[of, LOW_TO])
            if len(ordered) > 0:
                _move_ring(ordered, base, room, to, size, 0, groups[of, INSIDE])
            give_back(space, times, FREE, log2(room), base)
        if groups[of, SCANNED] > begin:
            for moved in (SCANNED, HEAD, NEXT):
                groups[of, moved] += to - begin
        else:
            groups[of, SCANNED] = 0
        groups[of, BASE], groups[of, ROOM] = to, size
        groups[of, BEGIN], groups[of, END] = to, to + held
    return len(which)


@compiled((
    WRITE_INT64_2D, WRITE_INT64, WRITE_INT64, WRITE_INT64, _WRITE_BOOL, _WRITE_BOOL,
    READ_INT64, READ_INT64, READ_INT64, READ_INT64, READ_INT64, _READ_BOOL, _READ_BOOL,
))  # fmt: skip
def append(
    groups: IntArray,
    times: IntArray,
    data: IntArray,
    order: IntArray,
    linked: BoolArray,
    passes: BoolArray,
    which: IntArray,
    starts: IntArray,
    new_times: IntArray,
    new_data: IntArray,
    new_order: IntArray,
    new_linked: BoolArray,
    new_passes: BoolArray,
) -> None:
    """Tuples `[starts[i], starts[i + 1])` go behind the last one of group `which[i]`, where there is room."""
    for i in range(len(which)):
        end = groups[which[i], END]
        for at in range(starts[i], starts[i + 1]):
            times[end], data[end], linked[end], passes[end] = (
                new_times[at],
                new_data[at],
                new_linked[at],
                new_passes[at],
            )
            if len(order) > 0:
                order[end] = new_order[at]
            end += 1
        groups[which[i], END] = end
        groups[which[i], COUNTED] += starts[i + 1] - starts[i]


@compiled((WRITE_INT64_2D, READ_INT64, READ_INT64, INT64, INT64, WRITE_INT64))
def places_that_stay(groups: IntArray, keys: IntArray, which: IntArray, least: int, most: int, stays: IntArray) -> None:
    """From where on tuples stay: the first whose key is not below `least`, and of which there are no more than `most`.

    Amortised O(tuples that go + groups).
    """
    for i in range(len(which)):
        first, stop = groups[which[i], BEGIN], groups[which[i], END]
        first = max(first, stop - most)
        while first < stop and keys[first] < least:
            first += 1
        stays[i] = first


@compiled(TWO_INT64(
    WRITE_INT64, WRITE_INT64_2D, WRITE_INT64, READ_INT64, _READ_BOOL, READ_INT64, READ_INT64, WRITE_INT64, WRITE_INT64
))  # fmt: skip
def drop_before(
    space: IntArray,
    groups: IntArray,
    times: IntArray,
    data: IntArray,
    linked: BoolArray,
    which: IntArray,
    stays: IntArray,
    freed: IntArray,
    dropped: IntArray,
) -> Any:
    """Drop the tuples before the places `stays[i]`.

    Writes the data that no tuple has any more (those of a datum lie side by side), and to `dropped` how many tuples and
    how many links went, that of a group's first tuple included: it stays to tell that a run lost its beginning, and
    counts no more. Returns how many data, and how many groups with none left; these give their places back.
    """
    count = empty = 0
    for i in range(len(which)):
        of = which[i]
        first, stop = groups[of, BEGIN], groups[of, END]
        for at in range(first, stays[i]):
            dropped[1] += linked[at] and at > first
            if at + 1 == stop or data[at + 1] != data[at]:
                freed[count] = data[at]
                count += 1
        at = stays[i]
        dropped[0] += at - first
        groups[of, BEGIN] = at
        if at < stop:
            dropped[1] += linked[at] and at > first
            continue
        empty += 1
        if groups[of, ROOM] > 0:
            give_back(space, times, FREE, log2(groups[of, ROOM]), groups[of, BASE])
        groups[of, :] = 0
    return count, empty


@compiled((WRITE_INT64_2D, READ_INT64, READ_INT64, READ_INT64, WRITE_INT64))
def places_at(groups: IntArray, times: IntArray, which: IntArray, us: IntArray, places: IntArray) -> None:
    """Where the tuples of groups at times lie, which are there."""
    for i in range(len(which)):
        places[i] = first_from(times, groups[which[i], BEGIN], groups[which[i], END], us[i])


@compiled(INT64(WRITE_INT64_2D, READ_INT64, READ_INT64, INT64, WRITE_INT64, WRITE_INT64))
def places_from(
    groups: IntArray, times: IntArray, which: IntArray, from_us: int, starts: IntArray, places: IntArray
) -> Any:
    """Where the tuples at or after a time lie, group by group; with no `places` only how many they are.

    O(groups + these tuples).
    """
    count = 0
    for i in range(len(which)):
        starts[i] = count
        first = stop = groups[which[i], END]
        while first > groups[which[i], BEGIN] and times[first - 1] >= from_us:
            first -= 1
        if len(places) > 0:
            for at in range(first, stop):
                places[count + at - first] = at
        count += stop - first
    starts[len(which)] = count
    return count

"""Kernels for tuples that are appended at one end of their group and dropped at the other; each group has its block.

A group's tuples are contiguous. When its block is full they move to the block's front, or to a block of twice the size:
O(1) amortised per tuple. What aggregates maintain for the group (`coalescing.sliding_aggregates`) moves along.
"""

from __future__ import annotations

from typing import Any

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
"""The size of the smallest block; all block sizes are multiples of it."""
TOP, FREE = 0, 1
SPACE = 64


@compiled((WRITE_INT64, INT64, INT64, INT64, INT64, INT64, INT64), inline=True)
def _move_ring(ring: IntArray, base: int, room: int, to: int, size: int, first: int, stop: int) -> None:
    for at in range(first, stop):
        ring[to + (at & (size - 1))] = ring[base + (at & (room - 1))]


@compiled(INT64(
    WRITE_INT64, WRITE_INT64_2D, WRITE_INT64, WRITE_INT64, WRITE_INT64, WRITE_INT64, WRITE_BOOL, WRITE_BOOL,
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
    ids: IntArray,
    more: IntArray,
    done: int,
) -> Any:
    """Give groups room for `more[i]` tuples after their last one; `owners` has the owner of every `LEAST` indices.

    Returns how many groups are done; if fewer than all, the arrays must grow first.
    """
    for i in range(done, len(ids)):
        of = ids[i]
        base, room, begin = groups[of, BASE], groups[of, ROOM], groups[of, BEGIN]
        held = groups[of, END] - begin
        if begin + held + more[i] <= base + room:
            continue
        to, size = base, room
        if 2 * (held + more[i]) > room:
            size = 1 << log2(max(2 * (held + more[i]), LEAST))
            if space[TOP] + size > len(times):
                return i
            to = allocate(space, times, TOP, FREE, log2(size))
            for unit in range(to // LEAST, (to + size) // LEAST):
                owners[unit] = of
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
            release(space, times, FREE, log2(room), base)
        if groups[of, SCANNED] > begin:
            for moved in (SCANNED, HEAD, NEXT):
                groups[of, moved] += to - begin
        else:
            groups[of, SCANNED] = 0
        groups[of, BASE], groups[of, ROOM] = to, size
        groups[of, BEGIN], groups[of, END] = to, to + held
    return len(ids)


@compiled((
    WRITE_INT64_2D, WRITE_INT64, WRITE_INT64, WRITE_INT64, WRITE_BOOL, WRITE_BOOL,
    READ_INT64, READ_INT64, READ_INT64, READ_INT64, READ_INT64, READ_INT64, READ_BOOL, READ_BOOL,
))  # fmt: skip
def append(
    groups: IntArray,
    times: IntArray,
    data: IntArray,
    order: IntArray,
    linked: BoolArray,
    passes: BoolArray,
    ids: IntArray,
    starts: IntArray,
    sizes: IntArray,
    new_times: IntArray,
    new_data: IntArray,
    new_order: IntArray,
    new_linked: BoolArray,
    new_passes: BoolArray,
) -> None:
    """Append `sizes[i]` tuples, from `starts[i]` on, to group `ids[i]`, which has room for them."""
    for i in range(len(ids)):
        begin, stop, to = starts[i], starts[i] + sizes[i], groups[ids[i], END]
        end = to + sizes[i]
        times[to:end] = new_times[begin:stop]  # column by column: these become copies of memory
        data[to:end] = new_data[begin:stop]
        linked[to:end] = new_linked[begin:stop]
        passes[to:end] = new_passes[begin:stop]
        if len(order) > 0:
            order[to:end] = new_order[begin:stop]
        groups[ids[i], END] = end
        groups[ids[i], COUNTED] += sizes[i]


@compiled((READ_BOOL, READ_INT64, READ_INT64, READ_INT64, WRITE_INT64))
def share_slots(own: BoolArray, slots: IntArray, continued: IntArray, last: IntArray, data: IntArray) -> None:
    """The slot of each new tuple: the next one of `slots` if it has its `own`, else that of its predecessor.

    `last[i]`: the slot of the predecessor of tuple `continued[i]`.

    >>> import numpy as np; data = np.zeros(4, np.int64)
    >>> share_slots(np.array([False, True, False, True]), np.array([8, 9]), np.array([0, 2]), np.array([5, 6]), data)
    >>> data.tolist()
    [5, 8, 6, 9]
    """
    used = begin = 0
    for i in range(len(continued) + 1):
        stop = continued[i] if i < len(continued) else len(own)
        for at in range(begin, stop):  # which tuples have their own slot cannot be predicted: no branch
            used += int(own[at])
            data[at] = slots[used - 1]
        begin, limit = stop, continued[i + 1] if i + 1 < len(continued) else len(own)
        while begin < limit and not own[begin]:
            data[begin] = last[i]
            begin += 1


@compiled((WRITE_INT64_2D, READ_INT64, READ_INT64, INT64, INT64, WRITE_INT64))
def first_kept(groups: IntArray, keys: IntArray, ids: IntArray, least: int, most: int, kept_from: IntArray) -> None:
    """The first index of each group to keep: at most `most` tuples, none with a key below `least`.

    Amortised O(tuples to drop + groups).
    """
    for i in range(len(ids)):
        first, stop = groups[ids[i], BEGIN], groups[ids[i], END]
        first = max(first, stop - most)
        while first < stop and keys[first] < least:
            first += 1
        kept_from[i] = first


@compiled(TWO_INT64(
    WRITE_INT64, WRITE_INT64_2D, WRITE_INT64, READ_INT64, READ_BOOL, READ_INT64, READ_INT64, WRITE_INT64, WRITE_INT64
))  # fmt: skip
def drop_before(
    space: IntArray,
    groups: IntArray,
    times: IntArray,
    data: IntArray,
    linked: BoolArray,
    ids: IntArray,
    kept_from: IntArray,
    freed: IntArray,
    dropped: IntArray,
) -> Any:
    """Drop the tuples of each group before the index `kept_from[i]`.

    Writes to `freed` the data slots that no tuple uses any more (tuples that share one are adjacent), and to `dropped`
    how many tuples and links are gone. The link of a group's new first tuple counts as gone, but stays set: it shows
    that the run lost its beginning. Returns how many slots were freed, and how many groups are now empty; their blocks
    are released.
    """
    count = empty = 0
    for i in range(len(ids)):
        of = ids[i]
        first, stop = groups[of, BEGIN], groups[of, END]
        for at in range(first, kept_from[i]):
            dropped[1] += linked[at] and at > first
            if at + 1 == stop or data[at + 1] != data[at]:
                freed[count] = data[at]
                count += 1
        at = kept_from[i]
        dropped[0] += at - first
        groups[of, BEGIN] = at
        if at < stop:
            dropped[1] += linked[at] and at > first
            continue
        empty += 1
        if groups[of, ROOM] > 0:
            release(space, times, FREE, log2(groups[of, ROOM]), groups[of, BASE])
        groups[of, :] = 0
    return count, empty


@compiled((WRITE_INT64_2D, READ_INT64, READ_INT64, READ_INT64, WRITE_INT64))
def indices_at(groups: IntArray, times: IntArray, ids: IntArray, us: IntArray, indices: IntArray) -> None:
    """The indices of the tuples of groups `ids[i]` at times `us[i]`; these tuples must exist."""
    for i in range(len(ids)):
        indices[i] = first_from(times, groups[ids[i], BEGIN], groups[ids[i], END], us[i])


@compiled(INT64(WRITE_INT64_2D, READ_INT64, READ_INT64, INT64, WRITE_INT64, WRITE_INT64))
def indices_from(
    groups: IntArray, times: IntArray, ids: IntArray, from_us: int, starts: IntArray, indices: IntArray
) -> Any:
    """The indices of the tuples at or after a time, group by group; returns their number, and only that if `indices` is
    empty.

    O(groups + these tuples).
    """
    count = 0
    for i in range(len(ids)):
        starts[i] = count
        first = stop = groups[ids[i], END]
        while first > groups[ids[i], BEGIN] and times[first - 1] >= from_us:
            first -= 1
        if len(indices) > 0:
            for at in range(first, stop):
                indices[count + at - first] = at
        count += stop - first
    starts[len(ids)] = count
    return count

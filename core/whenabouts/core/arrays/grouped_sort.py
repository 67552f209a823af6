"""Pairs of integers sorted by group and, within each group, by the first of the two: rows by key and time.

A counting sort by group, and by the leading bits of the values where groups are large, leaves parts that fit into the
CPU's caches. Each part is distributed over two buckets a row, which insertion then finishes; a part whose values crowd
in few buckets is sorted by radix instead, and one that is nearly in order by insertion alone. Stable; O(n).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from whenabouts.core.arrays.extremes import extremes
from whenabouts.core.arrays.jit import (
    BOOL,
    INT64,
    READ_INT64,
    TWO_INT64,
    WRITE_INT32,
    WRITE_INT64,
    WRITE_INT64_2D,
    compiled,
)
from whenabouts.core.arrays.typing import IntArray, Positions

_ROWS_A_PART = 1 << 13
_MOST_PARTS = 1 << 12
"""More parts than this are not written at the same time: each has a cache line and an entry of the TLB."""
_FEW = 32
"""Parts of up to this size are sorted by insertion alone."""
_CROWDED = 16
"""A bucket of c rows costs insertion c^2 / 4 moves: with more than this many c^2 a row, radix passes cost less."""
_FEW_FALLS = 4
"""A part where no more than every fourth value is below the last one may be nearly sorted: insertion is tried."""
_MOVES_A_ROW = 4
_RADIX_BITS = 11
_RADIX = 1 << _RADIX_BITS


@compiled((READ_INT64, READ_INT64, READ_INT64, INT64, INT64, INT64, INT64, WRITE_INT64, WRITE_INT64_2D))
def partition(
    values: IntArray,
    carried: IntArray,
    codes: IntArray,
    low: int,
    least: int,
    slices: int,
    shift: int,
    starts: IntArray,
    pairs: IntArray,
) -> None:
    """Pairs by group and, within it, by `(value - least) >> shift`, of which there are `slices`: part p is
    `pairs[starts[p] : starts[p + 1]]`, in the order of the rows.

    `carried`: empty for the number of the row. `starts` has one element more than there are parts, all 0.
    """
    if slices == 1:
        for code in codes:
            starts[np.uint64(code - low) + np.uint64(1)] += 1  # unsigned: numba omits the test for negative indices
    else:
        for row in range(len(codes)):
            starts[np.uint64((codes[row] - low) * slices + ((values[row] - least) >> shift) + 1)] += 1
    for part in range(len(starts) - 1):
        starts[part + 1] += starts[part]
    free, flat = starts[:-1].copy(), pairs.reshape(pairs.size)
    for row in range(len(codes)):
        value = values[row]
        into = np.uint64((codes[row] - low) * slices + ((value - least) >> shift if slices > 1 else 0))
        to = np.uint64(free[into])
        free[into] = to + np.uint64(1)
        flat[np.uint64(2) * to] = value
        flat[np.uint64(2) * to + np.uint64(1)] = carried[row] if len(carried) > 0 else row


@compiled((WRITE_INT64_2D, INT64, INT64, INT64, INT64, WRITE_INT64_2D, WRITE_INT32))
def _by_radix(
    pairs: IntArray, begin: int, size: int, least: int, span: int, sorted_pairs: IntArray, counts: Positions
) -> None:
    # The part, sorted, to `sorted_pairs`; the pairs themselves are overwritten.
    whole = sorted_pairs[:size]
    given, sorted_ = pairs[begin : begin + size], whole
    shift = 0
    while shift < 63 and span >> shift > 0:
        counts[:_RADIX] = 0
        for i in range(size):
            counts[((given[i, 0] - least) >> shift) & (_RADIX - 1)] += 1
        total = 0
        for digit in range(_RADIX):
            here = counts[digit]
            counts[digit] = total
            total += here
        for i in range(size):
            digit = ((given[i, 0] - least) >> shift) & (_RADIX - 1)
            to = counts[digit]
            counts[digit] = to + 1
            sorted_[to, 0], sorted_[to, 1] = given[i, 0], given[i, 1]
        given, sorted_ = sorted_, given
        shift += _RADIX_BITS
    if shift % (2 * _RADIX_BITS) == 0:
        for i in range(size):
            whole[i, 0], whole[i, 1] = given[i, 0], given[i, 1]


@compiled(TWO_INT64(WRITE_INT64_2D, INT64, INT64), inline=True)
def _by_insertion(pairs: IntArray, begin: int, size: int) -> Any:
    # Sorts a part in place: whether few moves were enough (if not, it is partly sorted), and whether values are equal.
    moves, has_ties = _MOVES_A_ROW * size, 0
    for i in range(begin + 1, begin + size):
        value = pairs[i, 0]
        if pairs[i - 1, 0] < value:
            continue
        other, j = pairs[i, 1], i
        while j > begin and pairs[j - 1, 0] > value:
            pairs[j, 0], pairs[j, 1] = pairs[j - 1, 0], pairs[j - 1, 1]
            j -= 1
        pairs[j, 0], pairs[j, 1] = value, other
        has_ties |= j > begin and pairs[j - 1, 0] == value
        moves -= i - j
        if moves < 0:
            return 0, has_ties
    return 1, has_ties


@compiled(BOOL(READ_INT64, WRITE_INT64_2D))
def _sort_parts(starts: IntArray, pairs: IntArray) -> Any:
    # Sorts each part by its first column; returns whether two values of a part are equal.
    most = 0
    for part in range(len(starts) - 1):
        most = max(most, starts[part + 1] - starts[part])
    near = np.empty((most, 2), np.int64)
    counts = np.empty(max(2 * most, _RADIX) + 1, np.int32)
    has_ties = False
    for part in range(len(starts) - 1):
        begin, size = starts[part], starts[part + 1] - starts[part]
        if size < 2:
            continue
        falls = 0
        least = greatest = pairs[begin, 0]
        for i in range(begin + 1, begin + size):
            value = pairs[i, 0]
            falls += value <= pairs[i - 1, 0]
            least = min(least, value)
            greatest = max(greatest, value)
        if falls == 0:
            continue
        if falls <= size // _FEW_FALLS:
            done, ties = _by_insertion(pairs, begin, size)
            has_ties |= ties != 0
            if done:
                continue
        span = greatest - least
        if size <= _FEW:
            for i in range(size):
                near[i, 0], near[i, 1] = pairs[begin + i, 0], pairs[begin + i, 1]
        else:
            shift = 0
            while span >> shift >= 2 * size:
                shift += 1
            buckets = (span >> shift) + 1
            counts[: buckets + 1] = 0
            for i in range(begin, begin + size):
                counts[((pairs[i, 0] - least) >> shift) + 1] += 1
            crowding = 0
            for bucket in range(buckets):
                crowding += np.int64(counts[bucket + 1]) * counts[bucket + 1]
                counts[bucket + 1] += counts[bucket]
            if crowding > _CROWDED * size and shift > 0:
                _by_radix(pairs, begin, size, least, span, near, counts)
            else:
                for i in range(begin, begin + size):
                    value = pairs[i, 0]
                    bucket = (value - least) >> shift
                    to = counts[bucket]
                    counts[bucket] = to + 1
                    near[to, 0], near[to, 1] = value, pairs[i, 1]
        pairs[begin, 0], pairs[begin, 1] = near[0, 0], near[0, 1]
        for i in range(1, size):
            value, other = near[i, 0], near[i, 1]
            j = begin + i
            while j > begin and pairs[j - 1, 0] > value:
                pairs[j, 0], pairs[j, 1] = pairs[j - 1, 0], pairs[j - 1, 1]
                j -= 1
            pairs[j, 0], pairs[j, 1] = value, other
            has_ties |= j > begin and pairs[j - 1, 0] == value
    return has_ties


class GroupedPairs(NamedTuple):
    """Sorted pairs, int64 [n, 2]: those of group g are `starts[g] : starts[g + 1]`. `has_ties`: whether two values of a
    group are equal."""

    pairs: IntArray
    starts: IntArray
    has_ties: bool


def sorted_in_groups(
    values: IntArray, carried: IntArray | None, codes: IntArray, low: int, groups: int
) -> GroupedPairs:
    """Pairs of a value and what it carries (None: the number of its row), by group and value, then as they came.

    `codes`: the group of each row, `low <= code < low + groups`. Two values differ by less than 2**63. O(n + groups).

    >>> found = sorted_in_groups(np.array([9, 4, 7, 4]), None, np.array([6, 6, 5, 6]), 5, 2)
    >>> found.pairs.tolist(), found.starts.tolist(), found.has_ties
    ([[7, 2], [4, 1], [4, 3], [9, 0]], [0, 1, 4], True)
    """
    least, greatest = extremes(values)
    slices = 1
    while 2 * groups * slices <= _MOST_PARTS and len(values) > _ROWS_A_PART * groups * slices:
        slices *= 2
    shift = 63 if slices == 1 else max((greatest - least).bit_length() - slices.bit_length() + 1, 0)
    starts, pairs = np.zeros(groups * slices + 1, np.int64), np.empty((len(values), 2), np.int64)
    nothing = np.empty(0, np.int64)
    partition(values, nothing if carried is None else carried, codes, low, least, slices, shift, starts, pairs)
    has_ties = bool(_sort_parts(starts, pairs))
    return GroupedPairs(pairs, np.ascontiguousarray(starts[::slices]), has_ties)

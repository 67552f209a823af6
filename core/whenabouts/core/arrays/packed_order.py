"""Rows in order of key and time, each as one word of its time and its number: half the memory of a pair of integers.

A word holds what a search compares and what it is to find, so that both come with the same line of the cache. Words
are all different, and their order is that of the times, then of the rows: every sort of them is stable.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whenabouts.core.arrays.jit import BOOL, INT64, READ_INT64, WRITE_INT64, compiled
from whenabouts.core.arrays.key_time_order import Times
from whenabouts.core.arrays.typing import IntArray

_WORD_BITS = 63
"""Enough for a million rows within 50 days, or a thousand within 140 years."""

_ROWS_A_PART = 1 << 13
_MOST_PARTS = 1 << 12
_MOVES_A_ROW = 4
_CROWDED = 16
"""As in `grouped_sort`, whose parts and insertion these are."""


@compiled((READ_INT64, READ_INT64, READ_INT64, INT64, INT64, INT64, INT64, WRITE_INT64, WRITE_INT64))
def _partition(
    t_min: IntArray,
    t_max: IntArray,
    key: IntArray,
    first: int,
    index_bits: int,
    slices: int,
    shift: int,
    starts: IntArray,
    words: IntArray,
) -> None:
    # Words by key and by the leading bits of their times; no keys: all rows have the same one.
    parts, keyed = len(starts) - 1, len(key) > 0
    if slices == 1 and keyed:
        for code in key:
            starts[code + 1] += 1
    else:
        for row in range(len(t_min)):
            part = (key[row] if keyed else 0) * slices + ((t_min[row] + t_max[row] - first) >> shift)
            starts[part + 1] += 1
    for part in range(parts):
        starts[part + 1] += starts[part]
    free = starts[:parts].copy()
    for row in range(len(t_min)):
        time = t_min[row] + t_max[row] - first
        part = np.uint64((key[row] if keyed else 0) * slices + (time >> shift))
        to = free[part]
        free[part] = to + 1
        words[np.uint64(to)] = (time << index_bits) | row


@compiled(BOOL(READ_INT64, WRITE_INT64))
def _sort_parts(starts: IntArray, words: IntArray) -> bool:
    # Sorts each part; False if the words of one crowd, where this takes more than linear time.
    most = 0
    for part in range(len(starts) - 1):
        most = max(most, starts[part + 1] - starts[part])
    near, counts = np.empty(most, np.int64), np.empty(2 * most + 2, np.int32)
    for part in range(len(starts) - 1):
        begin, end = starts[part], starts[part + 1]
        size = end - begin
        falls = 0
        least = greatest = words[begin] if size else 0
        for i in range(begin + 1, end):
            word = words[np.uint64(i)]
            falls += word < words[np.uint64(i - 1)]
            least, greatest = min(least, word), max(greatest, word)
        if falls == 0:
            continue
        moves = _MOVES_A_ROW * size if 4 * falls <= size else 0
        if moves > 0:
            for i in range(begin + 1, end):
                word, j = words[i], i
                while j > begin and words[j - 1] > word:
                    words[j] = words[j - 1]
                    j -= 1
                words[j] = word
                moves -= i - j
                if moves < 0:
                    break
        if moves > 0:
            continue
        shift = 0
        while (greatest - least) >> shift >= 2 * size:
            shift += 1
        buckets = ((greatest - least) >> shift) + 1
        counts[: buckets + 1] = 0
        for i in range(begin, end):
            counts[np.uint64(((words[np.uint64(i)] - least) >> shift) + 1)] += 1
        crowding = 0
        for bucket in range(buckets):
            crowding += np.int64(counts[bucket + 1]) * counts[bucket + 1]
            counts[bucket + 1] += counts[bucket]
        if crowding > _CROWDED * size:
            return False
        for i in range(begin, end):
            word = words[np.uint64(i)]
            place = np.uint64((word - least) >> shift)
            to = counts[place]
            counts[place] = to + 1
            near[np.uint64(to)] = word
        words[begin] = near[0]
        for i in range(1, size):
            word, j = near[np.uint64(i)], begin + i
            while j > begin and words[np.uint64(j - 1)] > word:
                words[np.uint64(j)] = words[np.uint64(j - 1)]
                j -= 1
            words[np.uint64(j)] = word
    return True


class PackedRows(NamedTuple):
    """Those of key k are `words[starts[k] : starts[k + 1]]`, ascending.

    A word is `(t_min + t_max - first) << index_bits | row`.
    """

    words: IntArray
    starts: IntArray
    first: int
    last: int
    index_bits: int


def packed_rows(times: Times, keys: int, earliest: int, latest: int) -> PackedRows | None:
    """Rows ordered by key and midpoint, then as they came; None if they do not fit into words, or times crowd. O(n).

    `earliest` and `latest`: the least `t_min` and the greatest `t_max`, or beyond. `keys`: as for `order_rows`.

    >>> rows = packed_rows(Times(np.array([5, 1, 3]), np.array([6, 9, 4]), np.array([1, 0, 1])), 2, 0, 9)
    >>> (rows.words & 3).tolist(), (rows.words >> rows.index_bits).tolist(), rows.starts.tolist()
    ([1, 2, 0], [10, 7, 11], [0, 1, 3])
    """
    n = len(times)
    index_bits, span = max(n - 1, 1).bit_length(), 2 * (latest - earliest)
    if (span + 1).bit_length() + index_bits > _WORD_BITS:
        return None
    slices = 1
    while 2 * keys * slices <= _MOST_PARTS and n > _ROWS_A_PART * keys * slices:
        slices *= 2
    shift = max(span.bit_length() - slices.bit_length() + 1, 0)
    starts, words = np.zeros(keys * slices + 1, np.int64), np.empty(n, np.int64)
    key = np.empty(0, np.int64) if times.key is None else times.key
    _partition(times.t_min, times.t_max, key, 2 * earliest, index_bits, slices, shift, starts, words)
    if not _sort_parts(starts, words):
        return None
    return PackedRows(words, np.ascontiguousarray(starts[::slices]), 2 * earliest, 2 * latest, index_bits)

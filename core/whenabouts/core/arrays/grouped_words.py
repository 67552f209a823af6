"""Rows sorted by group and, within each group, by a value: each goes as one word through the sort.

A word is a value and the number of a row, so that the sort moves 8 bytes a row, and words are all different: every
sort of them is stable. If both do not fit, rows are numbered within their parts. Parts are those of `grouped_sort`, as
are the buckets and the insertion that sort them. What does not fit even so, or crowds, is left to `grouped_sort`, which
moves 16 bytes a row and copes with all.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whenabouts.core.arrays.extremes import extremes
from whenabouts.core.arrays.grouped_sort import sorted_in_groups
from whenabouts.core.arrays.jit import BOOL, INT64, READ_INT32, READ_INT64, WRITE_INT32, WRITE_INT64, compiled
from whenabouts.core.arrays.large_arrays import large_array
from whenabouts.core.arrays.typing import IntArray, Positions

_WORD_BITS = 63
_ROWS_A_PART = 1 << 13
_MOST_PARTS = 1 << 12
_MOVES_A_ROW = 4
_CROWDED = 16
"""As in `grouped_sort`."""


@compiled(INT64(
    READ_INT64, READ_INT64, INT64, INT64, INT64, INT64, WRITE_INT64, WRITE_INT64, WRITE_INT32
))  # fmt: skip
def _partition(
    values: IntArray,
    codes: IntArray,
    least: int,
    value_bits: int,
    slices: int,
    shift: int,
    starts: IntArray,
    words: IntArray,
    rows: Positions,
) -> int:
    # Words by code (none: all rows have the same) and by the leading bits of the values, and the rows they are of,
    # unless there is no room for these: words then number rows, not those of a part. Returns how many bits of a word
    # are the number; -1, with nothing of use written, if it does not fit.
    keyed = len(codes) > 0
    if slices == 1 and keyed:
        for code in codes:
            starts[np.uint64(code) + np.uint64(1)] += 1
    elif slices == 1:
        starts[1] = len(values)
    else:
        for row in range(len(values)):
            starts[(codes[row] if keyed else 0) * slices + ((values[row] - least) >> shift) + 1] += 1
    most = 0
    for part in range(len(starts) - 1):
        most = max(most, starts[part + 1])
        starts[part + 1] += starts[part]
    by_part = len(rows) > 0
    most = most if by_part else len(values)
    bits = 0
    while (most - 1) >> bits > 0:
        bits += 1
    if bits + value_bits > _WORD_BITS:
        return -1
    free = starts[:-1].copy()
    for row in range(len(values)):
        value = values[row] - least
        at = value >> shift if slices > 1 else 0
        into = np.uint64((codes[row] if keyed else 0) * slices + at)
        to = free[into]
        free[into] = to + 1
        words[np.uint64(to)] = ((value - (at << shift)) << bits) | (to - starts[into] if by_part else row)
        if by_part:
            rows[np.uint64(to)] = row
    return bits


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


@compiled((READ_INT64, INT64, INT64, INT64, INT64, READ_INT32, WRITE_INT64, WRITE_INT32))
def _unpack(
    starts: IntArray,
    slices: int,
    shift: int,
    least: int,
    bits: int,
    rows: Positions,
    words: IntArray,
    position: Positions,
) -> None:
    # Makes words the values that they hold, and finds the row of each.
    mask, by_part = (1 << bits) - 1, len(rows) > 0
    for part in range(len(starts) - 1):
        begin, from_ = starts[part], least + ((part % slices) << shift)
        for i in range(begin, starts[part + 1]):
            word = words[np.uint64(i)]
            words[np.uint64(i)] = from_ + (word >> bits)
            position[np.uint64(i)] = rows[np.uint64(begin + (word & mask))] if by_part else word & mask


class GroupedRows(NamedTuple):
    """Those of group g are `starts[g] : starts[g + 1]`, with ascending `values`; `position`: where each came."""

    values: IntArray
    position: Positions
    starts: IntArray


def rows_in_groups(
    values: IntArray, codes: IntArray | None, groups: int, within: tuple[int, int] | None = None
) -> GroupedRows:
    """Rows by group and value, then as they came. O(n + groups).

    `codes`: the group of each row, below `groups`; None: all are in one. `within`: a least and a greatest value, or
    ones beyond. Two values differ by less than 2**63.

    >>> found = rows_in_groups(np.array([9, 4, 7, 4]), np.array([1, 1, 0, 1]), 2)
    >>> found.values.tolist(), found.position.tolist(), found.starts.tolist()
    ([7, 4, 4, 9], [2, 1, 3, 0], [0, 1, 4])
    """
    n = len(values)
    least, greatest = extremes(values) if within is None else within
    slices, span_bits = 1, int(greatest - least).bit_length()
    while 2 * groups * slices <= _MOST_PARTS and n > _ROWS_A_PART * groups * slices:
        slices *= 2
    shift = max(span_bits - slices.bit_length() + 1, 0)
    given, value_bits = np.empty(0, np.int64) if codes is None else codes, span_bits if slices == 1 else shift
    by_part = value_bits + max(n - 1, 1).bit_length() > _WORD_BITS
    starts = np.zeros(groups * slices + 1, np.int64)
    words, position = large_array(n, np.int64), large_array(n, np.int32)
    rows = large_array(n if by_part else 0, np.int32)
    bits = _partition(values, given, least, value_bits, slices, shift, starts, words, rows)
    if bits < 0 or not _sort_parts(starts, words):
        codes = np.zeros(n, np.int64) if codes is None else codes
        pairs, starts, _ = sorted_in_groups(values, None, codes, 0, groups)
        return GroupedRows(np.ascontiguousarray(pairs[:, 0]), pairs[:, 1].astype(np.int32), starts)
    _unpack(starts, slices, shift, least, bits, rows, words, position)
    return GroupedRows(words, position, np.ascontiguousarray(starts[::slices]))

"""Kernels of runs of equal values over rows in any order: parts that fit into the caches, each sorted and read there.

Rows go as pairs of a time and the bits of a value to the part of their group; large groups have several, by the leading
bits of the times. A part is not sorted itself: a word for each of its rows, of its time and its number in the part, is
put into one of two buckets a row, which insertion then finishes. The runs are read by these words, while the part is in
the cache. The buckets are those of `arrays.grouped_sort`, which sorts pairs and copes with times of every kind.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from whenabouts.core.arrays.jit import (
    BOOL,
    FLOAT64,
    INT32,
    INT64,
    READ_INT32,
    READ_INT64,
    READ_INT64_2D,
    WRITE_INT32,
    WRITE_INT64,
    compiled,
)
from whenabouts.core.arrays.typing import FloatArray, IntArray, Positions

READ_FLOAT64_2D = types.Array(types.float64, 2, "C", readonly=True)

TIES, CROWDED = -1, -2

_WORD_BITS = 63
_SAMPLE, _FEW_FALLS = 64, 4
"""A part may be nearly in order, so that insertion is tried, if of this many times no more than every fourth is below
the one before."""
_MOVES_A_ROW = 4


@compiled((READ_INT64, INT64, INT64, WRITE_INT32))
def rows_of_groups(codes: IntArray, low: int, groups: int, rows: Positions) -> None:
    """The first row of each group: `rows[g]`, which has to be -1, and stays so if the group has none.

    `groups`: how many have rows. O(n), and less if none begins late.

    >>> rows = np.full(3, -1, np.int32); rows_of_groups(np.array([6, 8, 6]), 6, 2, rows); rows.tolist()
    [0, -1, 1]
    """
    row = 0
    while groups > 0:
        group = codes[row] - low
        if rows[group] < 0:
            rows[group] = row
            groups -= 1
        row += 1


@compiled(BOOL(WRITE_INT64, INT64), inline=True)
def _by_insertion(words: IntArray, size: int) -> Any:
    # Sorts in place; False if that takes many moves, after which the words are still all there.
    moves, word = _MOVES_A_ROW * size, words[0]
    for i in range(1, size):
        above = word
        word = words[np.uint64(i)]
        if above < word:
            continue
        j = i
        while j > 0 and words[np.uint64(j - 1)] > word:
            words[np.uint64(j)] = words[np.uint64(j - 1)]
            j -= 1
        words[np.uint64(j)] = word
        word = words[np.uint64(i)]
        moves -= i - j
        if moves < 0:
            return False
    return True


@compiled((READ_INT64_2D, INT64, INT64, INT64, WRITE_INT32, WRITE_INT64), inline=True)
def _by_buckets(part: IntArray, least: int, greatest: int, index_bits: int, counts: Positions, words: IntArray) -> None:
    size, shift = len(part), 0
    while (greatest - least) >> shift >= 2 * size:
        shift += 1
    last = (greatest - least) >> shift
    counts[: last + 2] = 0
    for i in range(size):
        counts[np.uint64(((part[np.uint64(i), 0] - least) >> shift) + 1)] += np.int32(1)
    total = np.int32(0)
    for at in range(1, last + 2):
        total += counts[at]
        counts[at] = total
    for i in range(size):
        offset = part[np.uint64(i), 0] - least
        bucket = np.uint64(offset >> shift)
        to = counts[bucket]
        counts[bucket] = to + np.int32(1)
        words[np.uint64(to)] = (offset << index_bits) | i


@compiled(BOOL(READ_INT64_2D, INT64, WRITE_INT32, WRITE_INT64), inline=True)
def _words_in_order(part: IntArray, index_bits: int, counts: Positions, words: IntArray) -> Any:
    # Words of time and number of the rows of a part, sorted; False if they do not fit, or times crowd in few buckets.
    least = greatest = part[0, 0]
    for i in range(len(part)):
        least, greatest = min(least, part[np.uint64(i), 0]), max(greatest, part[np.uint64(i), 0])
    if (greatest - least) >> (_WORD_BITS - index_bits) > 0:
        return False
    falls, asked = 0, 0
    for i in range(1, len(part), len(part) // _SAMPLE + 1):
        falls += part[i, 0] < part[i - 1, 0]
        asked += 1
    if _FEW_FALLS * falls <= asked:
        for i in range(len(part)):
            words[i] = ((part[np.uint64(i), 0] - least) << index_bits) | i
        if _by_insertion(words, len(part)):
            return True
    _by_buckets(part, least, greatest, index_bits, counts, words)
    return _by_insertion(words, len(part))


@compiled(BOOL(INT64, INT64, FLOAT64, FLOAT64, BOOL), inline=True)
def _equal(bits: int, others: int, value: float, other: float, floats: bool) -> Any:
    if floats:  # which loops decide once
        return (value == other) | ((value != value) & (other != other))
    return bits == others


@compiled(INT64(READ_INT64_2D, READ_FLOAT64_2D, BOOL, INT64, READ_INT64, WRITE_INT32), inline=True)
def _heads(
    part: IntArray, as_floats: FloatArray, floats: bool, index_bits: int, words: IntArray, heads: Positions
) -> Any:
    # The places of words whose rows begin a run, and one after the last; returns how many, negative if two times in
    # the words are equal.
    # Which rows do cannot be predicted: each is written as a head, and stays if it is one.
    mask, found, ties = (1 << index_bits) - 1, np.uint64(1), False
    heads[0] = 0
    word = words[0]
    bits, value = part[np.uint64(word & mask), 1], as_floats[np.uint64(word & mask), 1]
    for i in range(1, len(part)):
        before, others, other = word, bits, value
        word = words[np.uint64(i)]
        row = np.uint64(word & mask)
        bits, value = part[row, 1], as_floats[row, 1]
        ties |= (word >> index_bits) == (before >> index_bits)
        heads[found] = i
        found += np.uint64(not _equal(bits, others, value, other, floats))
    heads[found] = len(part)
    return -np.int64(found) if ties else np.int64(found)


@compiled((
    READ_INT64_2D, INT64, READ_INT64, READ_INT32, INT64, INT64, INT32, INT64,
    WRITE_INT32, WRITE_INT64, WRITE_INT64, WRITE_INT64, WRITE_INT64, WRITE_INT64,
), inline=True)  # fmt: skip
def _write_runs(
    part: IntArray,
    mask: int,
    words: IntArray,
    heads: Positions,
    least: int,
    found: int,
    shown: int,
    runs: int,
    first: Positions,
    start: IntArray,
    end: IntArray,
    n: IntArray,
    last: IntArray,
    value: IntArray,
) -> None:
    # The runs of the heads from the one numbered `least` on, as the runs from `runs` on. After the last word it is
    # repeated, so that the last run ends with its last row.
    following = np.uint64(words[heads[least]] & mask)
    run = np.uint64(runs)
    for i in range(least, found):
        head, after = heads[np.uint64(i)], heads[np.uint64(i) + np.uint64(1)]
        row, following = following, np.uint64(words[np.uint64(after)] & mask)
        first[run] = shown
        start[run] = part[row, 0]
        end[run] = part[following, 0]
        n[run] = after - head
        value[run] = part[row, 1]
        if len(last) > 0:
            last[run] = part[np.uint64(words[np.uint64(after - 1)] & mask), 0]
        run += np.uint64(1)


@compiled(INT64(
    READ_INT64_2D, READ_FLOAT64_2D, BOOL, BOOL, READ_INT64, INT64, READ_INT32,
    WRITE_INT32, WRITE_INT64, WRITE_INT64, WRITE_INT64, WRITE_INT64, WRITE_INT64,
))  # fmt: skip
def runs_of_parts(
    pairs: IntArray,
    as_floats: FloatArray,
    floats: bool,
    in_order: bool,
    starts: IntArray,
    slices: int,
    row_of: Positions,
    first: Positions,
    start: IntArray,
    end: IntArray,
    n: IntArray,
    last: IntArray,
    value: IntArray,
) -> Any:
    """Runs of equal values of pairs of a time and the bits of a value, in parts as from `partition`; `as_floats` has
    the same bits. `in_order`: each part is sorted, without ties.

    Writes for each run, by group and time, the row `row_of[g]` of its group, `[start, end)`, its row count, the time of
    its last row (unless `last` is empty), and the bits of its first value. Returns the number of runs, TIES if two
    times of a group are equal, CROWDED if they cannot be sorted as words in linear time.
    """
    most = 0
    for number in range(len(starts) - 1):
        most = max(most, starts[number + 1] - starts[number])
    words, heads, counts = np.empty(most + 1, np.int64), np.empty(most + 2, np.int32), np.empty(2 * most + 2, np.int32)
    runs, before = 0, -1
    for number in range(len(starts) - 1):
        begin, stop = starts[number], starts[number + 1]
        before = -1 if number % slices == 0 else before
        if begin == stop:
            continue
        part, index_bits = pairs[begin:stop], 0
        while (stop - begin - 1) >> index_bits > 0:
            index_bits += 1
        mask = (1 << index_bits) - 1
        if in_order:
            for i in range(stop - begin):
                words[i] = i
        elif not _words_in_order(part, index_bits, counts, words):
            return CROWDED
        words[stop - begin] = words[stop - begin - 1]
        found = _heads(part, as_floats[begin:stop], floats, index_bits, words, heads)
        if found < 0 and not in_order:
            return TIES
        found = abs(found)  # words of rows in order have no times
        at, continued = begin + (words[0] & mask), 0
        if before >= 0:  # the run of the row before continues, or ends here
            equal = _equal(pairs[before, 1], pairs[at, 1], as_floats[before, 1], as_floats[at, 1], floats)
            continued = int(equal)
            after = heads[1] if equal else 0
            end[runs - 1] = part[words[after] & mask, 0]
            n[runs - 1] += after
            if len(last) > 0 and equal:
                last[runs - 1] = part[words[after - 1] & mask, 0]
        shown = row_of[number // slices]
        _write_runs(part, mask, words, heads, continued, found, shown, runs, first, start, end, n, last, value)
        runs += found - continued
        before = begin + (words[stop - begin - 1] & mask)
    return runs

"""Sorts values together with their keys and positions.

Values are first divided into stretches of equal width, with all that belongs to them (one pass of a radix sort). Each
stretch is then sorted by radix, as words of a value and its index, and what belongs to the values is gathered: this
costs little within the processor's cache. Over a whole block it would be a cache miss for each value. numpy's sort is
not used: on some processors it takes ten times as long as on others (decision 0040).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.jit import INT64, READ_INT32, READ_INT64, WRITE_INT32, WRITE_INT64, compiled
from whenabouts.core.arrays.threads import cuts, each
from whenabouts.core.arrays.typing import IntArray

Numbers32 = NDArray[np.int32]

_LEAST_ROWS = 1 << 15
"""Values of a stretch on average, at least: with key and position half a megabyte, which fits into the L2 cache."""

_MOST_STRETCHES = 64
"""Each one is written to in three places: with more of them the division costs more than the sorting gains."""

_CROWDED = 1 << 20
"""A stretch of more values is divided further: there are many values, or many are near each other."""

_WORD_BITS = 63

_DIGIT = 9
"""Bits of a digit, at most: for each of its values there is a place that is written to."""

_NO_KEY = np.empty(0, np.int32)


class SortedValues(NamedTuple):
    """Values in ascending order, with the key of each (None: there are none), and its index in the input."""

    values: IntArray
    key: Numbers32 | None
    position: Numbers32


def sorted_values(values: IntArray, key: Numbers32 | None = None) -> SortedValues:
    """Sort values, equal ones by index, and take their keys along. Fewer than 2^31 values.

    O(n log n): about 11 ns for each of ten million values, with keys.

    >>> found = sorted_values(np.array([7, 3, 7, 1]), np.array([0, 1, 2, 3], np.int32))
    >>> found.values.tolist(), found.key.tolist(), found.position.tolist()
    ([1, 3, 7, 7], [3, 1, 0, 2], [3, 1, 0, 2])
    """
    values = np.ascontiguousarray(values, np.int64)
    keys = _NO_KEY if key is None else np.ascontiguousarray(key, np.int32)
    found = _sorted(_Rows(values, keys, np.empty(0, np.int32)))
    return SortedValues(found.values, None if key is None else found.key, found.position)


class _Rows(NamedTuple):
    """Values and what belongs to them. `key`: empty if they have none; `position`: empty if it is 0, 1, 2..."""

    values: IntArray
    key: Numbers32
    position: Numbers32

    def part(self, of: slice) -> _Rows:
        """Some consecutive ones, not copied."""
        return _Rows(self.values[of], self.key[of], self.position[of])

    def fill(self, other: _Rows) -> None:
        """Copy others here, as many as these."""
        self.values[:], self.key[:], self.position[:] = other


def _sorted(rows: _Rows) -> _Rows:
    values, key, position = rows
    n = len(values)
    low = int(values.min()) if n else 0
    span = int(values.max()) - low if n else 0
    stretches = min(n // _LEAST_ROWS, _MOST_STRETCHES)
    if stretches < 2 or span == 0:
        numbers = position.copy() if len(position) else np.arange(n, dtype=np.int32)
        whole = _Rows(values.copy(), key.copy(), numbers)
        _sort_stretch(whole, low, span, _Scratch())
        return whole
    shift = max(span.bit_length() - (stretches - 1).bit_length(), 0)
    parts = cuts(n)
    counts = np.zeros((len(parts), (span >> shift) + 1), np.int64)
    each(lambda at: _count(values[parts[at]], low, shift, counts[at]), range(len(parts)))
    # Values of a stretch are in the order of the parts that they come from.
    free = (np.cumsum(counts.T) - counts.T.reshape(-1)).reshape(-1, len(parts)).T.copy()
    bounds = [*free[0].tolist(), n]
    whole = _Rows(np.empty(n, np.int64), np.empty(len(key), np.int32), np.empty(n, np.int32))

    def divide(at: int) -> None:
        _divide(*rows.part(parts[at]), parts[at].start, low, shift, free[at], *whole)

    def sort(numbers: range) -> None:
        scratch = _Scratch()
        for number in numbers:
            first, last = bounds[number], bounds[number + 1]
            of = whole.part(slice(first, last))
            if last - first > _CROWDED:
                of.fill(_sorted(of))
            elif last - first > 1:
                _sort_stretch(of, low + (number << shift), (1 << shift) - 1, scratch)

    each(divide, range(len(parts)))
    each(sort, [range(at, len(bounds) - 1, len(parts)) for at in range(len(parts))])
    return whole


class _Scratch:
    """Memory for sorting one stretch after the other."""

    def __init__(self) -> None:
        self._words = np.empty(0, np.int64)
        self._key, self._position = np.empty(0, np.int32), np.empty(0, np.int32)

    def of(self, n: int) -> tuple[IntArray, Numbers32, Numbers32]:
        """Room for twice n words, n keys and n positions."""
        if n > len(self._key):
            self._words = np.empty(2 * (n + n // 2), np.int64)
            self._key, self._position = (np.empty(n + n // 2, np.int32) for _ in range(2))
        return self._words[: 2 * n], self._key[:n], self._position[:n]


def _sort_stretch(of: _Rows, low: int, span: int, scratch: _Scratch) -> None:
    """Sort in place values between `low` and `low + span`."""
    values, key, position = of
    if span == 0:
        return
    bits = max(len(values) - 1, 1).bit_length()
    if span.bit_length() + bits > _WORD_BITS:
        order = np.argsort(values, kind="stable")
        of.fill(_Rows(values[order], key[order] if len(key) else key, position[order]))
        return
    words, key_before, position_before = scratch.of(len(values))
    _pack(values, low, bits, words)
    found = _sort_words(words, len(values), bits, span.bit_length())
    _unpack(words[found : found + len(values)], low, bits, key_before, position_before, values, key, position)


@compiled((READ_INT64, INT64, INT64, WRITE_INT64))
def _count(values: IntArray, low: int, shift: int, counts: IntArray) -> None:
    """How many values each stretch has."""
    for value in values:
        counts[np.uint64((value - low) >> shift)] += 1


@compiled((READ_INT64, READ_INT32, READ_INT32, INT64, INT64, INT64, WRITE_INT64, WRITE_INT64, WRITE_INT32, WRITE_INT32))
def _divide(
    values: IntArray,
    key: Numbers32,
    position: Numbers32,
    first: int,
    low: int,
    shift: int,
    free: IntArray,
    out_values: IntArray,
    out_key: Numbers32,
    out_position: Numbers32,
) -> None:
    """Write each value to the next free place of its stretch. No `position`: they are consecutive, from `first`."""
    for i in range(values.size):
        stretch = np.uint64((values[i] - low) >> shift)  # unsigned: numba omits the test for negative indices
        to = np.uint64(free[stretch])
        free[stretch] += 1
        out_values[to] = values[i]
        if key.size:
            out_key[to] = key[i]
        out_position[to] = position[i] if position.size else np.int32(first + i)


@compiled((READ_INT64, INT64, INT64, WRITE_INT64))
def _pack(values: IntArray, low: int, bits: int, words: IntArray) -> None:
    """Words of values and, in the lowest bits, their indices; there is room after them."""
    for i in range(values.size):
        words[i] = ((values[i] - low) << bits) | i


@compiled(INT64(WRITE_INT64, INT64, INT64, INT64))
def _sort_words(words: IntArray, n: int, first: int, bits: int) -> Any:
    """Sort the first n words by `bits` of their bits, from bit `first` on; equal ones stay in their order.

    By radix, from the lowest digit on, each time from one half of `words` to the other; returns where they end up.
    """
    passes = (bits + _DIGIT - 1) // _DIGIT
    digit = (bits + passes - 1) // passes
    mask = np.uint64((1 << digit) - 1)
    counts = np.zeros((passes, 1 << digit), np.int32)
    for i in range(n):
        word = np.uint64(words[i]) >> np.uint64(first)
        for at in range(passes):
            counts[at, word & mask] += 1
            word >>= np.uint64(digit)
    from_, to = 0, n
    for at in range(passes):
        free = counts[at]
        shift = np.uint64(first + at * digit)
        if free[(np.uint64(words[from_]) >> shift) & mask] == n:
            continue  # all have the same digit
        before = 0
        for of in range(free.size):
            count = free[of]
            free[of] = before
            before += count
        for i in range(from_, from_ + n):
            word = words[i]
            into = (np.uint64(word) >> shift) & mask
            place = free[into]
            free[into] = place + 1
            words[np.uint64(to + place)] = word
        from_, to = to, from_
    return from_


@compiled((READ_INT64, INT64, INT64, WRITE_INT32, WRITE_INT32, WRITE_INT64, WRITE_INT32, WRITE_INT32))
def _unpack(
    packed: IntArray,
    low: int,
    bits: int,
    key_before: Numbers32,
    position_before: Numbers32,
    values: IntArray,
    key: Numbers32,
    position: Numbers32,
) -> None:
    """Values, keys and positions in the order of sorted packed numbers. `*_before`: memory."""
    mask = (1 << bits) - 1
    position_before[:] = position
    if key.size:
        key_before[:] = key
    for i in range(packed.size):
        at = np.uint64(packed[i] & mask)
        values[i] = low + (packed[i] >> bits)
        position[i] = position_before[at]
        if key.size:
            key[i] = key_before[at]

"""Exact sums over ranges of rows in integers of 128 bits, for columns whose values fit: nearly all measured ones.

Integers are summed as they are. Doubles are integers once their unit is the lowest bit that any value of the column can
have. If the column's exponents differ by less than 57 or so, the sum of all rows has 126 bits at most, and a prefix has
16 bytes per row. Other columns take the limbs of `exact_sums`; the sums are the same, to the last bit.

Columns with negative zeros, NaN or infinities take the limbs, too, which count these.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core.arrays.jit import (
    FLOAT64,
    INT64,
    READ_INT32,
    READ_INT64,
    READ_INT64_2D,
    TWO_INT64,
    WRITE_FLOAT64,
    WRITE_INT64_2D,
    compiled,
)
from whenabouts.core.arrays.large_arrays import large_array
from whenabouts.core.arrays.record_batches import doubles, with_nulls
from whenabouts.core.arrays.typing import FloatArray, IntArray
from whenabouts.core.join_aggregate.exact_sums import Described, means_of, require_inside

BITS = 126
"""The most that a column's sum may take: one less than the sign leaves."""

_FRACTION = (1 << 52) - 1
_NEGATIVE_ZERO = -(1 << 63)
"""Its bits."""

_FAR_APART = (0, 4096)

_ONE_BIT, _WORD = np.uint64(1), np.uint64(64)


@dataclass(frozen=True, slots=True)
class WidePrefix:
    """Prefix sums: row i is the sum of the first i values, low and high word, in units of 2^exponent."""

    prefix: IntArray
    exponent: int

    @classmethod
    def of(cls, column: pa.Array) -> WidePrefix | None:
        """Prefix sums of floats, integers, booleans and durations (in their unit); None for columns that do not fit.

        O(n), 16 bytes per row.
        """
        type_ = column.type
        prefix = large_array(2 * len(column) + 2, np.int64).reshape(-1, 2)
        prefix[0] = 0
        if pa.types.is_floating(type_):
            bits = doubles(column).view(np.int64)
            least, greatest = _exponents(bits)
            if greatest - least + 53 + len(column).bit_length() > BITS:
                return None
            _fill_floats(bits, least, prefix)
            return cls(prefix, least - 1075)
        if pa.types.is_uint64(type_):
            return None
        if pa.types.is_integer(type_) or pa.types.is_boolean(type_) or pa.types.is_duration(type_):
            _fill_integers(np.asarray(column.cast(pa.int64()).fill_null(0)), prefix)
            return cls(prefix, 0)
        return None

    def of_ranges(
        self, start: IntArray, stop: IntArray, beside: tuple[IntArray, NDArray[np.int32]], counts: IntArray
    ) -> WideSums:
        """The sums over the rows `start[i] : stop[i]` and those beside them; `counts`: how many have a value.

        Empty ranges may have any ends. Cost: about 5 ns per range.
        """
        out = large_array(2 * len(start), np.int64).reshape(-1, 2)
        offsets, rows = beside
        ends = np.ascontiguousarray(start, np.int64), np.ascontiguousarray(stop, np.int64)
        _fill_sums(self.prefix, *ends, np.ascontiguousarray(offsets, np.int64), rows, out)
        return WideSums(out, self.exponent, counts)


@dataclass(frozen=True, slots=True)
class WideSums:
    """n exact sums, low and high word, in units of 2^exponent; `counts`: how many values each has, without nulls."""

    words: IntArray
    exponent: int
    counts: IntArray

    def to_floats(self) -> FloatArray:
        """The double nearest to each sum, ties to even; 0.0 for a sum of no values. About 5 ns per sum."""
        out = large_array(len(self.words), np.float64)
        _fill_nearest(self.words, self.exponent, out)
        return out

    def to_arrow(self, type_: pa.DataType, name: str, described: Described = str) -> pa.Array:
        """As `ExactSums.to_arrow`.

        >>> whole, nothing = pa.array([2**62, 2**62 - 1, 1]), (np.zeros(3, int), np.empty(0, np.int32))
        >>> sums = WidePrefix.of(whole).of_ranges(np.array([0, 1]), np.array([2, 1]), nothing, np.array([2, 0]))
        >>> sums.to_arrow(whole.type, "v").to_pylist()
        [9223372036854775807, None]
        """
        missing = self.counts == 0
        if pa.types.is_floating(type_):
            return with_nulls(self.to_floats(), missing)
        low, high = self.words.T
        require_inside(high != low >> 63, name, "int64", described)
        whole = with_nulls(low, missing)
        return whole.cast(type_) if pa.types.is_duration(type_) else whole

    def to_means(self, type_: pa.DataType, name: str, described: Described = str) -> FloatArray:
        """As `ExactSums.to_means`."""
        return means_of(self.to_floats(), self.counts)


@compiled(TWO_INT64(READ_INT64))
def _exponents(bits: IntArray) -> tuple[int, int]:
    """The least and the greatest biased exponent of doubles that are not zero, far apart if one has no digits."""
    least, greatest = 2046, 1
    for i in range(bits.size):
        exponent = (bits[i] >> 52) & 0x7FF
        if exponent == 0:
            if bits[i] == 0:
                continue
            if bits[i] == _NEGATIVE_ZERO:
                return _FAR_APART
            exponent = 1  # a subnormal
        least, greatest = min(least, exponent), max(greatest, exponent)
    if greatest == 0x7FF:
        return _FAR_APART
    return min(least, greatest), greatest


@compiled(TWO_INT64(INT64, INT64), inline=True)
def _negative(low: int, high: int) -> tuple[int, int]:
    return -low, ~high + (low == 0)


@compiled((WRITE_INT64_2D, INT64, INT64, INT64), inline=True)
def _add_to_prefix(prefix: IntArray, i: int, low: int, high: int) -> None:
    """Row i + 1 is row i plus a value."""
    total = prefix[i, 0] + low
    prefix[i + 1, 0] = total
    prefix[i + 1, 1] = prefix[i, 1] + high + (np.uint64(total) < np.uint64(low))


@compiled((READ_INT64, INT64, WRITE_INT64_2D))
def _fill_floats(bits: IntArray, least: int, prefix: IntArray) -> None:
    for i in range(bits.size):
        exponent, whole = (bits[i] >> 52) & 0x7FF, bits[i] & _FRACTION
        if exponent:
            whole |= _FRACTION + 1
        shift = max(max(exponent, 1) - least, 0)  # the exponent of zero is less than the least
        low = high = 0
        if shift >= 64:
            high = whole << (shift - 64)
        else:
            low = whole << shift
            if shift > 11:
                high = whole >> (64 - shift)
        if bits[i] < 0:
            low, high = _negative(low, high)
        _add_to_prefix(prefix, i, low, high)


@compiled((READ_INT64, WRITE_INT64_2D))
def _fill_integers(values: IntArray, prefix: IntArray) -> None:
    for i in range(values.size):
        _add_to_prefix(prefix, i, values[i], values[i] >> 63)


@compiled(TWO_INT64(READ_INT64_2D, INT64, INT64), inline=True)
def _difference(prefix: IntArray, first: int, last: int) -> tuple[int, int]:
    borrow = np.uint64(prefix[last, 0]) < np.uint64(prefix[first, 0])
    return prefix[last, 0] - prefix[first, 0], prefix[last, 1] - prefix[first, 1] - borrow


@compiled((READ_INT64_2D, READ_INT64, READ_INT64, READ_INT64, READ_INT32, WRITE_INT64_2D))
def _fill_sums(
    prefix: IntArray, start: IntArray, stop: IntArray, offsets: IntArray, rows: NDArray[np.int32], out: IntArray
) -> None:
    for i in range(start.size):
        low = high = 0
        if start[i] < stop[i]:
            low, high = _difference(prefix, start[i], stop[i])
        for r in range(offsets[i], offsets[i + 1]):
            more_low, more_high = _difference(prefix, rows[r], rows[r] + 1)
            low += more_low
            high += more_high + int(np.uint64(low) < np.uint64(more_low))
        out[i, 0], out[i, 1] = low, high


@compiled(FLOAT64(INT64, INT64, INT64, FLOAT64), inline=True)
def _nearest(low: int, high: int, exponent: int, scale: float) -> float:
    """The double nearest to a number that is not negative, times 2^exponent; infinity beyond the greatest double.

    The conversion rounds 64 bits to 53; their lowest says whether anything is below them. A subnormal result is exact,
    as nothing is below 2^-1074. `scale`: 2^exponent, if it is a normal number.
    """
    head, tail = np.uint64(high), np.uint64(low)
    width = 0
    if high:
        # The bits of the high word, or one more if the conversion rounds it up; then the 64 bits begin with a zero.
        width = int(np.float64(high).view(np.int64) >> 52) - 1022
        shift = np.uint64(width)
        rest = tail & ((_ONE_BIT << shift) - _ONE_BIT)
        tail = (head << (_WORD - shift)) | (tail >> shift)
        if rest:
            tail |= _ONE_BIT
    if width + exponent > 900 or exponent < -900:
        return math.ldexp(float(tail), int(exponent + width))
    return float(tail) * scale * float(_ONE_BIT << np.uint64(width))


@compiled((READ_INT64_2D, INT64, WRITE_FLOAT64))
def _fill_nearest(sums: IntArray, exponent: int, out: FloatArray) -> None:
    scale = math.ldexp(1.0, int(exponent))
    for i in range(out.size):
        low, high = sums[i, 0], sums[i, 1]
        sign = 1.0
        if high < 0:
            sign = -1.0
            low, high = _negative(low, high)
        out[i] = sign * _nearest(low, high, exponent, scale)

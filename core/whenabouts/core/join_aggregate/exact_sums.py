"""Exact sums of a column's values over ranges of rows, rounded once.

The order in which rows arrive, buckets, engines and steps must not change a bit of a sum. So every sum is computed
exactly, as digits on the limbs of one global grid (`limbs`), and rounded at the end to the nearest double, ties to
even: the result of Python's `math.fsum`. Sums of integers and decimals use the same limbs, and are refused where their
type does not hold them.

Sums can be merged, and have no order: partial sums may be formed anywhere. As lists of integers they are kept in state.

Values that are no finite number are counted. Any NaN, or infinities of both signs, make a sum NaN. A sum whose
rounding exceeds the greatest double is infinite. It is -0.0 only if all summands are; an exact zero is 0.0 otherwise.

A prefix has one int64 per row for each limb that occurs: two to four for measured data, 69 at worst. With many limbs
it has every 32nd row only, and the rows of the blocks that a range cuts are added one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from whenabouts.core.arrays.large_arrays import large_array, large_zeros
from whenabouts.core.arrays.record_batches import doubles, validity, with_nulls
from whenabouts.core.arrays.typing import BoolArray, FloatArray, IntArray
from whenabouts.core.errors import Code, InputError
from whenabouts.core.join_aggregate.limbs import (
    KINDS,
    MOST_VALUES,
    NULL,
    ROOM,
    UNIT,
    VALUES,
    add_ranges,
    add_rows,
    fill_digits,
    fill_float_digits,
    fill_nearest,
    fill_prefix,
)

FEW_COLUMNS = 8
"""Up to here a prefix has every row."""

BLOCK = 32
"""With more columns it has the first row of each block of this size."""

_LOW = np.int64(0xFFFFFFFF)

_KINDS_OF_ITEMS = 128
"""A power of two above `KINDS`."""

Described = Callable[[int], str]
"""Names the left row of a sum, for errors."""


class Digits(NamedTuple):
    """Values as digits: `digit[i]` are those of row i, on the limbs from `limb[i]` on, each at most 2^32 in size."""

    limb: NDArray[np.int32]
    digit: IntArray

    def columns(self) -> IntArray:
        """The columns that a sum of these rows needs, in the order of its cells. O(n)."""
        occurs = np.zeros(KINDS + self.digit.shape[1], bool)
        for kind in np.flatnonzero(np.bincount(self.limb, minlength=KINDS)):
            occurs[kind : kind + (self.digit.shape[1] if kind < ROOM else 1)] = True
        limbs = np.flatnonzero(occurs[:ROOM])
        if not limbs.size:
            limbs = np.arange(UNIT, UNIT + self.digit.shape[1])
        others = np.flatnonzero(occurs[VALUES + 1 : NULL]) + VALUES + 1
        return np.concatenate([[VALUES], others, limbs])

    def take(self, rows: NDArray[np.int32] | IntArray) -> Digits:
        """The digits of some rows."""
        return Digits(self.limb[rows], self.digit[rows])


def digits_of_floats(values: FloatArray, valid: BoolArray | None = None) -> Digits:
    """The digits of doubles; rows that are not `valid` are null. O(n).

    >>> digits = digits_of_floats(np.array([1.5]))
    >>> sum(int(d) * 2.0 ** (32 * k - 1152) for k, d in enumerate(digits.digit[0], start=int(digits.limb[0])))
    1.5
    """
    found = Digits(large_array(len(values), np.int32), large_array(3 * len(values), np.int64).reshape(-1, 3))
    valid = np.empty(0, bool) if valid is None else np.ascontiguousarray(valid)
    fill_float_digits(np.ascontiguousarray(values, np.float64), valid, *found)
    return found


def digits_of(column: pa.Array) -> Digits:
    """The digits of a column of numbers, booleans, decimals (unscaled) or durations (in their unit). O(n).

    Raises InputError WA-1023 for any other type.

    >>> digits_of(pa.array([1, None, 2**40])).digit.tolist()
    [[1, 0], [0, 0], [0, 256]]
    """
    type_ = column.type
    valid = np.asarray(column.is_valid())
    if pa.types.is_floating(type_):
        return digits_of_floats(doubles(column), valid)
    if pa.types.is_decimal(type_):
        digit = _words(column)
    elif pa.types.is_uint64(type_):
        digit = np.asarray(column.fill_null(0)).view(np.uint32).reshape(-1, 2).astype(np.int64)
    elif pa.types.is_integer(type_) or pa.types.is_boolean(type_) or pa.types.is_duration(type_):
        whole = np.asarray(column.cast(pa.int64()).fill_null(0))
        digit = np.stack([whole & _LOW, whole >> 32], axis=1)
    else:
        raise InputError(Code.INCOMPARABLE_VALUES, f"values of type {type_} have no sum", "cast them to a number")
    digit[~valid] = 0
    return Digits(np.where(valid, UNIT, NULL).astype(np.int32), digit)


def _words(column: pa.Array) -> IntArray:
    """The unscaled values of decimals as digits of base 2^32; the highest one has the sign."""
    words = column.type.byte_width // 4
    buffer = column.buffers()[1]
    raw = np.frombuffer(buffer, "<u4") if buffer is not None else np.empty(0, "<u4")
    digit = raw.reshape(-1, words)[column.offset : column.offset + len(column)].astype(np.int64)
    digit[:, -1] -= (digit[:, -1] >> 31) << 32
    return digit


@dataclass(frozen=True, slots=True)
class ExactSums:
    """n exact sums; `cells[i]` is sum i, in the given columns (see `limbs`)."""

    columns: IntArray
    cells: IntArray

    @property
    def counts(self) -> IntArray:
        """How many values each sum has, without nulls."""
        counts: IntArray = self.cells[:, 0]
        return counts

    def merged(self, other: ExactSums) -> ExactSums:
        """The sums of both, one by one. O(cells)."""
        parts = [self, other]
        if max(int(self.counts.max(initial=0)), int(other.counts.max(initial=0))) >= MOST_VALUES >> 1:
            parts = [part.settled() for part in parts]
        columns = _union(*(part.columns for part in parts))
        cells = _no_values(len(self.cells), columns)
        for part in parts:
            for slot, values in zip(_slots(columns)[part.columns].tolist(), part.cells.T, strict=True):
                cells[:, slot] += values
        return ExactSums(columns, cells)

    def settled(self) -> ExactSums:
        """The same sums with digits below 2^32."""
        digit, first = self._digits()
        columns = np.concatenate([self.columns[self.columns >= ROOM], np.arange(first, first + digit.shape[1])])
        cells = np.concatenate([self.cells[:, self.columns >= ROOM], digit], axis=1)
        occurs = cells.any(axis=0)
        occurs[[0, -1]] = True  # the counts, and at least one limb
        return ExactSums(columns[occurs], np.ascontiguousarray(cells[:, occurs]))

    def to_lists(self) -> pa.Array:
        """The sums as Arrow lists of integers, `128 * digit + kind` for each digit that is not 0 (see `limbs`)."""
        settled = self.settled()
        row, column = np.nonzero(settled.cells)
        items = settled.cells[row, column] * _KINDS_OF_ITEMS + settled.columns[column]
        offsets = np.searchsorted(row, np.arange(len(self.cells) + 1))
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(items, pa.int64()))

    @classmethod
    def from_lists(cls, lists: pa.Array) -> ExactSums:
        """The sums of `to_lists`; a null is a sum of no values.

        >>> sums = sums_of_rows(digits_of_floats(np.array([0.1, 0.2, -5e-324])), np.array([0, 2, 3, 3]))
        >>> ExactSums.from_lists(sums.to_lists()).to_floats().tolist()
        [0.30000000000000004, -5e-324, 0.0]
        """
        items = np.asarray(lists.flatten())
        kinds = items & (_KINDS_OF_ITEMS - 1)
        columns = _union(np.unique(kinds), np.array([VALUES, UNIT]))
        cells = np.zeros((len(lists), len(columns)), np.int64)
        sizes = np.asarray(pc.list_value_length(lists).fill_null(0))
        cells[np.repeat(np.arange(len(lists)), sizes), _slots(columns)[kinds]] = items // _KINDS_OF_ITEMS
        return cls(columns, cells)

    def to_floats(self) -> FloatArray:
        """The double nearest to each sum, ties to even (see the module's text); 0.0 for a sum of no values.

        Cost: about 30 ns per sum for measured data, at most 0.3 us.
        """
        out = large_array(len(self.cells), np.float64)
        fill_nearest(self.columns, self.cells, *self._extent(), out)
        return out

    def to_arrow(self, type_: pa.DataType, name: str, described: Described = str) -> pa.Array:
        """The sums of a column of this type; null where there is no value.

        Integers and booleans give int64, `decimal(p, s)` gives `decimal128(38, s)`, floats give float64, durations
        their own type. Raises InputError WA-1024 for a sum outside that type; `described`: the left row of a sum.

        >>> whole = pa.array([2**62, 2**62 - 1, 1])
        >>> sums = PrefixSums.of(digits_of(whole)).of_ranges(np.array([0, 1, 1]), np.array([2, 3, 1]))
        >>> sums.to_arrow(whole.type, "v").to_pylist()
        [9223372036854775807, 4611686018427387904, None]
        """
        missing = self.counts == 0
        if pa.types.is_floating(type_):
            return with_nulls(self.to_floats(), missing)
        digit, first = self._digits()
        digit = np.pad(digit, ((0, 0), (first - UNIT, 4)))
        words = 4 if pa.types.is_decimal(type_) else 2
        low = digit[:, :words].copy()
        for k in range(words - 1):  # digits of one sign become two's complement
            low[:, k + 1] += low[:, k] >> 32
            low[:, k] &= _LOW
        outside = digit[:, words:].any(axis=1) | (low[:, -1] >= 1 << 31) | (low[:, -1] < -(1 << 31))
        raw = (low & _LOW).astype("<u4")
        if words == 2:
            require_inside(outside, name, "int64", described)
            whole = with_nulls(raw.view("<i8").reshape(-1), missing)
            return whole.cast(type_) if pa.types.is_duration(type_) else whole
        target = pa.decimal128(38, type_.scale)
        values = raw.view([("low", "<u8"), ("high", "<i8")]).reshape(-1)
        outside |= _beyond_38_digits(values["low"], values["high"])
        require_inside(outside, name, str(target), described)
        return pa.Array.from_buffers(target, len(raw), [validity(~missing), pa.py_buffer(np.ascontiguousarray(raw))])

    def to_means(self, type_: pa.DataType, name: str, described: Described = str) -> FloatArray:
        """The double nearest to each sum of a column of this type, divided by the number of values; NaN without values.

        Raises InputError WA-1024 if a sum of decimals has more than 38 digits.
        """
        if pa.types.is_decimal(type_) and type_.scale:
            sums = np.array([float(value or 0) for value in self.to_arrow(type_, name, described).to_pylist()])
        else:
            sums = self.to_floats()
        return means_of(sums, self.counts)

    def _digits(self) -> tuple[IntArray, int]:
        """Each sum's digits, all of its sign, and the limb of the first of them."""
        first, last = self._extent()
        digit = np.empty((len(self.cells), last - first + 1), np.int64)
        fill_digits(self.columns, self.cells, first, last, digit)
        return digit, first

    def _extent(self) -> tuple[int, int]:
        """The lowest limb, and the last one that carries can reach."""
        limbs = self.columns[self.columns < ROOM]
        return int(limbs[0]), min(int(limbs[-1]) + 2, ROOM - 1)


def means_of(sums: FloatArray, counts: IntArray) -> FloatArray:
    """Sums divided by the number of their values; NaN without values."""
    return np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)


def require_inside(outside: BoolArray, name: str, type_: str, described: Described) -> None:
    """Raise InputError WA-1024 for the first sum that is outside its type."""
    rows = np.flatnonzero(outside)
    if rows.size:
        other = "decimal or float64" if type_ == "int64" else "float64"
        raise InputError(
            Code.SUM_OUT_OF_RANGE,
            f"the sum of {name!r} for left row {described(int(rows[0]))} exceeds {type_}",
            f"cast the column to {other}",
        )


@dataclass(frozen=True, slots=True)
class PrefixSums:
    """A column's digits with their prefix sums: sums over ranges of rows in O(1)."""

    digits: Digits
    columns: IntArray
    prefix: IntArray
    step: int

    @classmethod
    def of(cls, digits: Digits) -> PrefixSums:
        """Prefix sums of up to 2^30 rows. O(n), and 8 bytes per row for each of up to 8 columns, less beyond.

        Raises ValueError for more rows: sums of their parts can be merged.
        """
        rows = len(digits.limb)
        if rows > MOST_VALUES:
            raise ValueError(f"prefix sums have at most {MOST_VALUES} rows, got {rows}")
        columns = digits.columns()
        step = 1 if len(columns) <= FEW_COLUMNS else BLOCK
        prefix = _no_values(rows // step + 1, columns)
        fill_prefix(*digits, _slots(columns), step, prefix)
        return cls(digits, columns, prefix, step)

    def of_ranges(
        self, start: IntArray, stop: IntArray, more: Digits | None = None, offsets: IntArray | None = None
    ) -> ExactSums:
        """The sums over the rows `start[i] : stop[i]`, and the rows `offsets[i] : offsets[i + 1]` of `more`.

        Empty ranges may have any ends. Cost: about 10 ns per range and 2 ns per row of `more`.
        """
        columns = self.columns if more is None else _union(self.columns, more.columns())
        cells = _no_values(len(start), columns)
        slots = _slots(columns)
        add_ranges(
            *self.digits, slots, self.prefix, slots[self.columns], self.step,
            np.ascontiguousarray(start, np.int64), np.ascontiguousarray(stop, np.int64), cells,
        )  # fmt: skip
        if more is not None and offsets is not None:
            add_rows(*more, slots, offsets, cells)
        return ExactSums(columns, cells)


def sums_of_rows(digits: Digits, offsets: IntArray) -> ExactSums:
    """The sums over the rows `offsets[i] : offsets[i + 1]`. O(rows).

    >>> digits = digits_of_floats(np.array([1e16, 1.0, -1e16, 0.1, 0.2]))
    >>> sums_of_rows(digits, np.array([0, 3, 5])).to_floats().tolist()
    [1.0, 0.30000000000000004]
    """
    columns = digits.columns()
    cells = _no_values(len(offsets) - 1, columns)
    add_rows(*digits, _slots(columns), np.ascontiguousarray(offsets, np.int64), cells)
    return ExactSums(columns, cells)


def _no_values(sums: int, columns: IntArray) -> IntArray:
    """The cells of sums without values."""
    cells: IntArray = large_zeros(sums * len(columns), np.int64).reshape(sums, len(columns))
    return cells


def _union(first: IntArray, second: IntArray) -> IntArray:
    found = np.union1d(first, second)
    return np.concatenate([found[found >= ROOM], found[found < ROOM]])


def _slots(columns: IntArray) -> IntArray:
    """The cell of each kind; a null has digits 0 and goes to the first."""
    slots = np.zeros(KINDS, np.int64)
    slots[columns] = np.arange(len(columns))
    return slots


def _beyond_38_digits(low: NDArray[np.uint64], high: IntArray) -> BoolArray:
    """Whether integers of 128 bits are outside +-(10^38 - 1)."""
    most = 10**38 - 1
    most_low, most_high = np.uint64(most & (2**64 - 1)), most >> 64
    least_low, least_high = np.uint64(-most & (2**64 - 1)), -most >> 64
    above = (high > most_high) | ((high == most_high) & (low > most_low))
    below = (high < least_high) | ((high == least_high) & (low < least_low))
    found: BoolArray = above | below
    return found

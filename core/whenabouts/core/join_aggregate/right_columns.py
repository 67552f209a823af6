"""The aggregated columns of right rows in the order of a search, with the tables that functions need, made once."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core.arrays.record_batches import doubles, one_chunk, take_rows, take_table, take_values
from whenabouts.core.arrays.row_ranks import ranks_of_column
from whenabouts.core.arrays.typing import BoolArray, FloatArray, IntArray
from whenabouts.core.asof_join.right_order import ties_of
from whenabouts.core.join_aggregate.exact_sums import PrefixSums, digits_of, digits_of_floats
from whenabouts.core.join_aggregate.range_queries import RangeMinimum, reversed_keys
from whenabouts.core.join_aggregate.value_keys import ValueKeys
from whenabouts.core.join_aggregate.wide_sums import WidePrefix
from whenabouts.core.runtime.blocks import times


class RightColumn:
    """One column; `values` are in the order of the search."""

    def __init__(self, name: str, values: pa.Array) -> None:
        self.name = name
        self.values = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values

    @cached_property
    def valid(self) -> BoolArray:
        """Which values are not null."""
        return np.asarray(self.values.is_valid())

    @cached_property
    def valid_before(self) -> IntArray:
        """The number of values before each row, nulls apart."""
        return np.concatenate([[0], np.cumsum(self.valid)])

    @cached_property
    def wide(self) -> WidePrefix | None:
        """Prefix sums of 128 bits, if they are enough."""
        return WidePrefix.of(self.values)

    @cached_property
    def prefix(self) -> PrefixSums:
        """Prefix sums of digits, for any values."""
        return PrefixSums.of(digits_of(self.values))

    @cached_property
    def keys(self) -> ValueKeys:
        """Keys in the order of `min`."""
        return ValueKeys.of(self.values)

    @cached_property
    def ranks(self) -> IntArray:
        """Ranks of equal values, -1 for a null. -0.0 equals 0.0, as in keys."""
        values = self.values
        if pa.types.is_floating(values.type):
            values = pa.array(doubles(values) + 0.0, mask=~self.valid)  # the sum of both zeros is 0.0
        return ranks_of_column(values)

    def take(self, at: IntArray, missing: BoolArray) -> pa.ChunkedArray:
        """The values of rows, null where one is missing."""
        return take_values(self.values, np.where(missing, -1, at))

    @cached_property
    def floats(self) -> FloatArray:
        """The values as doubles: NaN for one that is not finite, 0.0 for a null."""
        type_, values = self.values.type, self.values
        if pa.types.is_duration(type_) or pa.types.is_boolean(type_):
            values = values.cast(pa.int64())
        found = np.asarray(values.cast(pa.float64(), safe=False).fill_null(0.0)).copy()
        found[~np.isfinite(found)] = np.nan
        return found

    @cached_property
    def certain(self) -> PrefixSums:
        """Prefix sums of what certain rows add to an expected sum."""
        type_ = self.values.type
        if pa.types.is_floating(type_) or pa.types.is_decimal(type_):
            return PrefixSums.of(digits_of_floats(self.floats, self.valid))
        return self.prefix


class RightColumns:
    """The columns of right rows by name, and the order of the rows; `position`: the row of `right` at each place."""

    def __init__(self, right: pa.Table, position: NDArray[np.int32], codes: IntArray | None) -> None:
        self._right, self._position, self._codes = right, position, codes
        self._columns: dict[str, RightColumn] = {}

    def __getitem__(self, name: str) -> RightColumn:
        if name not in self._columns:
            column = self._right.column(name)
            ordered = take_rows(column, self._position) if len(column) else one_chunk(column)
            self._columns[name] = RightColumn(name, ordered)
        return self._columns[name]

    @cached_property
    def order(self) -> IntArray:
        """The place of each row in the order of `first`: by the middle of its times, their end, then the columns."""
        return places_of(self._right, self._codes)[self._position]

    def rows(self, at: IntArray, missing: BoolArray, type_: pa.StructType) -> pa.Array:
        """Times and columns of rows, null where one is missing."""
        if not self._right.num_rows:
            return pa.nulls(len(at), type_)
        taken = take_table(
            self._right.select([field.name for field in type_]), np.where(missing, -1, self._position[at])
        )
        columns = [one_chunk(column) for column in taken.columns]
        return pa.StructArray.from_arrays(columns, fields=list(type_), mask=pa.array(missing))

    @cached_property
    def earliest(self) -> RangeMinimum:
        """The first rows of ranges."""
        return RangeMinimum(self.order)

    @cached_property
    def latest(self) -> RangeMinimum:
        """The last rows of ranges, reversed."""
        return RangeMinimum(reversed_keys(self.order))

    @cached_property
    def row_of_order(self) -> IntArray:
        """The row at each place of the order."""
        rows = np.empty(len(self.order), np.int64)
        rows[self.order] = np.arange(len(self.order))
        return rows


def places_of(right: pa.Table, codes: IntArray | None) -> IntArray:
    """The place of each right row in the order of `first`. `codes`: their keys, None if all are compared."""
    t_min, t_max = times(right)
    rank = ties_of(right, codes, []).ranks(right.num_rows)
    places = np.empty(right.num_rows, np.int64)
    places[np.lexsort((rank, t_max, t_min + t_max))] = np.arange(right.num_rows)
    return places

"""Values as integers in the order of `min`: numbers by size, -0.0 before 0.0 and NaN last, text by its bytes.

Numbers and times are such integers already, or their bits are. Only other types need ranks, and for these a sort.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.record_batches import take_values, with_nulls
from whenabouts.core.arrays.row_ranks import float_keys, floats_of_keys, ranks_of_column
from whenabouts.core.arrays.ticks import as_ticks
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.join_aggregate.range_queries import NO_KEY, RangeMinimum, reversed_keys


@dataclass(frozen=True)
class ValueKeys:
    """The keys of a column's values; `by_rank`: they are ranks, so that a value is found by its row.

    Values are equal exactly if their keys are, but for NaN of different payload.
    """

    values: pa.Array
    keys: IntArray
    by_rank: bool

    @classmethod
    def of(cls, values: pa.Array) -> ValueKeys:
        """The keys, `NO_KEY` for a null. O(n), O(n log n) where ranks are needed.

        >>> ValueKeys.of(pa.array([7, -5], pa.int8())).keys, ValueKeys.of(pa.array(["b", "a"])).keys
        (array([ 7, -5]), array([1, 0]))
        """
        keys = _keys_of_numbers(values)
        by_rank = keys is None
        if keys is None:
            keys = ranks_of_column(values)
        if values.null_count:
            keys = np.where(np.asarray(values.is_null()), NO_KEY, keys)
        return cls(values, keys, by_rank)

    @cached_property
    def minima(self) -> RangeMinimum:
        """The least keys of ranges."""
        return RangeMinimum(self.keys)

    @cached_property
    def maxima(self) -> RangeMinimum:
        """The greatest keys of ranges, reversed."""
        return RangeMinimum(reversed_keys(self.keys))

    def values_of(self, keys: IntArray) -> pa.Array | pa.ChunkedArray:
        """The values with these keys, null for `NO_KEY`. O(keys), O(n) more for ranks."""
        type_, missing = self.values.type, keys == NO_KEY
        if not len(self.values):
            return pa.nulls(len(keys), type_)
        if pa.types.is_floating(type_):
            found = with_nulls(floats_of_keys(keys), missing)
            return found if type_ == found.type else found.cast(type_)
        keys = np.where(missing, 0, keys)
        if self.by_rank:
            valid = self.keys != NO_KEY
            row = np.zeros(int(self.keys[valid].max(initial=0)) + 1, np.int64)
            row[self.keys[valid]] = np.flatnonzero(valid)
            return take_values(self.values, np.where(missing, -1, row[keys]))
        return with_nulls(keys, missing).cast(as_ticks(pa.array([], type_)).type).view(type_)


def _keys_of_numbers(values: pa.Array) -> IntArray | None:
    """The keys of numbers and times, any for a null; None for other types, and for the extremes of int64."""
    if pa.types.is_floating(values.type):
        return float_keys(values)
    ticks = as_ticks(values)
    if not pa.types.is_integer(ticks.type) or pa.types.is_uint64(ticks.type):
        return None
    keys = np.asarray(ticks.cast(pa.int64()).fill_null(0))
    extreme = len(keys) and (keys.max() == NO_KEY or keys.min() == ~NO_KEY)
    return None if extreme else keys

"""What folded right rows have added to the open left rows of a stream: the marks beside these in state.

A right row that no left row to come can meet matters to open left rows only. It may be *folded*: what it adds to the
answer of each of them is kept as numbers and rows of a fixed size, and the right row is dropped. Each partner of a left
row is either folded, once, or there when the left row is answered. Counts and exact sums can be added up in any order,
and least and greatest values and rows be compared in any, so the answer has the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.record_batches import chunks_of, one_chunk
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.join_aggregate.exact_sums import ExactSums
from whenabouts.core.join_aggregate.mark_columns import NAME, parts_of
from whenabouts.core.join_aggregate.range_queries import reversed_keys
from whenabouts.core.join_aggregate.right_columns import places_of
from whenabouts.core.join_aggregate.value_keys import ValueKeys
from whenabouts.core.runtime.blocks import T_MAX, T_MIN


class Folded:
    """The marks of left rows; a part is named as in `mark_columns`."""

    def __init__(self, parts: Mapping[str, pa.Array]) -> None:
        self._parts = parts

    @classmethod
    def beside(cls, left: pa.Table) -> Folded | None:
        """The marks among the columns of left rows, None if there are none."""
        names = [name for name in left.column_names if name.startswith(NAME)]
        return cls({name.removeprefix(NAME): one_chunk(left.column(name)) for name in names}) if names else None

    @classmethod
    def nothing(cls, marks: pa.Schema, rows: int) -> Folded:
        """No right row was folded."""
        return cls({name: pa.nulls(rows, type_) for name, type_ in zip(parts_of(marks), marks.types, strict=True)})

    def __getitem__(self, rows: slice) -> Folded:
        """The marks of some of the left rows."""
        return Folded({name: part[rows] for name, part in self._parts.items()})

    def number(self, part: str) -> IntArray:
        """A count, 0 where nothing was folded."""
        return np.asarray(self._parts[part].fill_null(0))

    def sums(self, part: str) -> ExactSums:
        """Exact sums."""
        return ExactSums.from_lists(self._parts[part])

    def values(self, part: str) -> pa.Array:
        """Values, or rows."""
        return self._parts[part]


def lesser_of(one: pa.Array | pa.ChunkedArray, other: pa.Array, *, greater: bool = False) -> pa.Array:
    """The lesser, or greater, of two values in the order of `min`, place by place; null only if both are.

    Raises QueryError WA-2201 for text too long for one array.

    >>> lesser_of(pa.array([1, None, None]), pa.array([0, 7, None])).to_pylist()
    [0, 7, None]
    """
    both = one_chunk(pa.chunked_array([*chunks_of(one), other]))
    keys = ValueKeys.of(both).keys
    keys = reversed_keys(keys) if greater else keys
    return _either(both, keys[len(one) :] < keys[: len(one)])


def earlier_of(one: pa.Array, other: pa.Array, *, later: bool = False) -> pa.Array:
    """The earlier, or later, of two right rows in the order of `first`, place by place; null only if both are.

    Raises QueryError WA-2201 for text too long for one array.
    """
    both = one_chunk(pa.chunked_array([one, other]))
    columns = dict(zip((field.name for field in both.type), both.flatten(), strict=True))
    columns |= {name: columns[name].fill_null(0) for name in (T_MIN, T_MAX)}
    place = places_of(pa.table(columns), None)
    valid, n = np.asarray(both.is_valid()), len(one)
    before = place[n:] > place[:n] if later else place[n:] < place[:n]
    return _either(both, valid[n:] & (before | ~valid[:n]))


def _either(both: pa.Array, second: BoolArray) -> pa.Array:
    """The first or the second half of an array, place by place."""
    n = len(second)
    return both.take(pa.array(np.arange(n) + np.where(second, n, 0)))

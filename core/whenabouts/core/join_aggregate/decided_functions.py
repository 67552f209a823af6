"""Decided functions of a run of left rows: over the right rows that reach the confidence."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whenabouts.core.arrays.long_text import fitting
from whenabouts.core.arrays.record_batches import take_columns
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.join_aggregate.exact_sums import Described, ExactSums
from whenabouts.core.join_aggregate.folded import Folded, earlier_of, lesser_of
from whenabouts.core.join_aggregate.functions import Aggregate
from whenabouts.core.join_aggregate.mark_columns import COUNT
from whenabouts.core.join_aggregate.partners import Chosen
from whenabouts.core.join_aggregate.range_queries import NO_KEY, collected, distinct_counts, reversed_keys
from whenabouts.core.join_aggregate.right_columns import RightColumn, RightColumns
from whenabouts.core.join_aggregate.wide_sums import WideSums
from whenabouts.core.runtime.output_memory import bytes_per_row, require_room

Values: TypeAlias = pa.Array | pa.ChunkedArray
"""In several chunks where text needs them."""


class DecidedFunctions:
    """The functions over one run; what several of them need is computed once. `described`: a left row, for errors.

    `folded`: what other right rows, that are not there any more, have added; None: nothing.
    """

    def __init__(
        self, columns: RightColumns, chosen: Chosen, described: Described = str, folded: Folded | None = None
    ) -> None:
        self._columns, self._chosen, self._described, self._folded = columns, chosen, described, folded
        self._sums: dict[str, ExactSums | WideSums] = {}
        self._rows: dict[str, pa.Array] = {}

    @cached_property
    def counts(self) -> IntArray:
        """How many rows each left row has."""
        found = self._chosen.counts
        return found if self._folded is None else found + self._folded.number(COUNT)

    def of(self, aggregate: Aggregate) -> Values:
        """The answers for the left rows of the run.

        Raises InputError WA-1024 for a sum outside its type, QueryError WA-2201 for lists that do not fit into memory.
        """
        return _FUNCTIONS[aggregate.function](self, aggregate)

    def count(self, aggregate: Aggregate) -> pa.Array:
        """Rows, or rows with a value."""
        column = None if aggregate.column is None else self._columns[aggregate.column]
        return pa.array(self.counts if column is None else self._values(column))

    def any(self, aggregate: Aggregate) -> pa.Array:
        """Whether there is a row."""
        return pa.array(self.counts > 0)

    def sum(self, aggregate: Aggregate) -> pa.Array:
        """The exact sum, rounded once."""
        column = self._columns[aggregate.argument]
        return self._sum_of(column).to_arrow(column.values.type, column.name, self._described)

    def mean(self, aggregate: Aggregate) -> pa.Array:
        """The sum as a double, divided by the number of values."""
        column = self._columns[aggregate.argument]
        sums = self._sum_of(column)
        return pa.array(sums.to_means(column.values.type, column.name, self._described), mask=sums.counts == 0)

    def least(self, aggregate: Aggregate) -> Values:
        """The least value."""
        return self._least(self._columns[aggregate.argument])

    def greatest(self, aggregate: Aggregate) -> Values:
        """The greatest value."""
        return self._greatest(self._columns[aggregate.argument])

    def first(self, aggregate: Aggregate) -> Values:
        """The value of the first row, even if it is null."""
        return self._value_at(aggregate, self._first(), "first")

    def last(self, aggregate: Aggregate) -> Values:
        """The value of the last row, even if it is null."""
        return self._value_at(aggregate, self._last(), "last")

    def count_distinct(self, aggregate: Aggregate) -> pa.Array:
        """The number of different values."""
        return pa.array(distinct_counts(self._columns[aggregate.argument].ranks, *self._chosen.ranges))

    def collect(self, aggregate: Aggregate) -> pa.ChunkedArray:
        """All values, in the order of the rows."""
        values = self._columns[aggregate.argument].values
        rows = int(self._chosen.counts.sum())
        width = bytes_per_row([pa.table({"values": values})], [["values"]])
        require_room(rows, width, f"collected values of {aggregate.argument!r}")
        offsets, at = collected(self._columns.order, *self._chosen.ranges)
        column, at = pa.chunked_array([values]), np.asarray(at, np.int32)
        lists = []
        for piece in fitting([slice(0, len(offsets) - 1)], [(column, at)], offsets):
            ends = offsets[piece.start : piece.stop + 1]
            (taken,) = take_columns([column], at[ends[0] : ends[-1]])
            lists.append(list_of(ends - ends[0], taken))
        return pa.chunked_array(lists)

    def part(self, name: str) -> Values:
        """A part of the marks that fold these rows, and all that were folded before (`folded`)."""
        kind, _, column = name.partition(":")
        if kind == COUNT:
            return pa.array(self.counts)
        if kind in ("first", "last"):
            return self._row(self._first() if kind == "first" else self._last(), kind)
        found = self._columns[column]
        if kind == "values":
            return pa.array(self._values(found))
        if kind == "sum":
            sums = self._sum_of(found)
            assert isinstance(sums, ExactSums), "folded rows have such sums"
            return sums.to_lists()
        return self._least(found) if kind == "min" else self._greatest(found)

    def _least(self, column: RightColumn) -> Values:
        found = column.keys.values_of(column.keys.minima.of_ranges(*self._chosen.ranges))
        return found if self._folded is None else lesser_of(found, self._folded.values(f"min:{column.name}"))

    def _greatest(self, column: RightColumn) -> Values:
        found = column.keys.values_of(reversed_keys(column.keys.maxima.of_ranges(*self._chosen.ranges)))
        if self._folded is None:
            return found
        return lesser_of(found, self._folded.values(f"max:{column.name}"), greater=True)

    def _first(self) -> IntArray:
        return self._columns.earliest.of_ranges(*self._chosen.ranges)

    def _last(self) -> IntArray:
        return reversed_keys(self._columns.latest.of_ranges(*self._chosen.ranges))

    def _values(self, column: RightColumn) -> IntArray:
        """How many rows with a value each left row has."""
        found = self._values_here(column)
        return found if self._folded is None else found + self._folded.number(f"values:{column.name}")

    def _values_here(self, column: RightColumn) -> IntArray:
        chosen = self._chosen
        if not column.values.null_count:
            return chosen.counts
        before, (offsets, rows) = column.valid_before, chosen.beside
        beside_before = np.concatenate([[0], np.cumsum(column.valid[rows])])
        found: IntArray = before[chosen.stop] - before[chosen.start] + np.diff(beside_before[offsets])
        return found

    def _sum_of(self, column: RightColumn) -> ExactSums | WideSums:
        if column.name not in self._sums:
            start, stop, beside = self._chosen.ranges
            (offsets, rows), folded = beside, self._folded
            wide = column.wide if folded is None else None
            if wide is not None:
                self._sums[column.name] = wide.of_ranges(start, stop, beside, self._values_here(column))
            else:
                found = column.prefix.of_ranges(start, stop, column.prefix.digits.take(rows), offsets)
                self._sums[column.name] = found if folded is None else found.merged(folded.sums(f"sum:{column.name}"))
        return self._sums[column.name]

    def _value_at(self, aggregate: Aggregate, places: IntArray, part: str) -> Values:
        if self._folded is not None:
            return pc.struct_field(self._row(places, part), aggregate.argument)
        return self._columns[aggregate.argument].take(*self._at(places))

    def _at(self, places: IntArray) -> tuple[IntArray, BoolArray]:
        missing = places == NO_KEY
        at = np.zeros(len(places), np.int64)
        at[~missing] = self._columns.row_of_order[places[~missing]]
        return at, missing

    def _row(self, places: IntArray, part: str) -> pa.Array:
        """The first or last row of each left row, those that were folded included."""
        assert self._folded is not None, "it has the types"
        if part not in self._rows:
            folded = self._folded.values(part)
            found = self._columns.rows(*self._at(places), folded.type)
            self._rows[part] = earlier_of(found, folded, later=part == "last")
        return self._rows[part]


def list_of(offsets: IntArray, values: pa.Array) -> pa.Array:
    """Lists of values, of which there must be less than 2^31.

    >>> list_of(np.array([0, 2, 2]), pa.array([5, 6])).to_pylist()
    [[5, 6], []]
    """
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)


_FUNCTIONS: dict[str, Callable[[DecidedFunctions, Aggregate], Values]] = {
    "count": DecidedFunctions.count,
    "any": DecidedFunctions.any,
    "sum": DecidedFunctions.sum,
    "mean": DecidedFunctions.mean,
    "min": DecidedFunctions.least,
    "max": DecidedFunctions.greatest,
    "first": DecidedFunctions.first,
    "last": DecidedFunctions.last,
    "count_distinct": DecidedFunctions.count_distinct,
    "collect": DecidedFunctions.collect,
}

"""How settled tuples are stored: as plain rows (lazy), or as runs with their timestamp vectors (eager).

Al-Kateb 2010, section 4.2: a run holds the timestamps of all its tuples, so that its oldest tuples can expire. Under
the equivalence `equal` a run holds its values once; under every other equivalence it holds the values of each tuple,
since these differ. A run that spans several segments is stored in pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core.arrays.record_batches import one_chunk, table_of, take_table
from whenabouts.core.arrays.typing import BoolArray, IntArray, Positions
from whenabouts.core.coalescing.equivalence import same_bits
from whenabouts.core.coalescing.tuples import TemporalTuples
from whenabouts.core.runtime.blocks import PREFIX, T_MAX, T_MIN
from whenabouts.core.state.segment_layout import Layout

MORE = PREFIX + "more"
"""Timestamps of a run's tuples after the first one: the paper's vector v."""
WEIGHT = PREFIX + "weight"
"""How many tuples each timestamp of a run represents, if those in the middle have been left out."""

COUNTED = PREFIX + "counted"


@dataclass(frozen=True, slots=True)
class DecodedTuples:
    """Tuples in storage order: tuple i is row `rows[i]` of `table` at `times[i]`; see `TemporalTuples`."""

    table: pa.Table
    rows: NDArray[np.int32]
    times: IntArray
    joined: BoolArray
    weight: IntArray | None = None


@dataclass(frozen=True)
class TupleCodec:
    """`eager`: runs; `all_values`: with the values of every tuple; `weighted`: with tuples in the middle left out."""

    schema: pa.Schema
    group: tuple[str, ...]
    values: tuple[str, ...]
    eager: bool
    all_values: bool
    weighted: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Group and value columns."""
        return (*self.group, *self.values)

    @cached_property
    def plain(self) -> pa.Schema:
        """Schema of group and values."""
        return pa.schema([self.schema.field(name) for name in self.names])

    @cached_property
    def stored(self) -> pa.Schema:
        """Schema of the stored rows."""
        fields = [pa.field(T_MIN, pa.int64()), pa.field(T_MAX, pa.int64())]
        fields += [self.schema.field(name) for name in self.group]
        for name in self.values:
            field = self.schema.field(name)
            fields.append(field.with_type(pa.list_(field.type)) if self.eager and self.all_values else field)
        fields += [pa.field(MORE, pa.list_(pa.int64()))] if self.eager else []
        fields += [pa.field(WEIGHT, pa.list_(pa.int64()))] if self.weighted else []
        return pa.schema(fields)

    @cached_property
    def layout(self) -> Layout:
        """How segments hold the stored rows."""
        return Layout([self.stored], purpose=f"eager {self.eager}")

    @cached_property
    def counted(self) -> pa.Schema:
        """Schema of the tuple counts of groups."""
        return pa.schema([*(self.schema.field(name) for name in self.group), (COUNTED, pa.int64())])

    def encode(
        self, tuples: TemporalTuples, at: IntArray | None, new: BoolArray, weight: IntArray | None = None
    ) -> pa.RecordBatch:
        """The tuples at these indices (None: all), in order, as rows; `new[i]`: the i-th begins a run. O(tuples).

        A run with equal values of different bits, 0.0 and -0.0, is stored in pieces: after expiry any of its tuples may
        be the first one, whose values are shown.
        """
        times = tuples.times if at is None else tuples.times[at]
        if not self.eager:
            columns = [pa.array(times), pa.array(times), *tuples.taken(at, self.names)]
            return pa.RecordBatch.from_arrays(columns, schema=self.stored)
        once = self.group if self.all_values else self.names
        shown = [name for name in once if pa.types.is_floating(self.schema.field(name).type)]
        if shown:
            index = np.arange(len(times))
            floats = pa.Table.from_arrays(tuples.taken(at, shown), names=shown)
            new = new | ~np.append(True, same_bits(floats, index[:-1], index[1:]))[: len(times)]
        heads, starts, ends, more, offsets = _runs(times, new)
        first = heads if at is None else at[heads]
        columns = [pa.array(starts), pa.array(ends), *tuples.taken(first, once)]
        if self.all_values:
            columns += [_lists(values, np.append(heads, len(times))) for values in tuples.taken(at, self.values)]
        columns.append(_lists(pa.array(more), offsets))
        if weight is not None:
            columns.append(_lists(pa.array(weight), np.append(heads, len(times))))
        return pa.RecordBatch.from_arrays(columns, schema=self.stored)

    def decode(self, batches: Sequence[pa.RecordBatch], from_us: int) -> DecodedTuples:
        """The tuples at or after `from_us`, with the links that are known. O(tuples)."""
        table = table_of(batches, self.stored)
        first = np.asarray(table.column(T_MIN).to_numpy())
        weight = None if not self.weighted else _flat(table.column(WEIGHT)).astype(np.int64)
        if not self.eager:
            rows, joined, times = np.arange(len(first)), np.zeros(len(first), bool), first
            plain = table.select(self.names)
        else:
            more = _flat(table.column(MORE))
            size = np.asarray(one_chunk(table.column(MORE)).value_lengths()).astype(np.int64) + 1
            heads = np.cumsum(size) - size
            joined = np.ones(int(size.sum()), bool)
            joined[heads] = False
            times = np.empty(len(joined), np.int64)
            times[heads], times[joined] = first, more
            rows = np.repeat(np.arange(len(first)), size)
            plain = table.select(self.names)
            if self.all_values:
                groups = take_table(table.select(self.group), rows)
                values = [one_chunk(table.column(name)).flatten() for name in self.values]
                plain = pa.table([*groups.columns, *values], schema=self.plain)
                rows = np.arange(len(joined))
        keep = times >= from_us
        if not keep.all():
            # A tuple whose predecessor was dropped is no longer known to extend one.
            joined = joined & np.concatenate([[False], keep[:-1]]) if len(keep) else joined
            rows, times, joined = rows[keep], times[keep], joined[keep]
            weight = None if weight is None else weight[keep]
        return DecodedTuples(plain, rows.astype(np.int32), times, joined, weight)


class _Runs(NamedTuple):
    """Runs as `kernels.split_runs` gives them."""

    heads: IntArray
    starts: IntArray
    ends: IntArray
    more: IntArray
    offsets: Positions


def _runs(times: IntArray, begins: BoolArray) -> _Runs:
    from whenabouts.core.coalescing.kernels import split_runs  # numba: imported when first needed

    room = len(times) + 1
    heads, starts, ends, more = (np.empty(room, np.int64) for _ in range(4))
    offsets = np.empty(room, np.int32)
    runs = split_runs(times, begins, heads, starts, ends, more, offsets)
    return _Runs(heads[:runs], starts[:runs], ends[:runs], more[: len(times) - runs], offsets[: runs + 1])


def _flat(lists: pa.ChunkedArray) -> IntArray:
    return np.asarray(one_chunk(lists).flatten().to_numpy(zero_copy_only=False))


def _lists(values: pa.Array, offsets: IntArray | Positions) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32, copy=False)), values)

"""At-least-once sources: rows that are delivered again are processed once.

A source that only guarantees at-least-once delivery repeats rows after a failure. A repeat is the same event: equal in
the columns that identify it, in its times and in the key. It is recognised among the rows that the watermark has not
passed yet; after that it is late, like any other row of that time. So the state holds the identities of rows that are
not late.

Repeats may differ in other columns. The row of an earlier step stays; among those of one step the first by its other
columns, in the order of `arrays.row_ranks`, since no engine promises an order of arrival within a step.

`Deduplicated` wraps any other query; engines see no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whenabouts.core import metrics
from whenabouts.core.arrays.record_batches import one_chunk, take_table, take_values
from whenabouts.core.arrays.row_ranks import ranks_of_rows
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.errors import Code, InputError, QueryError
from whenabouts.core.runtime.blocks import PREFIX, times
from whenabouts.core.runtime.option_checks import columns_of
from whenabouts.core.runtime.protocol import (
    NO_WATERMARK,
    Arrival,
    Copied,
    FlushMode,
    Operator,
    Query,
    Reader,
    SegmentStore,
    Step,
)
from whenabouts.core.state.memory_store import StorePart
from whenabouts.core.state.segment_layout import LEAST_SLOT_US
from whenabouts.core.state.segmented_state import SegmentedState
from whenabouts.core.wrappers.base import WrappedOperator, WrappedQuery

Identifying = str | Sequence[str] | Mapping[str, str | Sequence[str]]
"""Column(s) of every input, or of inputs by name."""


def deduplicated(query: Query, by: Identifying | None) -> Query:
    """The query, processing each row once: `by` names the columns that identify a row of an input.

    Repeats are counted as `rows_replayed`: rows in = processed + rejected + replayed. Rows with a null in `by` are
    never repeats. Of repeats that differ in other columns one of the first step stays, the first by these columns. With
    None the query itself is returned. Raises QueryError WA-2101 for an input that the query does
    not have, or if no column is named.

    >>> from whenabouts.core import Point, within
    >>> from whenabouts.core.local import run
    >>> from whenabouts.core.timing_join.query import TimingJoin
    >>> query = TimingJoin(left_time=Point("t"), right_time=Point("t"), condition=within(5, confidence=1))
    >>> table = pa.table({"t": [1, 9, 9], "id": ["a", "b", "b"]})
    >>> run(deduplicated(query, "id"), [table, table]).output.num_rows
    2
    """
    if by is None:
        return query
    named = by if isinstance(by, Mapping) else dict.fromkeys(query.inputs, by)
    columns = {name: columns_of(f"deduplicate_by of {name}", given, Code.BAD_IDENTITY) for name, given in named.items()}
    for name, given in columns.items():
        if name not in query.inputs or not given:
            raise QueryError(
                Code.BAD_IDENTITY,
                f"rows of {name!r} cannot be identified by the columns {given}",
                f"name one or more columns of {', '.join(query.inputs)}",
            )
    return Deduplicated(query, tuple(columns.get(name, ()) for name in query.inputs))


@dataclass(frozen=True)
class Deduplicated(WrappedQuery):
    """A query that processes each row once; `by`: for each input the columns that identify a row, none: no check."""

    query: Query
    by: tuple[tuple[str, ...], ...]

    def operator(self, schemas: Sequence[pa.Schema], *, streaming: bool) -> DeduplicatingOperator:
        """The query's operator, with the check in front. Also raises InputError WA-1001 and WA-1002 for `by`."""
        return DeduplicatingOperator(self.query.operator(schemas, streaming=streaming), self)


class DeduplicatingOperator(WrappedOperator):
    """Removes repeats from the rows that arrive at an operator."""

    def __init__(self, operator: Operator, query: Deduplicated) -> None:
        super().__init__(operator)
        self._by = query.by
        identities = zip(self.readers, query.by, strict=True)
        found = [_identity(reader, (*by, *self.keys.of(reader.input)) if by else ()) for reader, by in identities]
        self._schemas = [stored for stored, _ in found]
        self._compared = [compared for _, compared in found]
        self._slot_us = max(max(query.lateness_us) // 4, LEAST_SLOT_US)

    def step(
        self,
        store: SegmentStore,
        arrivals: Sequence[Arrival],
        watermark_us: int,
        demand: FlushMode = FlushMode.NOTHING,
        latest_us: int = NO_WATERMARK,
    ) -> Step:
        """One step of `protocol.Operator`. Additional cost: the segments of identities that the rows touch."""
        seen = SegmentedState(StorePart(store, 0, 2), self._schemas, slot_us=self._slot_us)
        keeps = self._first_seen(seen, arrivals, watermark_us)
        replayed, fresh = 0, []
        for arrival, keep in zip(arrivals, keeps, strict=True):
            rows = arrival.block.num_rows - int(keep.sum())
            replayed += 0 if isinstance(arrival, Copied) else rows
            fresh.append(arrival._replace(block=arrival.block.filter(pa.array(keep))) if rows else arrival)
        step = self._operator.step(StorePart(store, 1, 2), fresh, watermark_us, demand, latest_us)
        step.metrics[metrics.REPLAYED] += replayed
        if demand is not FlushMode.END:
            for input in range(len(self._schemas)):
                seen.evict(input, watermark_us)
            seen.save()
            ends = [step.timer_us, *map(seen.first_end_us, range(len(self._schemas)))]
            step.timer_us = min((us for us in ends if us is not None), default=None)
        return step

    def rows_held(self, store: SegmentStore) -> int:
        """Rows of the operator in a bucket's state (for `wrappers.state_limit`)."""
        return super().rows_held(StorePart(store, 1, 2))

    def _first_seen(self, seen: SegmentedState, arrivals: Sequence[Arrival], watermark_us: int) -> list[BoolArray]:
        """Which rows of each block are not repeats; those that are not late are recorded as seen."""
        keeps = [np.ones(arrival.block.num_rows, bool) for arrival in arrivals]
        for input in range(len(self._schemas)):
            own = [number for number, arrival in enumerate(arrivals) if arrival.input == input]
            if self._by[input] and own:
                blocks = pa.Table.from_batches([arrivals[number].block for number in own])
                keep = self._first_of_input(seen, input, blocks, watermark_us)
                ends = np.cumsum([len(keeps[number]) for number in own])[:-1]
                for number, of_block in zip(own, np.split(keep, ends), strict=True):
                    keeps[number] = of_block
        return keeps

    def _first_of_input(self, seen: SegmentedState, input: int, blocks: pa.Table, watermark_us: int) -> BoolArray:
        keep = np.ones(blocks.num_rows, bool)
        known = times(blocks)[1] >= watermark_us
        for name in self._by[input]:
            known &= ~np.asarray(blocks.column(name).is_null())
        if not known.any():
            return keep
        schema = self._schemas[input]
        at = np.flatnonzero(known)
        rows = take_table(blocks.select(schema.names), at).cast(schema)
        t_max = times(rows)[1]
        held = pa.Table.from_batches(seen.load(input, int(t_max.min()), int(t_max.max())), schema)
        identities = pa.concat_tables([held, rows]).select(self._compared[input])
        own = blocks.select([name for name in blocks.column_names if not name.startswith(PREFIX)])
        first = _first_of_each(identities, held.num_rows, lambda number: take_table(own, at[number]))
        keep[at] = first
        for new in rows.filter(pa.array(first)).to_batches():
            seen.append(input, new)
        return keep


def _first_of_each(identities: pa.Table, held: int, contents: Callable[[IntArray], pa.Table]) -> BoolArray:
    """Which of the rows after the first `held` stay: of equal rows none if one is held, else the first by content.

    Nulls are equal, and so are NaNs. `contents`: all columns of some of these rows. O(rows); where rows repeat others
    and differ in a column, also a sort of these.
    """
    names = [str(number) for number in range(identities.num_columns)]  # users' columns may have any name
    # Stored rows lie where their segment begins. Arrow warns of grouping values that are not aligned, on stderr.
    numbered = identities.rename_columns(names).combine_chunks()
    equal = numbered.append_column("row", pa.array(np.arange(identities.num_rows))).group_by(names)
    first = np.zeros(identities.num_rows, bool)
    first[equal.aggregate([("row", "min")]).column("row_min").to_numpy()] = True
    if first[held:].all():
        return first[held:]
    rows = one_chunk(equal.aggregate([("row", "list")]).column("row_list"))
    group, row = np.asarray(pc.list_parent_indices(rows)), np.asarray(pc.list_flatten(rows))
    new = np.bincount(group) > 1
    new[group[row < held]] = False  # the row of an earlier step stays
    group, row = group[new[group]], row[new[group]]
    order = np.lexsort((row, group))
    group, row = group[order], row[order]
    ranks = _ranks(contents(row - held), np.searchsorted(group, group))
    order = np.lexsort((ranks, group))  # rows that are equal in everything: by arrival
    first[row] = False
    first[row[order[np.diff(group, prepend=-1) != 0]]] = True
    return first[held:]


def _ranks(rows: pa.Table, like: IntArray) -> IntArray:
    """The order of rows by content, among those `like` the same one; most repeats are equal to it in everything."""
    differ = [column for column in rows.columns if not _equal(column, take_values(column, like))]
    return ranks_of_rows(pa.table(differ, [str(number) for number in range(len(differ))])) if differ else like


def _equal(column: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    """Whether columns are equal in every bit; False if that is not known, as of -0.0 and 0.0."""
    return not (pa.types.is_floating(column.type) or pa.types.is_nested(column.type)) and column.equals(other)


def _identity(reader: Reader, names: Sequence[str]) -> tuple[pa.Schema, list[int]]:
    """What is stored of a row: its times, its template's number, and these columns, with dictionaries decoded; and what
    of it identifies the row. Where columns are computed, checkpoints hold as many of the input's first columns too."""
    block = reader.block_schema
    fields = [block.field(i) for i in range(len(block) - len(reader.schema))]
    compared = [i for i, field in enumerate(fields) if field.name.startswith(PREFIX)]
    for name in dict.fromkeys(names):
        if name not in block.names or name.startswith(PREFIX):  # a block has computed columns, too, which may be keys
            known = ", ".join(reader.schema.names)
            raise InputError(Code.MISSING_COLUMN, f"the {reader.name} input has no column {name!r}", f"it has {known}")
        kind = block.field(name).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if pa.types.is_nested(kind):
            problem = f"column {name!r} of the {reader.name} input is {kind}"
            raise InputError(Code.WRONG_TYPE, problem, "identify rows by plain columns")
        compared.append(len(fields))
        fields.append(pa.field(name, kind))
    return pa.schema(fields), compared

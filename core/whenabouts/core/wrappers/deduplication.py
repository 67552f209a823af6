"""At-least-once sources: rows that are delivered again are processed once.

A source that only guarantees at-least-once delivery repeats rows after a failure. A repeat is the same event: equal in
the columns that identify it, in its times and in the key. It is recognised among the rows that the watermark has not
passed yet; after that it is late, like any other row of that time. So the state holds the identities of rows that are
not late.

`Deduplicated` wraps any other query; engines see no difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.arrays.typing import BoolArray
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
    never repeats. With None the query itself is returned. Raises QueryError WA-2101 for an input that the query does
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
        replayed, fresh = 0, []
        for arrival in arrivals:
            keep = self._first_seen(seen, arrival, watermark_us)
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

    def _first_seen(self, seen: SegmentedState, arrival: Arrival, watermark_us: int) -> BoolArray:
        """Which rows of a block are not repeats; those that are not late are recorded as seen."""
        input, block = arrival.input, arrival.block
        keep = np.ones(block.num_rows, bool)
        known = times(block)[1] >= watermark_us
        for name in self._by[input]:
            known &= ~np.asarray(block.column(name).is_null())
        if not self._by[input] or not known.any():
            return keep
        schema = self._schemas[input]
        at = np.flatnonzero(known)
        columns = [block.column(field.name).take(pa.array(at)).cast(field.type) for field in schema]
        rows = pa.RecordBatch.from_arrays(columns, schema=schema)
        t_max = times(rows)[1]
        held = seen.load(input, int(t_max.min()), int(t_max.max()))
        known_rows = pa.Table.from_batches([*held, rows], schema).select(self._compared[input])
        first = _first_of_each(known_rows)[sum(batch.num_rows for batch in held) :]
        keep[at] = first
        if first.any():
            seen.append(input, rows.filter(pa.array(first)))
        return keep


def _first_of_each(table: pa.Table) -> BoolArray:
    """Which rows are the first among equal rows; nulls are equal, and so are NaNs. O(rows)."""
    names = [str(number) for number in range(table.num_columns)]  # users' columns may have any name
    # Stored rows lie where their segment begins. Arrow warns of grouping values that are not aligned, on stderr.
    numbered = table.rename_columns(names).combine_chunks().append_column("row", pa.array(np.arange(table.num_rows)))
    first = np.zeros(table.num_rows, bool)
    first[numbered.group_by(names).aggregate([("row", "min")]).column("row_min").to_numpy()] = True
    return first


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

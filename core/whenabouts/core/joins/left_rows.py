"""What operators share that answer each left row once, from right rows: readers, keys, blocks, rows without a key."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Protocol

import pyarrow as pa

from whenabouts.core.arrays.record_batches import table_of
from whenabouts.core.joins.sides import LEFT, RIGHT
from whenabouts.core.runtime.blocks import PREFIX
from whenabouts.core.runtime.event_reader import EventReader
from whenabouts.core.runtime.key_names import Key, of_input
from whenabouts.core.runtime.keys import NULL_KEY, Keys
from whenabouts.core.runtime.protocol import Arrival, Step
from whenabouts.core.runtime.time_slots import TimeSlots
from whenabouts.core.times.time_specs import TimeSpec


class LeftRowsQuery(Protocol):
    """What these operators read of their query."""

    @property
    def left_time(self) -> TimeSpec:
        """The times of left rows."""

    @property
    def right_time(self) -> TimeSpec:
        """The times of right rows."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the two inputs."""

    @property
    def key_columns(self) -> tuple[Key, ...]:
        """The keys on which both agree."""

    @property
    def slots(self) -> TimeSlots | None:
        """How the rows of a key are spread over buckets, None if they are not."""


class LeftRowsOperator:
    """The base of such an operator; see `protocol.Operator`.

    `required_of_right`: columns without which a right row is of no use, rejected with WA-1021 where they are null. Its
    output has no event time that an engine could rely on: rows are behind the watermark when they are emitted.
    """

    needs_latest = False
    event_time = None

    def __init__(
        self,
        query: LeftRowsQuery,
        schemas: Sequence[pa.Schema],
        *,
        streaming: bool,
        required_of_right: Sequence[str] = (),
    ) -> None:
        self._streaming = streaming
        specs = (query.left_time, query.right_time)
        self.readers = tuple(
            EventReader(input, name, schema, spec, groups=required_of_right if input == RIGHT else ())
            for input, (name, schema, spec) in enumerate(zip(query.inputs, schemas, specs, strict=True))
        )
        self._plain = [reader.schema for reader in self.readers]
        self.keys = Keys(query.key_columns, self._plain, query.inputs, query.slots)
        self._key_columns = query.key_columns
        self._blocks = [reader.block_schema for reader in self.readers]
        self._templates = json.dumps([[name for name, _ in spec.templates] for spec in specs])

    def _keep_of_right(self, columns: Collection[str]) -> None:
        """Of right rows only keys, times and these columns are needed."""
        needed = {*of_input(self._key_columns, RIGHT), *columns}
        own = [field for field in self._blocks[RIGHT] if field.name.startswith(PREFIX) or field.name in needed]
        self._blocks[RIGHT] = pa.schema(own)

    def _rows(self, input: int, arrivals: Sequence[Arrival], held: Sequence[pa.RecordBatch] = ()) -> pa.Table:
        """Rows of an input: those that state held, and those that arrived."""
        schema = self._blocks[input]
        fresh = (block.select(schema.names) for of, block in arrivals if of == input)
        return table_of([*held, *fresh], schema)

    def _with_keys(self, arrivals: Sequence[Arrival], step: Step) -> list[Arrival]:
        """The arrivals without rows with a null key. Left ones have no partner and are emitted now."""
        kept = []
        for input, block in arrivals:
            if any(block.column(name).null_count for name in self.keys.of(input)):
                missing = self.keys.codes([block], input)[0] == NULL_KEY
                if input == LEFT:
                    self._emit_alone(table_of([block.filter(pa.array(missing))], self._blocks[LEFT]), step)
                block = block.filter(pa.array(~missing))
            if block.num_rows:
                kept.append(Arrival(input, block.select(self._blocks[input].names)))
        return kept

    def _emit_alone(self, left: pa.Table, step: Step) -> None:
        """Emit left rows that no right row can be a partner of."""
        raise NotImplementedError

"""Runs an `AsofJoin` over the blocks and the state of one bucket.

On finite input all left rows get their answers at once. On a stream a left row waits in `asof_join.open_rows` until no
right row to come can change its answer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.arrays.record_batches import one_batch, table_of
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.asof_join.answers import Partners, high_ends_of, partners_of
from whenabouts.core.asof_join.open_rows import OpenRows, Reach, layout_of, rows_held
from whenabouts.core.asof_join.output import AsofOutput
from whenabouts.core.asof_join.settings import LEFT, RIGHT
from whenabouts.core.errors import Code, InputError
from whenabouts.core.runtime.blocks import PREFIX, times
from whenabouts.core.runtime.event_reader import EventReader
from whenabouts.core.runtime.key_names import of_input
from whenabouts.core.runtime.keys import NULL_KEY, Keys
from whenabouts.core.runtime.option_checks import columns_shown
from whenabouts.core.runtime.protocol import NO_WATERMARK, Arrival, FlushMode, Rejected, SegmentStore, Step
from whenabouts.core.runtime.watermarks import drop_late
from whenabouts.core.state.segment_layout import LEAST_SLOT_US

if TYPE_CHECKING:
    from whenabouts.core.asof_join.settings import AsofJoinSettings


class AsofJoinOperator:
    """The operator of an as-of join; see `protocol.Operator`.

    Its output has no event time that an engine could rely on: rows are behind the watermark when they are emitted.

    Raises InputError WA-1001 for an `order_by` column that the right input lacks.
    """

    needs_latest = False
    event_time = None

    def __init__(self, query: AsofJoinSettings, schemas: Sequence[pa.Schema], *, streaming: bool) -> None:
        self.query, self._streaming = query, streaming
        specs = (query.left_time, query.right_time)
        self.readers = tuple(
            EventReader(input, name, schema, spec)
            for input, (name, schema, spec) in enumerate(zip(query.inputs, schemas, specs, strict=True))
        )
        plain = [reader.schema for reader in self.readers]
        self.keys = Keys(query.key_columns, plain, query.inputs, query.slots)
        for name in query.ordered_by:
            if name not in plain[RIGHT].names:
                raise InputError(
                    Code.MISSING_COLUMN,
                    f"order_by names {name!r}, and the right input has no such column",
                    columns_shown(plain[RIGHT]),
                )
        self._blocks = [reader.block_schema for reader in self.readers]
        if query.how == "left_anti":  # right rows are not emitted, and their order does not matter
            needed = of_input(query.key_columns, RIGHT)
            own = [field for field in self._blocks[RIGHT] if field.name.startswith(PREFIX) or field.name in needed]
            self._blocks[RIGHT] = pa.schema(own)
        self._columns = AsofOutput(query, *plain, streaming=streaming)
        longest = specs[LEFT].max_uncertainty_us or 0, specs[RIGHT].max_uncertainty_us or 0
        self._reach = Reach(query.direction, query.tolerance_us, longest, query.tie_columns)
        templates = json.dumps([[name for name, _ in spec.templates] for spec in specs])
        self._layout = layout_of(self._blocks, self._reach, f"{query.state_depends_on} {templates}")
        self._slot_us = max(sum(longest) // 4, LEAST_SLOT_US)

    @property
    def output_schema(self) -> pa.Schema:
        """Left columns, right columns, `probability`, `none_probability`, on streams `event_time`.

        With `left_anti` no right columns and no `probability`.
        """
        return self._columns.schema

    def rows_held(self, store: SegmentStore) -> int:
        """Rows of both inputs in a bucket's state, carried ones included. Two `get`s."""
        return rows_held(store)

    def step(
        self,
        store: SegmentStore,
        arrivals: Sequence[Arrival],
        watermark_us: int,
        demand: FlushMode = FlushMode.NOTHING,
        latest_us: int = NO_WATERMARK,
    ) -> Step:
        """One step of `protocol.Operator`. Cost: the rows that arrive and those that are settled, and their answers."""
        step = Step()
        fresh = drop_late(self.readers, arrivals, watermark_us, step)
        if not self._streaming:
            left, right = (self._rows(input, fresh) for input in (LEFT, RIGHT))
            self._answer(left, right, step)
            return step
        fresh = self._with_keys(fresh, step)
        rows = OpenRows(store, self._layout, self.keys, self._reach, self._high_ends, slot_us=self._slot_us)
        if demand is FlushMode.END:
            left = self._rows(LEFT, fresh, rows.all_left())
            right = self._rows(RIGHT, fresh, rows.right_of(one_batch(left), at_the_end=True))
            self._answer(left, right, step)
            return step
        rows.add(fresh)
        settled = rows.settled(watermark_us)
        if settled.num_rows:
            self._answer(self._rows(LEFT, [], [settled]), self._rows(RIGHT, [], rows.right_of(settled)), step)
        rows.drop_unneeded(watermark_us, step)
        rows.save(watermark_us, self.query.inputs, step)
        step.metrics[metrics.STORED] += sum(block.num_rows for _, block in fresh)
        return step

    def _answer(self, left: pa.Table, right: pa.Table, step: Step) -> None:
        step.metrics[metrics.CORRELATIONS] += 1
        partners = partners_of(self.query, self.keys, left, right)
        if partners.rejected is not None:
            self._reject(left, partners.rejected, step)
        event_us = self._high_ends(left, right) + self._reach.longest[RIGHT] + 1 if self._streaming else None
        step.output += self._columns.rows(left, right, partners, event_us, step)

    def _reject(self, left: pa.Table, crowded: BoolArray, step: Step) -> None:
        """Left rows for which too many right rows may prevail; until now they counted as processed."""
        rows = one_batch(left.filter(pa.array(crowded)))
        step.rejected.append(Rejected(LEFT, Code.TOO_MANY_CANDIDATES, self.readers[LEFT].raw(rows)))
        step.metrics[metrics.REJECTED] += rows.num_rows
        step.metrics[metrics.PROCESSED] -= rows.num_rows

    def _rows(self, input: int, arrivals: Sequence[Arrival], held: Sequence[pa.RecordBatch] = ()) -> pa.Table:
        schema = self._blocks[input]
        fresh = (block.select(schema.names) for of, block in arrivals if of == input)
        return table_of([*held, *fresh], schema)

    def _high_ends(self, left: pa.Table, right: pa.Table) -> IntArray:
        ends: IntArray = high_ends_of(self.query, self.keys, left, right)
        return ends

    def _with_keys(self, arrivals: Sequence[Arrival], step: Step) -> list[Arrival]:
        """The arrivals without rows with a null key. Left ones have no partner and are emitted now."""
        kept = []
        for input, block in arrivals:
            if any(block.column(name).null_count for name in self.keys.of(input)):
                missing = self.keys.codes([block], input)[0] == NULL_KEY
                if input == LEFT:
                    alone = pa.Table.from_batches([block.filter(pa.array(missing))])
                    nobody = Partners(None, np.full(alone.num_rows, -1, np.int32), None, np.ones(alone.num_rows))
                    empty = self._blocks[RIGHT].empty_table()
                    step.output += self._columns.rows(alone, empty, nobody, times(alone)[1], step)
                block = block.filter(pa.array(~missing))
            if block.num_rows:
                kept.append(Arrival(input, block.select(self._blocks[input].names)))
        return kept

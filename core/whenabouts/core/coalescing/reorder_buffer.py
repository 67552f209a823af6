"""The reorder buffer: rows wait until the watermark has passed them, and leave in order as settled tuples.

A tuple is settled once no more row of its instant can arrive. Which of several rows it is has then been decided.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.arrays.record_batches import table_of, take_table
from whenabouts.core.coalescing.tuples import Duplicates, TemporalTuples, groups_of, order_of, without_duplicates
from whenabouts.core.errors import Code
from whenabouts.core.runtime.blocks import times
from whenabouts.core.runtime.event_reader import EventReader
from whenabouts.core.runtime.keys import Keys
from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK, Rejected, SegmentStore, Step
from whenabouts.core.state.segment_layout import LEAST_SLOT_US, Layout, every_row
from whenabouts.core.state.segmented_state import SegmentedState


class ReorderBuffer:
    """The rows of one input that wait in the store until the watermark has passed them."""

    def __init__(self, reader: EventReader, group: tuple[str, ...], lateness_us: int) -> None:
        self.reader = reader
        self.keys = Keys(group, [reader.schema], (reader.name,))
        self.layout = Layout([reader.block_schema], opens={0: every_row})
        self._slot_us = max(lateness_us // 16, LEAST_SLOT_US)

    def settle(
        self, store: SegmentStore, blocks: Sequence[pa.RecordBatch], until_us: int, step: Step
    ) -> tuple[TemporalTuples, int | None]:
        """The tuples before `until_us`, which no later row can change, and the time of the first row that still waits.

        Of several different rows of one group and instant all but one are rejected (WA-1022); equal rows count as
        replayed. At `END_OF_TIME` nothing is written. O(rows that arrive or settle).
        """
        table, timer_us = self.release(store, blocks, until_us, step)
        return self.settled(table, step), timer_us

    def release(
        self, store: SegmentStore, blocks: Sequence[pa.RecordBatch], until_us: int, step: Step
    ) -> tuple[pa.Table, int | None]:
        """The rows before `until_us`, in no order, and the time of the first row that still waits."""
        waiting = self._state(store)
        if until_us == END_OF_TIME:
            rows = [*waiting.load(0, NO_WATERMARK, END_OF_TIME), *blocks]
        else:
            parts = [_split(batch, until_us) for batch in waiting.take_before(0, until_us)]
            rows, rest = [early for early, _ in parts], [late for _, late in parts if late.num_rows]
            for block in [*rest, *blocks]:
                waiting.append(0, block)
            waiting.save()
            metrics.held(step.gauges, self.reader.name, waiting.rows_held, waiting.bytes_held)
        return table_of(rows, self.reader.block_schema), waiting.first_open_us(0)

    def ordered(self, table: pa.Table) -> tuple[TemporalTuples, Duplicates]:
        """Rows as tuples, one for each group and time, and what that leaves out. O(rows) if they are in order."""
        order = order_of(times(table)[0], groups_of(self.keys, table))
        tuples = TemporalTuples(table, order.at, order.times, order.starts)
        if not order.has_ties:
            return tuples, Duplicates(np.zeros(0, np.int64), 0, np.zeros(0, np.int64))
        return without_duplicates(tuples, self.reader.schema.names)

    def settled(self, table: pa.Table, step: Step) -> TemporalTuples:
        """Rows that are settled as tuples, counted; those that are not taken are rejected."""
        tuples, duplicates = self.ordered(table)
        if len(duplicates.rejected):
            for batch in take_table(table, duplicates.rejected).to_batches():
                self._reject(Code.DUPLICATE_TIMESTAMP, batch, step)
        step.metrics[metrics.REPLAYED] += duplicates.replayed
        step.metrics[metrics.PROCESSED] += len(tuples)
        return tuples

    def _state(self, store: SegmentStore) -> SegmentedState:
        return SegmentedState(store, self.layout, slot_us=self._slot_us)

    def _reject(self, code: Code, rows: pa.RecordBatch, step: Step) -> None:
        if rows.num_rows:
            step.rejected.append(Rejected(self.reader.input, code, self.reader.raw(rows)))
            step.metrics[metrics.REJECTED] += rows.num_rows


def _split(rows: pa.RecordBatch, until_us: int) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The rows before an instant, and the others."""
    early = times(rows)[1] < until_us
    if early.all():
        return rows, rows.slice(0, 0)
    return rows.filter(pa.array(early)), rows.filter(pa.array(~early))

"""Runs a `Coalesce` with early answers over the blocks and the state of one bucket."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.coalescing.early_changes import ChangeOutput
from whenabouts.core.coalescing.early_evaluator import EarlyEvaluator
from whenabouts.core.coalescing.operator import CoalesceOperator
from whenabouts.core.coalescing.reader import timely_blocks
from whenabouts.core.coalescing.settings import CoalesceSettings
from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK, Arrival, FlushMode, SegmentStore, Step


class EarlyCoalesceOperator(CoalesceOperator):
    """Runs a `Coalesce` over the blocks and the state of one bucket: each step emits what it changes.

    Rows are read, bucketed, kept and rejected as for final rows, and the state has the same format.
    """

    def __init__(self, query: CoalesceSettings, schema: pa.Schema, *, streaming: bool = True) -> None:
        super().__init__(query, schema, streaming=streaming)
        self._early = EarlyEvaluator(self.readers[0], query.coalescing)
        self._changes = ChangeOutput(self._output)

    @property
    def output_schema(self) -> pa.Schema:
        """`op`, then the columns of final rows."""
        return self._changes.schema

    def rows_held(self, store: SegmentStore) -> int:
        """As `CoalesceOperator.rows_held`."""
        return self._early.rows_held(store)

    def step(
        self,
        store: SegmentStore,
        arrivals: Sequence[Arrival],
        watermark_us: int,
        demand: FlushMode = FlushMode.NOTHING,
        latest_us: int = NO_WATERMARK,
    ) -> Step:
        """One step of `protocol.Operator`. Cost: the rows that arrive or settle, the runs that they touch, and extents
        that open."""
        if demand is FlushMode.END and self._early.is_new(store):  # finite input: nothing to correct
            step = super().step(store, arrivals, watermark_us, demand, latest_us)
            step.output = [self._changes.inserted(rows) for rows in step.output]
            return step
        step = Step()
        blocks = timely_blocks(self.readers, arrivals, watermark_us, step)[0]
        until = END_OF_TIME if demand is FlushMode.END else watermark_us
        with self._early.changes(store, blocks, watermark_us, until, latest_us, step) as changes:
            rows = self._changes.of_rows(changes.op, changes.rows, changes.held)
        if rows.num_rows:
            step.output.append(rows)
            step.metrics[metrics.MATCHED] += rows.num_rows
        return step

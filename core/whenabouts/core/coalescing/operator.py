"""Runs a `Coalesce` over the blocks and the state of one bucket.

The path of a row: it waits in the reorder buffer until the watermark has passed it (`coalescing.reorder_buffer`), is
kept as long as a later extent can contain it (`coalescing.window_log`, `coalescing.sliding_window`), is compared with
its neighbours when an extent becomes final (`coalescing.extent_evaluator`), and leaves as part of a coalesced tuple
(`coalescing.output`).
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.arrays.record_batches import table_of
from whenabouts.core.coalescing.aggregate_needs import AggregateNeeds
from whenabouts.core.coalescing.extent_evaluator import ExtentEvaluator
from whenabouts.core.coalescing.extents import FinalExtents
from whenabouts.core.coalescing.history_runs import runs_of_history
from whenabouts.core.coalescing.output import RunOutput
from whenabouts.core.coalescing.reader import coalescing_reader, timely_blocks
from whenabouts.core.coalescing.settings import CoalesceSettings
from whenabouts.core.runtime.keys import Keys
from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK, Arrival, FlushMode, SegmentStore, Step


class CoalesceOperator:
    """Runs a `Coalesce` over the blocks and the state of one bucket."""

    def __init__(
        self,
        query: CoalesceSettings,
        schema: pa.Schema,
        needs: AggregateNeeds | None = None,
        *,
        streaming: bool = True,
    ) -> None:
        self.query = query
        self._spec = query.coalescing
        # Runs over the whole history of finite input depend on no instant. On streams the state holds the latest one.
        self.needs_latest = streaming or not (query.extents.is_history and query.extents.at_us is None)
        self.readers = (coalescing_reader(0, query.inputs[0], schema, query.point, self._spec),)
        self._evaluator = ExtentEvaluator(self.readers[0], self._spec, needs)
        self.keys = Keys(query.partitioned_by, [self.readers[0].schema], query.inputs)
        time = self.readers[0].schema.field(query.point.t).type
        self._output = RunOutput(self.readers[0].schema, self._spec, time, valid_last=query.valid_last)
        self.event_time = None  # no output column is guaranteed to be ahead of the watermark

    @property
    def output_schema(self) -> pa.Schema:
        """`window_end` if the window slides, group and value columns, `valid_from`, `valid_to`, `n`;
        before `n`, if it is asked for, `valid_last`."""
        return self._output.schema

    def step(
        self,
        store: SegmentStore,
        arrivals: Sequence[Arrival],
        watermark_us: int,
        demand: FlushMode = FlushMode.NOTHING,
        latest_us: int = NO_WATERMARK,
    ) -> Step:
        """One step of `protocol.Operator`. Cost: the rows that arrive or settle, and the extents that become final."""
        step = Step()
        blocks = timely_blocks(self.readers, arrivals, watermark_us, step)[0]
        rows = self._without_extent(store, blocks, demand, step)
        if rows is None:
            until = END_OF_TIME if demand is FlushMode.END else watermark_us
            with self._evaluator.step(store, blocks, until, latest_us, step) as extents:
                if extents is not None:
                    step.metrics[metrics.COALESCED] += extents.coalesced
                    step.metrics[metrics.NEIGHBOURS] += extents.neighbours
                    rows = self.rows_of(extents)
        if rows is not None and rows.num_rows:
            step.output.append(rows)
            step.metrics[metrics.MATCHED] += rows.num_rows
        return step

    def rows_held(self, store: SegmentStore) -> int:
        """Rows and runs in a bucket's state (for `wrappers.state_limit`)."""
        return self._evaluator.rows_held(store)

    def counted(self, store: SegmentStore) -> int:
        """How many tuples have been settled so far."""
        return self._evaluator.progress(store).counted

    def count_from(self, store: SegmentStore, counted: int) -> None:
        """Say in a new store how many tuples were settled before its own, so that slides by rows continue."""
        self._evaluator.count_from(store, counted)

    def convert(self, store: SegmentStore, other: CoalesceOperator) -> None:
        """Write what the operator of the same query under the other scheme has stored in the format of this one."""
        self._evaluator.convert(store, other._evaluator)

    def rows_of(self, extents: FinalExtents) -> pa.RecordBatch:
        """The output rows of final extents."""
        return self._output.of_extents(extents)

    def _without_extent(
        self, store: SegmentStore, blocks: list[pa.RecordBatch], demand: FlushMode, step: Step
    ) -> pa.RecordBatch | None:
        """The output for finite input of one numeric value column; None where an extent is needed."""
        spec = self._spec
        applies = spec.extents.is_history and spec.extents.at_us is None and spec.equivalence.kind == "equal"
        if demand is not FlushMode.END or not applies or not self._evaluator.is_new(store):
            return None
        table = table_of(blocks, self.readers[0].block_schema)
        found = runs_of_history(table, self._evaluator.buffer.keys, spec.values, with_last=self._output.last)
        if found is None:
            return None
        step.metrics[metrics.PROCESSED] += table.num_rows
        step.metrics[metrics.COMPARED] += table.num_rows if found.neighbours is None else found.neighbours
        if found.neighbours is not None:
            step.metrics[metrics.COALESCED] += table.num_rows - len(found.runs.n)
            step.metrics[metrics.NEIGHBOURS] += found.neighbours
        return self._output.of_rows(table, found)

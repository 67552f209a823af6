"""Runs a `JoinAggregate` over the blocks and the state of one bucket.

On finite input all left rows get their answers at once. On a stream a left row waits in `join_aggregate.open_rows`
until no right row to come can be one of its partners; then it is computed from all of them. Some of these may have been
folded into its marks (`join_aggregate.folded`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.arrays.record_batches import table_of
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.join_aggregate.cost import FEW, RIGHT_PER_LEFT
from whenabouts.core.join_aggregate.mark_columns import marks_of
from whenabouts.core.join_aggregate.open_rows import (
    Folding,
    OpenRows,
    Reach,
    layout_of,
    rows_held,
)
from whenabouts.core.join_aggregate.output import AggregateOutput
from whenabouts.core.joins.left_rows import LeftRowsOperator
from whenabouts.core.joins.sides import LEFT, RIGHT
from whenabouts.core.runtime.blocks import times
from whenabouts.core.runtime.protocol import NO_WATERMARK, Arrival, FlushMode, SegmentStore, Step
from whenabouts.core.runtime.watermarks import drop_late
from whenabouts.core.state.segment_codec import fingerprint
from whenabouts.core.state.segmented_state import SegmentedState
from whenabouts.core.times.widened import template_lengths, widened

if TYPE_CHECKING:
    from whenabouts.core.join_aggregate.settings import JoinAggregateSettings


class JoinAggregateOperator(LeftRowsOperator):
    """The operator of a join aggregate; see `protocol.Operator`."""

    def __init__(self, query: JoinAggregateSettings, schemas: Sequence[pa.Schema], *, streaming: bool) -> None:
        clock = () if query.clock_column is None else (query.clock_column,)
        super().__init__(query, schemas, streaming=streaming, required_of_right=clock)
        self.query, self._schemas = query, schemas
        self._of_lengths: dict[tuple[tuple[int, int], ...], JoinAggregateOperator] = {}
        self._columns = AggregateOutput(query, *self._plain, streaming=streaming)
        self._keep_of_right({*query.columns, *clock})  # right rows are not emitted
        self._reach = Reach(query.reach)
        self._folding = folding_of(query, self._blocks[RIGHT])
        purpose = f"join aggregate {query.slots} {self._templates}"
        layout = layout_of(self._blocks, self._folding.marks, purpose)
        self._layout = replace(layout, template_lengths=template_lengths((query.left_time, query.right_time)))

    @property
    def output_schema(self) -> pa.Schema:
        """Left columns, the aggregates in the order given, on streams `event_time`."""
        return self._columns.schema

    def rows_held(self, store: SegmentStore) -> int:
        """Rows of both inputs in a bucket's state. One `get`."""
        return rows_held(store)

    def step(
        self,
        store: SegmentStore,
        arrivals: Sequence[Arrival],
        watermark_us: int,
        demand: FlushMode = FlushMode.NOTHING,
        latest_us: int = NO_WATERMARK,
    ) -> Step:
        """One step of `protocol.Operator`. Cost: the rows that arrive, those that are settled, and their partners."""
        step = Step()
        if not self._streaming:
            fresh = self._timely(arrivals, watermark_us, step)
            self._answer(self._rows(LEFT, fresh), self._rows(RIGHT, fresh), step)
            return step
        state = SegmentedState(store, self._layout, slot_us=self._reach.slot_us)
        lengths = state.lengths(self._reach.lengths)
        if lengths != self._reach.lengths:
            return self._for(lengths).step(store, arrivals, watermark_us, demand, latest_us)
        rows = OpenRows(state, self._blocks[LEFT], self._reach, self._folding)
        fresh = self._timely(arrivals, watermark_us, step)
        if demand is FlushMode.END:
            left = rows.left_table([*rows.all_left(), *(block for of, block in fresh if of == LEFT)])
            self._answer(left, self._rows(RIGHT, fresh, rows.right_of(left)), step)
            return step
        settled = rows.left_table(rows.take_in(fresh, watermark_us))
        if settled.num_rows:
            self._answer(settled, self._rows(RIGHT, [], rows.right_of(settled)), step)
        rows.drop_unneeded(watermark_us, lambda left, right: self._marks(left, right, step), step)
        rows.save(watermark_us, self.query.inputs, step)
        return step

    def _for(self, lengths: list[tuple[int, int]]) -> JoinAggregateOperator:
        """The operator for a bucket some rows of which are longer or shorter than the query declares now."""
        key = tuple(lengths)
        if key not in self._of_lengths:
            self._of_lengths[key] = JoinAggregateOperator(widened(self.query, lengths), self._schemas, streaming=True)
        return self._of_lengths[key]

    def _timely(self, arrivals: Sequence[Arrival], watermark_us: int, step: Step) -> list[Arrival]:
        """The arrivals without rows that are late or have a null key."""
        return self._with_keys(drop_late(self.readers, arrivals, watermark_us, step), step)

    def _answer(self, left: pa.Table, right: pa.Table, step: Step) -> None:
        """Emit left rows with their answers."""
        event_us = self._reach.instants(times(left)[1]) if self._streaming else None
        self._emit(left, right, event_us, step)

    def _emit(self, left: pa.Table, right: pa.Table, event_us: IntArray | None, step: Step) -> None:
        from whenabouts.core.join_aggregate.answers import answers_of  # numba: imported when first needed

        step.metrics[metrics.CORRELATIONS] += 1
        answers = answers_of(self.query, self.keys, self._columns.types, left, right, step.metrics)
        step.output += self._columns.rows(left, answers, event_us, step)

    def _marks(self, left: pa.Table, right: Sequence[pa.RecordBatch], step: Step) -> pa.RecordBatch:
        """The marks of left rows once right rows are folded."""
        from whenabouts.core.join_aggregate.answers import marks_with  # numba: imported when first needed

        step.metrics[metrics.CORRELATIONS] += 1
        assert self._folding.marks is not None, "something can be folded"
        return marks_with(
            self.query, self.keys, self._folding.marks, left, table_of(right, self._blocks[RIGHT]), step.metrics
        )

    def _emit_alone(self, left: pa.Table, step: Step) -> None:
        event_us = times(left)[1] if self._streaming else None
        self._emit(left, self._rows(RIGHT, []), event_us, step)


def folding_of(query: JoinAggregateSettings, right: pa.Schema) -> Folding:
    """How a stream of this query folds right rows, whose block columns are `right`."""
    if not query.can_fold:
        return Folding()
    marks = marks_of(query.aggregates, right, decided=query.asks_decided, chance=query.asks_chance)
    judged = query.condition.lo_us, query.condition.hi_us, float(query.condition.confidence), query.condition.possible
    templates = [
        (name, template.edges, template.masses)
        for spec in (query.left_time, query.right_time)
        for name, template in spec.templates
    ]
    settings = int(fingerprint(marks.names, judged, query.reach.instants, templates), 16)
    if query.folding == "always":
        return Folding(marks, settings, least=1)
    return Folding(marks, settings, FEW, RIGHT_PER_LEFT) if query.folding == "auto" else Folding(marks, settings)

"""Runs an `AsofJoin` over the blocks and the state of one bucket.

On finite input all left rows get their answers at once. On a stream a left row waits in `asof_join.open_rows` until no
right row to come can change its answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.arrays.record_batches import one_batch
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.asof_join.answers import Partners, high_ends_of, partners_of
from whenabouts.core.asof_join.open_rows import OpenRows, Reach, layout_of, rows_held
from whenabouts.core.asof_join.output import AsofOutput
from whenabouts.core.errors import Code, InputError
from whenabouts.core.joins.left_rows import LeftRowsOperator
from whenabouts.core.joins.sides import LEFT, RIGHT
from whenabouts.core.runtime.blocks import times
from whenabouts.core.runtime.option_checks import columns_shown
from whenabouts.core.runtime.protocol import NO_WATERMARK, Arrival, FlushMode, Rejected, SegmentStore, Step
from whenabouts.core.runtime.watermarks import drop_late
from whenabouts.core.state.segment_layout import LEAST_SLOT_US

if TYPE_CHECKING:
    from whenabouts.core.asof_join.settings import AsofJoinSettings


class AsofJoinOperator(LeftRowsOperator):
    """The operator of an as-of join; see `protocol.Operator`.

    Raises InputError WA-1001 for an `order_by` column that the right input lacks.
    """

    def __init__(self, query: AsofJoinSettings, schemas: Sequence[pa.Schema], *, streaming: bool) -> None:
        super().__init__(query, schemas, streaming=streaming)
        self.query = query
        for name in query.ordered_by:
            if name not in self._plain[RIGHT].names:
                raise InputError(
                    Code.MISSING_COLUMN,
                    f"order_by names {name!r}, and the right input has no such column",
                    columns_shown(self._plain[RIGHT]),
                )
        if query.how == "left_anti":  # right rows are not emitted, and their order does not matter
            self._keep_of_right(())
        self._columns = AsofOutput(query, *self._plain, streaming=streaming)
        longest = query.left_time.max_uncertainty_us or 0, query.right_time.max_uncertainty_us or 0
        self._reach = Reach(query.direction, query.tolerance_us, longest, query.tie_columns)
        self._layout = layout_of(self._blocks, self._reach, f"{query.state_depends_on} {self._templates}")
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
        """One step of `protocol.Operator`.

        Cost: the rows that arrive and those that are settled, stored rows within reach of them, and their answers.
        """
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
            right = self._rows(RIGHT, fresh, rows.right_of(one_batch(left)))
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

    def _high_ends(self, left: pa.Table, right: pa.Table) -> IntArray:
        ends: IntArray = high_ends_of(self.query, self.keys, left, right)
        return ends

    def _emit_alone(self, left: pa.Table, step: Step) -> None:
        nobody = Partners(None, np.full(left.num_rows, -1, np.int32), None, np.ones(left.num_rows))
        step.output += self._columns.rows(left, self._rows(RIGHT, []), nobody, times(left)[1], step)

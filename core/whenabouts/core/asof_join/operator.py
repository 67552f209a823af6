"""Runs an `AsofJoin` over the blocks of one bucket of finite input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.arrays.record_batches import one_batch, table_of
from whenabouts.core.arrays.typing import BoolArray
from whenabouts.core.asof_join.answers import partners_of
from whenabouts.core.asof_join.output import AsofOutput
from whenabouts.core.asof_join.settings import LEFT, RIGHT
from whenabouts.core.errors import Code, InputError
from whenabouts.core.runtime.event_reader import EventReader
from whenabouts.core.runtime.keys import Keys
from whenabouts.core.runtime.option_checks import columns_shown
from whenabouts.core.runtime.protocol import NO_WATERMARK, Arrival, FlushMode, Rejected, SegmentStore, Step
from whenabouts.core.runtime.watermarks import drop_late

if TYPE_CHECKING:
    from whenabouts.core.asof_join.settings import AsofJoinSettings


class AsofJoinOperator:
    """The operator of an as-of join of finite inputs; see `protocol.Operator`.

    Raises InputError WA-1001 for an `order_by` column that the right input lacks.
    """

    needs_latest = False
    event_time = None

    def __init__(self, query: AsofJoinSettings, schemas: Sequence[pa.Schema]) -> None:
        self.query = query
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
        self._columns = AsofOutput(query, *plain)

    @property
    def output_schema(self) -> pa.Schema:
        """Left columns, right columns, `probability` and `none_probability`; `left_anti`: no right columns."""
        return self._columns.schema

    def rows_held(self, store: SegmentStore) -> int:
        """None: finite input leaves no state."""
        return 0

    def step(
        self,
        store: SegmentStore,
        arrivals: Sequence[Arrival],
        watermark_us: int,
        demand: FlushMode = FlushMode.NOTHING,
        latest_us: int = NO_WATERMARK,
    ) -> Step:
        """The one step of a bucket (`protocol.Operator`)."""
        step = Step()
        fresh = drop_late(self.readers, arrivals, watermark_us, step)
        left, right = (self._rows(input, fresh) for input in (LEFT, RIGHT))
        step.metrics[metrics.CORRELATIONS] += 1
        partners = partners_of(self.query, self.keys, left, right)
        if partners.rejected is not None:
            self._reject(left, partners.rejected, step)
        step.output += self._columns.rows(left, right, partners, step)
        return step

    def _reject(self, left: pa.Table, crowded: BoolArray, step: Step) -> None:
        """Left rows for which too many right rows may prevail; until now they counted as processed."""
        rows = one_batch(left.filter(pa.array(crowded)))
        step.rejected.append(Rejected(LEFT, Code.TOO_MANY_CANDIDATES, self.readers[LEFT].raw(rows)))
        step.metrics[metrics.REJECTED] += rows.num_rows
        step.metrics[metrics.PROCESSED] -= rows.num_rows

    def _rows(self, input: int, arrivals: Sequence[Arrival]) -> pa.Table:
        return table_of([block for of, block in arrivals if of == input], self._blocks[input])

"""The output columns of a join aggregate: the left ones, the aggregates, and on streams `event_time`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.arrays.record_batches import take_values
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.join_aggregate.settings import JoinAggregateSettings
from whenabouts.core.joins.output_columns import EVENT_TIME, Column, OwnColumns, event_times
from whenabouts.core.runtime.output_memory import Growing
from whenabouts.core.runtime.protocol import Step

if TYPE_CHECKING:
    from whenabouts.core.join_aggregate.answers import Answers

_EVENT_TIME = pa.timestamp("us", "UTC")


class AggregateOutput:
    """The output schema, and the rows. `types`: the fields of the aggregates.

    Raises QueryError WA-2009 for an aggregate that is named as a left column, and what `Aggregate.type_from` raises.
    """

    def __init__(self, query: JoinAggregateSettings, left: pa.Schema, right: pa.Schema, *, streaming: bool) -> None:
        self.types = pa.schema([pa.field(each.name, each.type_from(right)) for each in query.aggregates])
        event = [pa.field(EVENT_TIME, _EVENT_TIME)] if streaming else []
        self._own = OwnColumns(left, [*self.types, *event])
        self.schema = self._own.schema

    def rows(self, left: pa.Table, answers: Answers, event_us: IntArray | None, step: Step) -> Iterator[pa.RecordBatch]:
        """The rows that come out; counts them. `event_us`: on streams, the event time of each left row."""
        kept = None if answers.kept.all() else np.flatnonzero(answers.kept).astype(np.int32)
        extra: list[Column | None] = []
        instants = [] if event_us is None else [pa.array(event_times(event_us)).view(_EVENT_TIME)]
        for column in [*answers.columns, *instants]:
            extra.append(column if kept is None else take_values(column, kept))
        step.metrics[metrics.MATCHED] += left.num_rows if kept is None else len(kept)
        step.metrics[metrics.UNMATCHED] += answers.alone
        return Growing.after(step.output, "rows").counted(self._own.rows(left, kept, extra))

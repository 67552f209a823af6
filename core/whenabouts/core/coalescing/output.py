"""Coalesced tuples as rows: group and values of the first constituent, `valid_from`, `valid_to`, `n`."""

from __future__ import annotations

import pyarrow as pa

from whenabouts.core.arrays.record_batches import take_rows
from whenabouts.core.coalescing.columns import (
    COUNT,
    VALID_FROM,
    VALID_LAST,
    VALID_TO,
    WINDOW_END,
    time_array,
    window_end_type,
)
from whenabouts.core.coalescing.extents import FinalExtents, Runs
from whenabouts.core.coalescing.history_runs import RunsOfRows
from whenabouts.core.coalescing.settings import CoalescingSpec
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.runtime.output_memory import least_width


class RunOutput:
    """Builds output rows. Raises QueryError WA-2009 if a column has the name of a computed one."""

    def __init__(self, schema: pa.Schema, spec: CoalescingSpec, time: pa.DataType, *, valid_last: bool = False) -> None:
        self._names = (*spec.group, *spec.values)
        self.slides = spec.extents.slides
        self.time = pa.int64() if pa.types.is_null(time) else time
        fields = [pa.field(WINDOW_END, window_end_type(self.time))] if self.slides else []
        fields += [schema.field(name) for name in self._names]
        self.last = valid_last
        periods = [VALID_FROM, VALID_TO, *([VALID_LAST] if valid_last else [])]
        fields += [*(pa.field(name, self.time) for name in periods), pa.field(COUNT, pa.int64())]
        self.schema = pa.schema(fields)
        if len(set(self.schema.names)) < len(self.schema.names):
            raise QueryError(
                Code.COLUMN_CLASH,
                f"two output columns share a name: {', '.join(self.schema.names)}",
                f"{WINDOW_END}, {', '.join(periods)} and {COUNT} are computed: rename yours",
            )

    def of_extents(self, extents: FinalExtents) -> pa.RecordBatch:
        """The rows of all final extents."""
        runs, at_us = extents.runs(least_width(self.schema)), extents.ranges.at_us
        ends = [time_array(at_us[runs.range], self.schema.field(WINDOW_END).type)] if self.slides else []
        return self._batch([*ends, *extents.tuples.taken(runs.first, self._names)], runs)

    def of_rows(self, table: pa.Table, found: RunsOfRows) -> pa.RecordBatch:
        """The rows of runs that were found without an extent."""
        names = self._names if found.value is None else self._names[:-1]
        shown = table if found.groups is None else found.groups
        if found.group is None:
            columns = [take_rows(shown.column(name), found.row) for name in names]
        else:
            columns = [found.group]
        if found.value is not None:
            columns.append(found.value)
        return self._batch(columns, found.runs)

    def _batch(self, columns: list[pa.Array], runs: Runs) -> pa.RecordBatch:
        instants = [runs.start, runs.end, *([runs.last] if self.last else [])]
        periods = [time_array(each, self.time) for each in instants]
        return pa.RecordBatch.from_arrays([*columns, *periods, pa.array(runs.n)], schema=self.schema)

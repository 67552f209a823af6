"""Coalesced tuples as rows: group and values of the first constituent, `valid_from`, `valid_to`, `n`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.record_batches import one_chunk
from whenabouts.core.coalescing.columns import (
    COUNT,
    VALID_FROM,
    VALID_LAST,
    VALID_TO,
    WINDOW_END,
    time_array,
    window_end_type,
)
from whenabouts.core.coalescing.equivalence import comparable
from whenabouts.core.coalescing.extents import FinalExtents, Runs
from whenabouts.core.coalescing.settings import CoalescingSpec
from whenabouts.core.coalescing.tuples import groups_of
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.runtime.blocks import times
from whenabouts.core.runtime.keys import Keys
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

    def of_rows(self, table: pa.Table, runs: Runs) -> pa.RecordBatch:
        """The rows of runs whose `first` is a row index of a table."""
        first = pa.array(runs.first)
        return self._batch([one_chunk(table.column(name)).take(first) for name in self._names], runs)

    def _batch(self, columns: list[pa.Array], runs: Runs) -> pa.RecordBatch:
        instants = [runs.start, runs.end, *([runs.last] if self.last else [])]
        periods = [time_array(each, self.time) for each in instants]
        return pa.RecordBatch.from_arrays([*columns, *periods, pa.array(runs.n)], schema=self.schema)


def runs_of_ordered_rows(table: pa.Table, keys: Keys, values: Sequence[str]) -> Runs | None:
    """Runs of equal values in one pass over rows whose times increase in each group; None if one pass is not enough.

    It is not enough for rows out of order, several rows of a group at one time, null groups, several value columns, and
    a value column that has nulls or is not numeric. O(n).
    """
    from whenabouts.core.coalescing.kernels import runs_in_order_of_floats, runs_in_order_of_integers

    if len(values) != 1 or any(table.column(name).null_count for name in (*keys.of(0), *values)):
        return None
    type_ = table.schema.field(values[0]).type
    if not (pa.types.is_floating(type_) or pa.types.is_integer(type_) or pa.types.is_temporal(type_)):
        return None
    groups = groups_of(keys, table)
    value = comparable(table.column(values[0])).values
    size = table.num_rows
    first, start, end, n, last = (np.empty(size, np.int64) for _ in range(5))
    kernel = runs_in_order_of_floats if value.dtype == np.float64 else runs_in_order_of_integers
    found = kernel(times(table)[0], groups.codes, groups.low, groups.size, value, first, start, end, n, last)
    if found < 0:
        return None
    return Runs(np.zeros(0, np.int64), *(column[:found] for column in (first, start, end, n, last)))

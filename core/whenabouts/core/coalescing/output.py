"""Coalesced tuples as rows: group and values of the first constituent, `valid_from`, `valid_to`, `n`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.record_batches import one_chunk
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.coalescing.equivalence import comparable
from whenabouts.core.coalescing.extent_evaluator import Coalescing, Look, Runs
from whenabouts.core.coalescing.tuples import groups_of
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.runtime.event_reader import times
from whenabouts.core.runtime.keys import Keys
from whenabouts.core.runtime.output_memory import least_width

WINDOW_END = "window_end"
VALID_FROM = "valid_from"
VALID_TO = "valid_to"
COUNT = "n"


_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


class RunOutput:
    """Builds output rows. Raises QueryError WA-2009 where a column has the name of a computed one."""

    def __init__(self, schema: pa.Schema, how: Coalescing, time: pa.DataType) -> None:
        self._names = (*how.group, *how.values)
        self._slides = how.extents.slides
        self._time = pa.int64() if pa.types.is_null(time) else time
        fields = [pa.field(WINDOW_END, window_end_type(self._time))] if self._slides else []
        fields += [schema.field(name).remove_metadata() for name in self._names]
        fields += [pa.field(VALID_FROM, self._time), pa.field(VALID_TO, self._time), pa.field(COUNT, pa.int64())]
        self.schema = pa.schema(fields)
        if len(set(self.schema.names)) < len(self.schema.names):
            raise QueryError(
                Code.COLUMN_CLASH,
                f"two output columns share a name: {', '.join(self.schema.names)}",
                f"{WINDOW_END}, {VALID_FROM}, {VALID_TO} and {COUNT} are computed: rename yours",
            )

    def of_look(self, look: Look) -> pa.RecordBatch:
        """The rows of all extents of a look."""
        runs = look.runs(least_width(self.schema))
        ends = [time_array(look.ranges.at_us[runs.range], self.schema.field(WINDOW_END).type)] if self._slides else []
        return self._batch([*ends, *look.tuples.taken(runs.first, self._names)], runs)

    def of_rows(self, table: pa.Table, runs: Runs) -> pa.RecordBatch:
        """The rows of runs whose `first` is a row of a table."""
        first = pa.array(runs.first)
        return self._batch([one_chunk(table.column(name)).take(first) for name in self._names], runs)

    def _batch(self, columns: list[pa.Array], runs: Runs) -> pa.RecordBatch:
        periods = [time_array(runs.start, self._time), time_array(runs.end, self._time)]
        return pa.RecordBatch.from_arrays([*columns, *periods, pa.array(runs.n)], schema=self.schema)


def window_end_type(time: pa.DataType) -> pa.DataType:
    """The type of `window_end` beside a time column: a slide lies at a whole microsecond, in whatever unit rows have
    their times, and perhaps after the last time that there is in nanoseconds (2262).

    >>> window_end_type(pa.timestamp("ns", "UTC")), window_end_type(pa.int64())
    (TimestampType(timestamp[us, tz=UTC]), DataType(int64))
    """
    return pa.timestamp("us", time.tz) if pa.types.is_timestamp(time) else time


def time_array(us: IntArray, type_: pa.DataType) -> pa.Array:
    """Microseconds in the type of a time column.

    >>> time_array(np.array([2_000_000]), pa.timestamp("s")).cast(pa.int64()).to_pylist()
    [2]
    """
    if not pa.types.is_timestamp(type_):
        return pa.array(us)
    per_second = _PER_SECOND[type_.unit]
    ticks = us * 1000 if per_second > 1_000_000 else us if per_second == 1_000_000 else us // (1_000_000 // per_second)
    return pa.array(ticks).view(type_)


def runs_of_ordered_rows(table: pa.Table, keys: Keys, values: Sequence[str]) -> Runs | None:
    """Runs of equal values in one pass over rows whose times rise in each group; None where one pass will not do.

    That is: rows out of order, rows of one group at the same time, groups that are null, several value columns, or
    nulls or other than numbers in it. O(n).
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
    first, start, end, n = (np.empty(size, np.int64) for _ in range(4))
    kernel = runs_in_order_of_floats if value.dtype == np.float64 else runs_in_order_of_integers
    found = kernel(times(table)[0], groups.codes, groups.low, groups.size, value, first, start, end, n)
    if found < 0:
        return None
    return Runs(np.zeros(0, np.int64), *(column[:found] for column in (first, start, end, n)))

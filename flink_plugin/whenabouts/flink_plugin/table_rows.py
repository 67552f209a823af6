"""Blocks as the rows of a Table, which Flink makes from columns: Python makes no row.

A vectorised function of Flink returns as many rows as it receives. So each block is spread out first: its bytes in one
row, followed by empty rows, one for each further row of the block, which Flink makes from their number. One function
per column then fills them all. Nothing between the two may drop, add or move rows: both follow a stream that Flink's
optimiser does not see through.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.compute as pc
from pyflink.common import Types
from pyflink.table import DataTypes, Schema, StreamTableEnvironment, Table
from pyflink.table.expression import Expression
from pyflink.table.expressions import call, col, lit
from pyflink.table.types import DataType
from pyflink.table.udf import udf

from whenabouts.core.errors import Code, EngineError, QueryError
from whenabouts.core.runtime.changes import changes_column
from whenabouts.core.state.segment_codec import decode, encode
from whenabouts.flink_plugin.blocks import BatchFunction, Blocks, Read, ReadBlob, behind
from whenabouts.flink_plugin.column_types import table_type
from whenabouts.flink_plugin.retyping import retyped
from whenabouts.flink_plugin.row_packing import WAIT_MS, set_bundles
from whenabouts.flink_plugin.wire import blob_type

BLOB, TIMES = "f0", "f1"
"""Flink's names for the columns of a stream of pairs."""

EVENT_TIME = DataTypes.TIMESTAMP_LTZ(3)
"""The precision of a time attribute: milliseconds."""

LATER_DAYS = 730_485
"""Times are passed to Flink 2,000 years later, and shifted back there: it cannot read the microseconds of times before
1970 (`ArrowTimestampColumnVector` takes a remainder, which is then negative)."""

LATER = pa.scalar(dt.timedelta(days=LATER_DAYS), pa.duration("us"))

REPLICATE = "$REPLICATE_ROWS$1"
"""Flink's function that repeats a row; its planner uses it for EXCEPT ALL."""


_tables: WeakKeyDictionary[Blocks, Table] = WeakKeyDictionary()


def table_of(blocks: Blocks, tables: StreamTableEnvironment) -> Table:
    """Blocks as a Table of their job, filled by columns; a second call returns the same Table.

    If the blocks have an `event_time`, it is the Table's time attribute (in milliseconds, as Flink's are), under their
    watermark. Blocks with a column of changes (`whenabouts.core.runtime.changes`) become an updating Table without it.
    The function that fills the rows works in bundles of a quarter of a second, or less if the job, or
    `max_latency` of its queries, has less. Raises InputError WA-1002 for a column that Flink has no type for,
    QueryError WA-2006 if `tables` belongs to another job.
    """
    if blocks not in _tables:
        from whenabouts.flink_plugin.row_streams import table_of_changes  # it imports this module

        make = _table if changes_column(blocks.schema) is None else table_of_changes
        _tables[blocks] = make(blocks, tables)
    return _tables[blocks]


def _table(blocks: Blocks, tables: StreamTableEnvironment) -> Table:
    env = blocks.stream.get_execution_environment()
    if not tables._j_tenv.execEnv().equals(env._j_stream_execution_environment):
        hint = "make them of one: StreamTableEnvironment.create(env)"
        raise QueryError(Code.BAD_OPTION, "the blocks and the Table environment are of two jobs", hint)
    types, clock = {field.name: table_type(field) for field in blocks.schema}, Schema.new_builder()
    if blocks.event_time is not None:
        types[blocks.event_time] = EVENT_TIME
        clock = clock.watermark(blocks.event_time, "SOURCE_WATERMARK()")
    set_bundles(env, [tables], WAIT_MS)
    spread = blocks.stream.flat_map(_Spread(blocks.schema, blocks.read), Types.TUPLE([blob_type(), Types.LONG()]))
    rows = tables.from_data_stream(behind(spread, "spread", like=blocks.stream))
    rows = rows.join_lateral(call(REPLICATE, col(TIMES), lit(0)).alias("_wa_row"))
    columns = [_column(blocks.schema, index, type_).alias(name) for index, (name, type_) in enumerate(types.items())]
    return retyped(rows.select(*columns), types, clock, title=blocks.title)


def _column(schema: pa.Schema, index: int, type_: DataType) -> Expression:
    values = udf(_Values(schema, index, whole_ms=type_ == EVENT_TIME), result_type=type_, func_type="pandas")(col(BLOB))
    if pa.types.is_timestamp(schema.field(index).type):
        return values - lit(LATER_DAYS).days
    if pa.types.is_floating(schema.field(index).type):  # Flink reads a NaN among floats as a null
        not_numbers = udf(_NotNumbers(schema, index), result_type=DataTypes.STRING(), func_type="pandas")
        values = not_numbers(col(BLOB)).cast(type_).if_null(values)
    return values


class _Spread(BatchFunction):
    """Each blob once with the number 1, then an empty one with the number of its further rows."""

    def __init__(self, schema: pa.Schema, read: Read) -> None:
        super().__init__(read)
        self._schema = schema

    def flat_map(self, value: Any) -> Iterator[tuple[bytes, int]]:
        """The blobs of one element."""
        for data, rows in self.results(value, lambda batch: self._blob(value, batch)):
            if rows:
                yield data, 1
                yield b"", rows - 1

    def _blob(self, value: Any, batch: pa.RecordBatch) -> tuple[bytes, int]:
        data = bytes(value) if isinstance(self._read, ReadBlob) else encode(batch, self._schema)
        return data, batch.num_rows


@dataclass
class _Values:
    """A column of blocks that were spread out.

    A block may begin in one call and end in another: its remaining values wait here. At a checkpoint nothing waits,
    since all rows of a block come from one element. `whole_ms` rounds times down to milliseconds.
    """

    schema: pa.Schema
    index: int
    whole_ms: bool = False
    rest: pa.ChunkedArray | None = field(default=None, init=False)

    def __call__(self, blobs: Any) -> Any:
        """A pandas Series of the next values, as many as there are blobs, empty ones included."""
        values = self._next(blobs)
        return _series(pc.floor_temporal(values, unit="millisecond") if self.whole_ms else values, type(blobs))

    def _next(self, blobs: Any) -> pa.ChunkedArray:
        chunks = [] if self.rest is None else self.rest.chunks
        chunks += [decode(blob, self.schema).column(self.index) for blob in blobs if blob]
        values = pa.chunked_array(chunks, self.schema.field(self.index).type)
        if len(values) < len(blobs):
            raise EngineError(
                Code.STATE_FORMAT, "rows of a block have been lost on their way into a Table", "report this"
            )
        self.rest = values.slice(len(blobs))
        return values.slice(0, len(blobs))


class _NotNumbers(_Values):
    """The NaNs of a column of floats. (As text: Flink's planner turns a NaN in a query into a null.)"""

    def __call__(self, blobs: Any) -> Any:
        """A pandas Series of "NaN" and None."""
        return pc.if_else(pc.is_nan(self._next(blobs)), "NaN", None).to_pandas()


def _series(values: pa.ChunkedArray, make: Any) -> Any:
    """Values as pandas stores them without loss, except a NaN, which is null to Flink."""
    type_ = values.type
    if pa.types.is_timestamp(type_):
        later = pc.add(values.cast(pa.timestamp("us")), LATER)  # Flink uses the number of an instant
        return later.to_pandas()
    if values.null_count and (pa.types.is_integer(type_) or pa.types.is_boolean(type_)):
        return make(values.to_pylist(), dtype=object)
    return values.to_pandas(date_as_object=True)

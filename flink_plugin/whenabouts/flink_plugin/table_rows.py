"""Blocks as the rows of a Table, which Flink makes from columns: Python makes no row.

A vectorised function of Flink's gives as many rows as it takes. So each block is spread out first: its bytes in one row
and as many empty rows behind it as it has more rows. One function for each column then fills them all. Nothing may come
between the two that drops, adds or moves rows: both are behind a stream of Flink's own, through which no query of the
user's is optimised.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyflink.datastream import FlatMapFunction, RuntimeContext
from pyflink.java_gateway import get_gateway
from pyflink.table import DataTypes, Schema, StreamTableEnvironment, Table
from pyflink.table.expression import Expression
from pyflink.table.expressions import col
from pyflink.table.udf import udf
from pyflink.util.java_utils import get_java_class

from whenabouts.core.errors import Code, EngineError
from whenabouts.core.segments import decode
from whenabouts.flink_plugin.blocks import Blocks, beside
from whenabouts.flink_plugin.column_types import table_type
from whenabouts.flink_plugin.own_thread import runner
from whenabouts.flink_plugin.wire import blob_type

SPREAD = "f0"
"""What Flink calls the only column of a stream whose elements are no rows."""


def table_of(blocks: Blocks, tables: StreamTableEnvironment, event_time: str | None = None) -> Table:
    """A Table; the column `event_time` is its time attribute (in milliseconds, as Flink's are) under our watermark."""
    spread = beside(blocks.stream.flat_map(_Spread(blocks.schema), blob_type()), blocks.stream)
    columns = [_column(blocks.schema, place).alias(name) for place, name in enumerate(blocks.schema.names)]
    return _behind_a_stream(tables.from_data_stream(spread).select(*columns), blocks.schema, event_time)


def _column(schema: pa.Schema, place: int) -> Expression:
    type_ = table_type(schema.field(place))
    values = udf(_Values(schema, place), result_type=type_, func_type="pandas")(col(SPREAD))
    if pa.types.is_floating(schema.field(place).type):  # of floats, Flink takes a NaN for a null
        not_numbers = udf(_NotNumbers(schema, place), result_type=DataTypes.STRING(), func_type="pandas")
        values = not_numbers(col(SPREAD)).cast(type_).if_null(values)
    return values


def _behind_a_stream(table: Table, schema: pa.Schema, event_time: str | None) -> Table:
    """The same rows, in Flink's own form, as a Table that begins with them."""
    jvm, tables = get_gateway().jvm, table._t_env
    types = {field.name: table_type(field) for field in schema}
    columns = Schema.new_builder()
    if event_time is not None:
        types[event_time] = DataTypes.TIMESTAMP_LTZ(3)
        columns = columns.watermark(event_time, "SOURCE_WATERMARK()")
    for name, type_ in types.items():
        columns = columns.column(name, type_)
    table = table.select(*(col(name).cast(type_).alias(name) for name, type_ in types.items()))
    internal = table._j_table.getResolvedSchema().toPhysicalRowDataType()
    internal = internal.bridgedTo(get_java_class(jvm.org.apache.flink.table.data.RowData))
    rows = tables._j_tenv.toDataStream(table._j_table, internal)
    return Table(tables._j_tenv.fromDataStream(rows, columns.build()._j_schema), tables)


class _Spread(FlatMapFunction):
    """Blobs, each with empty ones behind it: as many elements as it has rows."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def open(self, runtime_context: RuntimeContext) -> None:
        """Called by Flink in every task before anything else."""
        self._runner = runner()

    def close(self) -> None:
        """Called by Flink when the task ends."""
        self._runner.stop()

    def flat_map(self, value: Any) -> Iterator[bytes]:
        """The elements of one blob."""
        blob = bytes(value)
        rows = self._runner.run(lambda: decode(blob, self._schema).num_rows)
        if rows:
            yield blob
            yield from repeat(b"", rows - 1)


@dataclass
class _Values:
    """A column of blocks that were spread out.

    A block may begin in one call and end in another: what is left of it waits here. A checkpoint finds nothing waiting,
    since all rows of a block come from one element.
    """

    schema: pa.Schema
    place: int
    rest: pa.ChunkedArray | None = field(default=None, init=False)

    def __call__(self, blobs: Any) -> Any:
        """A pandas Series of the next values, as many as there are blobs, empty ones included."""
        return _series(self._next(blobs), type(blobs))

    def _next(self, blobs: Any) -> pa.ChunkedArray:
        chunks = [] if self.rest is None else self.rest.chunks
        chunks += [decode(blob, self.schema).column(self.place) for blob in blobs if blob]
        values = pa.chunked_array(chunks, self.schema.field(self.place).type)
        if len(values) < len(blobs):
            raise EngineError(
                Code.STATE_FORMAT, "rows of a block have been lost on their way into a Table", "report this"
            )
        self.rest = values.slice(len(blobs))
        return values.slice(0, len(blobs))


class _NotNumbers(_Values):
    """Where a column of floats holds NaN. (As text: a NaN that stands in a query becomes a null in Flink's planner.)"""

    def __call__(self, blobs: Any) -> Any:
        """A pandas Series of "NaN" and None."""
        return pc.if_else(pc.is_nan(self._next(blobs)), "NaN", None).to_pandas()


def _series(values: pa.ChunkedArray, make: Any) -> Any:
    """Values as pandas keeps them without loss, save for a NaN, which is null to Flink."""
    type_ = values.type
    if pa.types.is_timestamp(type_):
        values = values.cast(pa.timestamp("us"))  # of an instant, Flink takes the number
    elif values.null_count and (pa.types.is_integer(type_) or pa.types.is_boolean(type_)):
        return make(values.to_pylist(), dtype=object)
    return values.to_pandas(date_as_object=True)

"""Blocks as the rows of a Table, which Flink makes from columns: Python makes no row.

Python writes each block as a stream of Arrow, and an operator in Java reads its rows (`RowsOfColumns.java`), in the
form in which Flink's own operators have them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.compute as pc
from pyflink.java_gateway import get_gateway
from pyflink.table import DataTypes, StreamTableEnvironment, Table

from whenabouts.core.errors import Code, QueryError
from whenabouts.core.runtime.changes import changes_column
from whenabouts.flink_plugin.blocks import BatchFunction, Blocks, Read, behind
from whenabouts.flink_plugin.column_types import table_type
from whenabouts.flink_plugin.java_operators import followed_by
from whenabouts.flink_plugin.retyping import internal_type, logical_type, table_of_internal
from whenabouts.flink_plugin.wire import blob_type

EVENT_TIME = DataTypes.TIMESTAMP_LTZ(3)
"""The precision of a time attribute: milliseconds."""

OPERATOR = "RowsOfColumns"

_tables: WeakKeyDictionary[Blocks, Table] = WeakKeyDictionary()


def table_of(blocks: Blocks, tables: StreamTableEnvironment) -> Table:
    """Blocks as a Table of their job, filled by columns; a second call returns the same Table.

    If the blocks have an `event_time`, it is the Table's time attribute (in milliseconds, as Flink's are), under their
    watermark. Blocks with a column of changes (`whenabouts.core.runtime.changes`) become an updating Table without it.
    Raises InputError WA-1002 for a column that Flink has no type for, QueryError WA-2006 if `tables` belongs to
    another job.
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
    types = {field.name: table_type(field) for field in blocks.schema}
    if blocks.event_time is not None:
        types[blocks.event_time] = EVENT_TIME
    times = [pa.types.is_timestamp(type_) for type_ in blocks.schema.types]
    stored = {
        name: DataTypes.BIGINT() if time else type_ for (name, type_), time in zip(types.items(), times, strict=True)
    }
    columns = blocks.stream.flat_map(_ToColumns(blocks.read, blocks.event_time), blob_type())
    columns = behind(columns, "spread", like=blocks.stream)._j_data_stream
    form, getter = logical_type(stored), get_gateway().jvm.org.apache.flink.table.data.RowData.createFieldGetter
    given = [form, *(each for n, time in enumerate(times) for each in (getter(form.getTypeAt(n), n), time))]
    uid, parallelism = f"{columns.getTransformation().getUid()}-rows", columns.getParallelism()
    rows = followed_by(columns, OPERATOR, given, uid, parallelism=parallelism, gives=internal_type(types))
    return table_of_internal(rows, types, tables, blocks.event_time, blocks.title)


class _ToColumns(BatchFunction):
    """Blocks as streams of Arrow, times as microseconds; `event_time` is rounded down to milliseconds."""

    def __init__(self, read: Read, event_time: str | None) -> None:
        super().__init__(read)
        self._event_time = event_time

    def flat_map(self, value: Any) -> Iterator[bytes]:
        """The stream of each batch of an element."""
        return (stream for stream in self.results(value, self._stream) if stream)

    def _stream(self, batch: pa.RecordBatch) -> bytes:
        if not batch.num_rows:
            return b""
        columns = [self._stored(batch, field) for field in batch.schema]
        rows = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_batch(rows)
        stream: bytes = sink.getvalue().to_pybytes()
        return stream

    def _stored(self, batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
        values = batch.column(field.name)
        if not pa.types.is_timestamp(field.type):
            return values
        if field.name == self._event_time:
            values = pc.floor_temporal(values, unit="millisecond")
        return values.cast(pa.timestamp("us", field.type.tz)).cast(pa.int64())

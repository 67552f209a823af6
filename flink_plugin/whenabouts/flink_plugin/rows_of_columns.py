"""Blocks as rows that Flink makes from columns: Python makes no row.

Python writes each block as a stream of Arrow, and an operator in Java reads its rows (`RowsOfColumns.java`), in the
form in which Flink's own operators have them, or in that of the DataStream API.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyflink.datastream import DataStream
from pyflink.java_gateway import get_gateway
from pyflink.table import DataTypes
from pyflink.table.types import DataType

from whenabouts.core.arrays.ticks import as_ticks, in_unit
from whenabouts.core.runtime.changes import OPS, changes_column
from whenabouts.flink_plugin.blocks import BatchFunction, Blocks, Read, behind, uid_behind
from whenabouts.flink_plugin.column_types import row_type, table_type
from whenabouts.flink_plugin.java_operators import followed_by
from whenabouts.flink_plugin.retyping import converter_of, internal_type, logical_type
from whenabouts.flink_plugin.wire import blob_type

OPERATOR = "RowsOfColumns"

VALUE, TIME, DECIMAL, KIND = range(4)
"""What a column means to `RowsOfColumns.java`."""


def internal_rows_of(blocks: Blocks, types: Mapping[str, DataType]) -> DataStream:
    """The rows in Flink's internal form; the column `event_time` is rounded down to milliseconds."""
    meanings = internal_meanings(blocks.schema)
    stored = {name: DataTypes.BIGINT() if meanings[name] == TIME else type_ for name, type_ in types.items()}
    columns = _columns(blocks, "spread", meanings, blocks.event_time)
    uid = f"{columns.getTransformation().getUid()}-rows"
    return _rows(columns, stored, meanings, uid, gives=internal_type(types))


def external_rows_of(blocks: Blocks) -> DataStream:
    """The rows as `Types.ROW_NAMED`; the column of changes, if there is one, becomes their kind. Raises InputError
    WA-1002 for a column that Flink has no type for."""
    changes = changes_column(blocks.schema)
    kept = pa.schema([field for field in blocks.schema if field.name != changes])
    gives = row_type(kept).get_java_type_info()
    meanings = {field.name: _meaning(field.type) for field in kept}
    plain = {field.name: DataTypes.STRING() if meanings[field.name] == DECIMAL else table_type(field) for field in kept}
    stored = {name: DataTypes.BIGINT() if meanings[name] == TIME else type_ for name, type_ in plain.items()}
    if changes is not None:
        meanings, stored = meanings | {changes: KIND}, stored | {changes: DataTypes.TINYINT()}
    columns = _columns(blocks, "row-columns", meanings)
    uid = uid_behind(blocks.stream, "rows")
    return _rows(columns, stored, meanings, uid, gives=gives, converter=converter_of(plain))


def internal_meanings(schema: pa.Schema) -> dict[str, int]:
    """What columns mean to `RowsOfColumns.java` where rows are in Flink's internal form."""
    return {field.name: TIME if pa.types.is_timestamp(field.type) else VALUE for field in schema}


def _meaning(type_: pa.DataType) -> int:
    """Decimals are texts: the DataStream API has some that are too wide for Flink's Tables."""
    return TIME if pa.types.is_timestamp(type_) else DECIMAL if pa.types.is_decimal(type_) else VALUE


def _columns(blocks: Blocks, what: str, meanings: Mapping[str, int], event_time: str | None = None) -> Any:
    function = _ToColumns(blocks.read, dict(meanings), event_time)
    return behind(blocks.stream.flat_map(function, blob_type()), what, like=blocks.stream)._j_data_stream


def _rows(
    columns: Any,
    stored: Mapping[str, DataType],
    meanings: Mapping[str, int],
    uid: str,
    *,
    gives: Any,
    converter: Any = None,
) -> DataStream:
    form, getter = logical_type(stored), get_gateway().jvm.org.apache.flink.table.data.RowData.createFieldGetter
    fields = (each for n, name in enumerate(stored) for each in (getter(form.getTypeAt(n), n), meanings[name]))
    given, parallelism = [form, converter, *fields], columns.getParallelism()
    return followed_by(columns, OPERATOR, given, uid, parallelism=parallelism, gives=gives)


class _ToColumns(BatchFunction):
    """Blocks as streams of Arrow: times as microseconds, decimals as text, the column of changes as a number.

    `event_time` is rounded down to milliseconds.
    """

    def __init__(self, read: Read, meanings: dict[str, int], event_time: str | None) -> None:
        super().__init__(read)
        self._meanings, self._event_time = meanings, event_time

    def flat_map(self, value: Any) -> Iterator[bytes]:
        """The stream of each batch of an element."""
        return (stream for stream in self.results(value, self._stream) if stream)

    def _stream(self, batch: pa.RecordBatch) -> bytes:
        if not batch.num_rows:
            return b""
        columns = [self._stored(batch.column(name), name) for name in self._meanings]
        rows = pa.RecordBatch.from_arrays(columns, names=list(self._meanings))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_batch(rows)
        stream: bytes = sink.getvalue().to_pybytes()
        return stream

    def _stored(self, values: pa.Array, name: str) -> pa.Array:
        meaning = self._meanings[name]
        if meaning == KIND:
            return pc.index_in(values, value_set=pa.array(OPS)).cast(pa.int8())
        if meaning == DECIMAL:
            return values.cast(pa.string())
        if meaning == VALUE:
            return values
        times = in_unit(values, "ms") if name == self._event_time else values
        return as_ticks(in_unit(times, "us"))

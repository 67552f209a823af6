"""Rows in and rows out: Tables and DataStreams of rows as streams of blocks, and back.

Rows are gathered into columns by an operator in Java (`ColumnsOfRows.java`), which has Flink's own writers of Arrow.
Nothing waits in it at a checkpoint, so nothing can be lost. A DataStream of rows is converted to a Table first, without
Python. Another operator in Java makes rows of columns (`rows_of_columns`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.compute as pc
from pyflink.datastream import DataStream, ProcessFunction, StreamExecutionEnvironment
from pyflink.java_gateway import get_gateway
from pyflink.table import DataTypes, Schema, StreamTableEnvironment, Table
from pyflink.table.expressions import col

from whenabouts.core.errors import Code, InputError
from whenabouts.core.hosting.element_watermark import LEAST_MS
from whenabouts.core.runtime.changes import changes_column
from whenabouts.core.runtime.time_columns import warn_of_digits
from whenabouts.flink_plugin.blocks import Blocks, named
from whenabouts.flink_plugin.changelogs import of_rows_only, rows_only
from whenabouts.flink_plugin.column_types import arrow_schema_of_rows, arrow_schema_of_table, table_type
from whenabouts.flink_plugin.java_operators import followed_by
from whenabouts.flink_plugin.retyping import cut_to_microseconds, internal_rows
from whenabouts.flink_plugin.row_packing import GATHER_MS, LOST_ASSIGNER, bundle_of, no_event_time
from whenabouts.flink_plugin.rows_of_columns import external_rows_of
from whenabouts.flink_plugin.table_rows import table_of
from whenabouts.flink_plugin.wire import blob_type
from whenabouts.flink_plugin.worker_ends import let_workers_end

ROWTIME, OPERATOR = "_wa_rowtime", "ColumnsOfRows"

_rows: WeakKeyDictionary[Blocks, DataStream] = WeakKeyDictionary()
_blocks: WeakKeyDictionary[Table | DataStream, Blocks] = WeakKeyDictionary()


def blocks_of(
    source: Blocks | Table | DataStream, name: str, *, event_time: bool = False, gather_ms: int = GATHER_MS
) -> Blocks:
    """Any input as a stream of blocks; `name` begins the names of its operators.

    `event_time`: rows must have an event time of their own, and it is kept. `gather_ms`: how long rows may be gathered.
    Raises InputError WA-1002 for columns that have no Arrow type, WA-1065 for a Table with updates, EngineError WA-3021
    for a Table without event time if `event_time` is set.
    """
    if isinstance(source, Blocks):
        return source
    if isinstance(source, DataStream):
        schema = arrow_schema_of_rows(source)
        source = rows_only(source, name)
        return _packed(_table_of_rows(source, schema, name, event_time=event_time), schema, name, gather_ms)
    if event_time and not _time_attributes(source):
        raise no_event_time(name, "give it a time attribute: a column with WATERMARK FOR")
    with of_rows_only(name):
        return _packed(source, arrow_schema_of_table(source), name, gather_ms)


def environment_of(source: Blocks | Table | DataStream) -> StreamExecutionEnvironment:
    """The job of an input; its workers may then end in this process. Raises InputError WA-1062 for a Table without."""
    let_workers_end()
    if isinstance(source, Table):
        if not isinstance(source._t_env, StreamTableEnvironment):
            raise InputError(
                Code.NOT_AN_INPUT,
                "the Table belongs to a TableEnvironment, which has no DataStreams",
                "make it in a StreamTableEnvironment: create(env), or create(env, EnvironmentSettings.in_batch_mode())",
            )
        return StreamExecutionEnvironment(source._t_env._j_tenv.execEnv())
    return stream_of(source).get_execution_environment()


def stream_of(source: Blocks | DataStream) -> DataStream:
    """The DataStream of an input that has one."""
    return source.stream if isinstance(source, Blocks) else source


def as_given(blocks: Blocks, like: Blocks | Table | DataStream) -> Blocks | Table | DataStream:
    """A stream of blocks in the form of an input."""
    if isinstance(like, Blocks):
        return blocks
    form = table_of(blocks, like._t_env) if isinstance(like, Table) else rows_of(blocks)
    _blocks[form] = blocks
    return form


def blocks_behind(form: Table | DataStream) -> Blocks | None:
    """The blocks from which `as_given` made a Table or a stream, or None."""
    return _blocks.get(form)


def rows_of(blocks: Blocks) -> DataStream:
    """Blocks as a DataStream of `Types.ROW_NAMED`, one element per row; a second call returns the same stream.

    Elements keep the event time of their block. The column of changes (`whenabouts.core.runtime.changes`), if there is
    one, becomes their `RowKind`, as `from_changelog_stream` reads it. Raises InputError WA-1002 for a column that Flink
    has no type for. Flink makes the rows from columns, in the JVM (`rows_of_columns`).
    """
    if blocks not in _rows:
        _rows[blocks] = external_rows_of(blocks)
    return _rows[blocks]


@dataclass(frozen=True)
class ReadColumns:
    """Reads what `ColumnsOfRows.java` gives: a stream of Arrow, whose columns are cast to the schema.

    Its last columns say which values of the columns `cut` lost digits.
    """

    schema: pa.Schema
    cut: tuple[str, ...] = ()
    _told: set[str] = field(default_factory=set, init=False)

    def __call__(self, stream: Any) -> Iterator[pa.RecordBatch]:
        """Record batches of the schema, with a warning (WA-1075) for a column's first batch that lost digits."""
        for batch in pa.ipc.open_stream(bytes(stream)):
            for name, lost in zip(self.cut, batch.columns[batch.num_columns - len(self.cut) :], strict=True):
                self._tell(name, lost)
            columns = [values.cast(each.type) for values, each in zip(batch.columns, self.schema, strict=False)]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _tell(self, name: str, lost: pa.Array) -> None:
        if name not in self._told and (n := pc.sum(lost).as_py()):
            warn_of_digits(n, f" of the first rows in {name!r} that have such")
            self._told.add(name)


def table_of_changes(blocks: Blocks, tables: StreamTableEnvironment) -> Table:
    """Blocks of changes as an updating Table."""
    types = {field.name: table_type(field) for field in blocks.schema if field.name != changes_column(blocks.schema)}
    columns = [col(name).cast(type_).alias(name) for name, type_ in types.items()]
    return tables.from_changelog_stream(rows_of(blocks)).select(*columns)


def _table_of_rows(rows: DataStream, schema: pa.Schema, name: str, *, event_time: bool) -> Table:
    """A Table of a stream of rows, its times in microseconds; it keeps the rows' event time if that is asked for."""
    tables = StreamTableEnvironment.create(rows.get_execution_environment())
    types = {field.name: table_type(field) for field in schema if pa.types.is_timestamp(field.type)}
    columns = [col(name).cast(types[name]).alias(name) if name in types else col(name) for name in schema.names]
    if not event_time:
        return tables.from_data_stream(rows).select(*columns)
    stamped = named(rows.process(_HasEventTime(name), rows.get_type()), f"{name}-event-times", like=rows)
    clock = Schema.new_builder().column_by_metadata(ROWTIME, DataTypes.TIMESTAMP_LTZ(3), "rowtime")
    clocked = tables.from_data_stream(stamped, clock.watermark(ROWTIME, "SOURCE_WATERMARK()").build())
    return clocked.select(*columns, col(ROWTIME))


def _packed(table: Table, schema: pa.Schema, name: str, gather_ms: int) -> Blocks:
    """The rows of a Table, whose first columns have the schema, packed in order of arrival."""
    columns = [str(column) for column in table._j_table.getResolvedSchema().getColumnNames()]
    casts = {each.name: col(each.name).cast(table_type(each)).alias(each.name) for each in _cast(table, schema)}
    plain = table.select(*(casts.get(column, col(column)) for column in columns)) if casts else table
    rows, type_ = internal_rows(plain), plain._j_table.getResolvedSchema().toSourceRowDataType().getLogicalType()
    written, finer = cut_to_microseconds(type_)
    given = [written, *bundle_of(table, gather_ms), *(_getters(type_, finer) if finer else ())]
    bytes_, uid = blob_type().get_java_type_info(), f"{name}-columns"
    stream = followed_by(rows, OPERATOR, given, uid, parallelism=rows.getParallelism(), gives=bytes_)
    return Blocks(stream, schema, ReadColumns(schema, tuple(columns[place] for place in finer)))


def _getters(type_: Any, finer: Sequence[int]) -> Iterator[object]:
    """For each column of rows, what reads it, and whether it is one of the finer times."""
    getter = get_gateway().jvm.org.apache.flink.table.data.RowData.createFieldGetter
    for place in range(type_.getFieldCount()):
        yield from (getter(type_.getTypeAt(place), place), place in finer)


def _cast(table: Table, schema: pa.Schema) -> Iterator[pa.Field]:
    """Columns of texts and bytes of a fixed length, of the time of processing, which is no value yet, and all time
    attributes but the first: a stream has one, and its watermark holds for all of them."""
    more = _time_attributes(table)[1:]
    types = get_gateway().jvm.org.apache.flink.table.types.logical.utils.LogicalTypeChecks
    columns = table._j_table.getResolvedSchema().getColumns()
    for wanted, column in zip(schema, columns, strict=False):
        type_ = column.getDataType().getLogicalType()
        fixed = str(type_.getTypeRoot()) in ("CHAR", "BINARY")
        if fixed or wanted.name in more or types.isProctimeAttribute(type_):
            yield wanted


def _time_attributes(table: Table) -> list[str]:
    """Columns that are event time to Flink. (The schema of a query's result shows no watermarks.)"""
    types = get_gateway().jvm.org.apache.flink.table.types.logical.utils.LogicalTypeChecks
    columns = table._j_table.getResolvedSchema().getColumns()
    return [
        str(column.getName()) for column in columns if types.isRowtimeAttribute(column.getDataType().getLogicalType())
    ]


class _HasEventTime(ProcessFunction):
    """Passes rows through. Raises EngineError WA-3021 for one without a timestamp."""

    def __init__(self, input: str) -> None:
        self._input = input

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        """The row."""
        if ctx.timestamp() in (None, LEAST_MS):
            raise no_event_time(self._input, LOST_ASSIGNER)
        yield value

"""Blocks as the rows of a Table, in the form in which Flink's own operators have them."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from pyflink.table import DataTypes, StreamTableEnvironment, Table

from whenabouts.core.errors import Code, QueryError
from whenabouts.core.runtime.changes import changes_column
from whenabouts.flink_plugin.blocks import Blocks
from whenabouts.flink_plugin.column_types import table_type
from whenabouts.flink_plugin.retyping import table_of_internal
from whenabouts.flink_plugin.rows_of_columns import internal_rows_of

EVENT_TIME = DataTypes.TIMESTAMP_LTZ(3)
"""The precision of a time attribute: milliseconds."""

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
    rows = internal_rows_of(blocks, types)
    return table_of_internal(rows, types, tables, blocks.event_time, blocks.title)

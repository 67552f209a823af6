"""Flink's schemas for those who plan queries before they have streams."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyflink.datastream import DataStream
from pyflink.table import Table, TableSchema
from pyflink.table.catalog import ResolvedSchema

from whenabouts.core.errors import Code, QueryError
from whenabouts.flink_plugin.column_types import arrow_schema_of_rows, arrow_schema_of_table, arrow_schema_of_types


def arrow_schema_of(given: Any) -> pa.Schema:
    """The columns that a query has of a Table or a DataStream, or of a Table with this schema.

    Raises QueryError WA-2006 for anything else, InputError WA-1002 for a type that Arrow lacks.
    """
    if isinstance(given, Table):
        return arrow_schema_of_table(given)
    if isinstance(given, DataStream):
        return arrow_schema_of_rows(given)
    if isinstance(given, ResolvedSchema):
        return arrow_schema_of_types(dict(zip(given.get_column_names(), given.get_column_data_types(), strict=True)))
    if isinstance(given, TableSchema):
        return arrow_schema_of_types(dict(zip(given.get_field_names(), given.get_field_data_types(), strict=True)))
    raise QueryError(
        Code.BAD_OPTION, f"a {type(given).__name__} is given as a schema", "give table.get_resolved_schema()"
    )

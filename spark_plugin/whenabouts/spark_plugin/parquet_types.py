"""Arrow tables as Spark reads them from Parquet: columns in the nearest type that Spark has, and back."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from whenabouts.core.arrays.plain_types import plain_table
from whenabouts.core.arrays.ticks import in_unit
from whenabouts.spark_plugin.arrow_types import cast_exactly, in_spark_types


def for_spark(table: pa.Table, times: Collection[str] = ()) -> pa.Table:
    """Columns whose types Spark does not read from Parquet, in the nearest type that it does.

    `times`: columns in which digits below a microsecond are cut, as the core does with times. Raises
    InputError WA-1067 for other values that Spark's types do not hold.

    >>> for_spark(pa.table({"a": pa.array(["x"]).dictionary_encode(), "b": pa.nulls(1)})).schema.types
    [DataType(string), DataType(string)]
    """
    table, schema = plain_table(table), in_spark_types(table.schema)
    columns = [
        _for_spark(column, field, cut=field.name in times) for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def from_spark(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The types of the local engine's result; the inverse of `for_spark`.

    >>> from_spark(pa.table({"b": pa.array([None], pa.string())}), pa.schema({"b": pa.null()})).schema.types
    [DataType(null)]
    """
    columns = [
        pa.chunked_array([pa.nulls(table.num_rows)]) if pa.types.is_null(field.type) else column.cast(field.type)
        for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _for_spark(column: pa.ChunkedArray, field: pa.Field, *, cut: bool) -> pa.ChunkedArray:
    if cut and pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        column = in_unit(column, "us")
    return cast_exactly(column, field)

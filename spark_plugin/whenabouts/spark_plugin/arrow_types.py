"""Schemas between Spark and Arrow: the Arrow schema of an input, and the Spark types of an output.

A TIMESTAMP is an instant and always reaches the query as timestamp[us, UTC], whatever the session's time zone;
TIMESTAMP_NTZ is a timestamp without zone.
"""

from __future__ import annotations

from collections.abc import Iterable
from inspect import signature
from typing import cast

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_type
from pyspark.sql.types import DataType, StructField, StructType

from whenabouts.core.arrays.plain_types import plain_type
from whenabouts.core.arrays.ticks import in_unit
from whenabouts.core.errors import Code, InputError

_UTC = {"timezone": "UTC"} if "timezone" in signature(to_arrow_type).parameters else {}
"""Spark 4.1 uses UTC for instants by itself, 4.3 needs the zone."""


def arrow_schema(df: DataFrame, name: str) -> pa.Schema:
    """The Arrow schema in which a DataFrame's rows reach the operator.

    Raises InputError WA-1002 for a column whose type cannot leave the JVM in Arrow: intervals of months, for example,
    and `array()`, whose elements have no type.
    """
    return pa.schema(arrow_fields(df.schema.fields, name))


def arrow_fields(columns: Iterable[StructField], name: str) -> list[pa.Field]:
    """As `arrow_schema`, for single columns."""
    fields = []
    for field in columns:
        try:
            fields.append(pa.field(field.name, _arrow_type(field.dataType), field.nullable))
        except (PySparkException, ValueError) as error:  # Arrow has no VOID in an `array()` or `map()`, never null
            raise InputError(
                Code.WRONG_TYPE,
                f"column {field.name!r} of the {name} input is {field.dataType.simpleString()}",
                "Spark cannot hand this type to Python: cast or drop the column",
            ) from error
    return fields


def spark_fields(schema: pa.Schema) -> list[StructField]:
    """The Spark columns of an Arrow schema; all are nullable, even if the inputs were not.

    Raises InputError WA-1002 for a type that Spark does not have.
    """
    return [StructField(field.name, _spark_type(field), nullable=True) for field in schema]


def _spark_type(field: pa.Field) -> DataType:
    try:
        found = from_arrow_schema(pa.schema([field]), prefer_timestamp_ntz=True).fields[0].dataType
        _arrow_type(found)  # not of decimals with more than 38 digits
        return found
    except (PySparkException, ValueError) as error:
        raise InputError(
            Code.WRONG_TYPE, f"column {field.name!r} is {field.type}", "Spark has no such type: cast or drop the column"
        ) from error


def worker_schema(schema: StructType) -> pa.Schema:
    """The Arrow types in which Spark accepts rows of this schema from Python."""
    return pa.schema([pa.field(field.name, _arrow_type(field.dataType), field.nullable) for field in schema.fields])


_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.null(): pa.string(),
    pa.date64(): pa.date32(),
    pa.time32("s"): pa.time64("us"),
    pa.time32("ms"): pa.time64("us"),
}


def in_spark_types(schema: pa.Schema) -> pa.Schema:
    """The nearest types that Spark has, also inside of nested columns; they hold every value except nanoseconds.

    Types that Spark has none for stay as they are: `spark_fields` refuses them.

    >>> in_spark_types(pa.schema({"a": pa.uint8(), "b": pa.null(), "t": pa.timestamp("ns", "Europe/Berlin")})).types
    [DataType(int16), DataType(string), TimestampType(timestamp[us, tz=Europe/Berlin])]
    >>> in_spark_types(pa.schema({"a": pa.list_(pa.timestamp("ns"))})).types
    [ListType(list<item: timestamp[us]>)]
    >>> in_spark_types(pa.schema({"a": pa.date64(), "b": pa.dictionary(pa.int8(), pa.string())})).types
    [DataType(date32[day]), DataType(string)]
    """
    return pa.schema([pa.field(field.name, _in_spark(plain_type(field.type)), field.nullable) for field in schema])


def _in_spark(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(type_):
        return pa.timestamp("us", type_.tz)
    if pa.types.is_struct(type_):
        return pa.struct([_field_in_spark(type_.field(index)) for index in range(type_.num_fields)])
    if pa.types.is_map(type_):
        key, item = _field_in_spark(type_.key_field), _field_in_spark(type_.item_field)
        return pa.map_(key, item, keys_sorted=type_.keys_sorted)
    if pa.types.is_fixed_size_list(type_):
        return pa.list_(_field_in_spark(type_.value_field), type_.list_size)
    if pa.types.is_large_list(type_):
        return pa.large_list(_field_in_spark(type_.value_field))
    if pa.types.is_list(type_):
        return pa.list_(_field_in_spark(type_.value_field))
    return _WIDER.get(type_, type_)


def _field_in_spark(field: pa.Field) -> pa.Field:
    return field.with_type(_in_spark(field.type))


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch in exactly these types (time zone labels and nullability of nested fields may differ).

    Timestamps are rounded down to microseconds. Raises InputError WA-1067 for other values that would change.
    """
    columns = [
        column if column.type == field.type else _conform(column, field)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _conform(column: pa.Array, field: pa.Field) -> pa.Array:
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        column = in_unit(column, "us")
    return cast_exactly(column, field)


def cast_exactly(column: pa.Array | pa.ChunkedArray, field: pa.Field) -> pa.Array | pa.ChunkedArray:
    """A column in a type that Spark has. Raises InputError WA-1067 if that would change a value, at any depth."""
    try:
        found = column.cast(field.type)
        if pa.types.is_date64(column.type) and not found.cast(column.type).equals(column):
            raise pa.ArrowInvalid("not all of its values are whole days")
        return found
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(
            Code.VALUE_DOES_NOT_FIT,
            f"column {field.name!r} is {column.type}, and Spark, which has {field.type}, would change it: {error}",
            "run it on --engine local, or round the column",
        ) from error


def _arrow_type(spark_type: DataType) -> pa.DataType:
    return cast(pa.DataType, to_arrow_type(spark_type, **_UTC))  # type: ignore[arg-type]  # 4.1's signature has no timezone

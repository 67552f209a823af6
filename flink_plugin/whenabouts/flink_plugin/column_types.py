"""Column types between Arrow and Flink: the Arrow schema of an input, and the Flink types of an output.

TIMESTAMP_LTZ is an instant and reaches the query as timestamp[us, UTC]; TIMESTAMP is a timestamp without zone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
from pyflink.common import Types
from pyflink.common.typeinfo import ExternalTypeInfo, LocalTimeTypeInfo, RowTypeInfo, TypeInformation
from pyflink.datastream import DataStream
from pyflink.table import DataTypes, Table
from pyflink.table import types as table_types
from pyflink.table.types import DataType, _from_java_data_type
from pyflink.util.exceptions import TableException

from whenabouts.core.errors import Code, InputError

_INSTANT = pa.timestamp("us", "UTC")
_WALL_TIME = pa.timestamp("us")
_TIME = LocalTimeTypeInfo.TimeType


class _Plain(NamedTuple):
    """A type without parameters: its names in Arrow, SQL and the DataStream API."""

    arrow: pa.DataType
    table: Callable[[], DataType]
    row: Callable[[], TypeInformation]


_PLAIN = (
    _Plain(pa.bool_(), DataTypes.BOOLEAN, Types.BOOLEAN),
    _Plain(pa.int8(), DataTypes.TINYINT, Types.BYTE),
    _Plain(pa.int16(), DataTypes.SMALLINT, Types.SHORT),
    _Plain(pa.int32(), DataTypes.INT, Types.INT),
    _Plain(pa.int64(), DataTypes.BIGINT, Types.LONG),
    _Plain(pa.float32(), DataTypes.FLOAT, Types.FLOAT),
    _Plain(pa.float64(), DataTypes.DOUBLE, Types.DOUBLE),
    _Plain(pa.string(), DataTypes.STRING, Types.STRING),
    _Plain(pa.binary(), DataTypes.BYTES, lambda: Types.PRIMITIVE_ARRAY(Types.BYTE())),
    _Plain(pa.date32(), DataTypes.DATE, lambda: LocalTimeTypeInfo(_TIME.LOCAL_DATE)),
    _Plain(pa.time32("s"), lambda: DataTypes.TIME(0), lambda: LocalTimeTypeInfo(_TIME.LOCAL_TIME)),
    _Plain(pa.time32("ms"), lambda: DataTypes.TIME(3), lambda: LocalTimeTypeInfo(_TIME.LOCAL_TIME)),
    _Plain(_WALL_TIME, lambda: DataTypes.TIMESTAMP(6), lambda: LocalTimeTypeInfo(_TIME.LOCAL_DATE_TIME)),
    _Plain(_INSTANT, lambda: DataTypes.TIMESTAMP_LTZ(6), Types.INSTANT),
)

_LIKE_PLAIN: dict[type[DataType], pa.DataType] = {
    table_types.TimestampType: _WALL_TIME,
    table_types.LocalZonedTimestampType: _INSTANT,
    table_types.VarCharType: pa.string(),
    table_types.CharType: pa.string(),
    table_types.VarBinaryType: pa.binary(),
    table_types.BinaryType: pa.binary(),
}


def arrow_schema_of_table(table: Table) -> pa.Schema:
    """The Arrow schema in which a Table's rows reach the operator. Raises InputError WA-1002 for a type without one."""
    columns = table._j_table.getResolvedSchema().getColumns()
    return arrow_schema_of_types({str(column.getName()): _data_type(column) for column in columns})


def arrow_schema_of_types(types: Mapping[str, DataType]) -> pa.Schema:
    """As `arrow_schema_of_table`, for columns of these types."""
    return pa.schema([pa.field(name, _arrow_type(name, type_), type_._nullable) for name, type_ in types.items()])


def _data_type(column: Any) -> DataType:
    """The type of a Table's column; PyFlink has none for some of Flink's (VARIANT)."""
    try:
        return _from_java_data_type(column.getDataType())
    except TypeError:
        raise _lacking(str(column.getName()), str(column.getDataType())) from None


def arrow_schema_of_rows(rows: DataStream) -> pa.Schema:
    """The Arrow schema of a DataStream of named rows. Raises InputError WA-1002 for a type without one."""
    try:
        type_ = rows.get_type()
    except (TypeError, TableException):
        raise InputError(
            Code.WRONG_TYPE,
            f"PyFlink does not know the type of the stream's elements: {rows._j_data_stream.getType()}",
            "give the Table that the stream was made of, or cast before to_data_stream: a TIMESTAMP_LTZ to "
            "TIMESTAMP_LTZ(3), a nested column to text",
        ) from None
    if isinstance(type_, ExternalTypeInfo):  # in a stream that was a Table
        type_ = type_._type_info
    if not isinstance(type_, RowTypeInfo):
        raise InputError(
            Code.WRONG_TYPE,
            f"the stream's elements are {type_}",
            "give rows with names: Types.ROW_NAMED(names, types); or a Table, or Blocks",
        )
    known = {str(plain.row()): plain.arrow for plain in _PLAIN} | {str(Types.SQL_TIMESTAMP()): _WALL_TIME}
    known[str(Types.SQL_DATE())] = pa.date32()
    known.pop(str(LocalTimeTypeInfo(_TIME.LOCAL_TIME)))  # a Table of them would drop their microseconds
    fields = []
    for name, field in zip(type_.get_field_names(), type_.get_field_types(), strict=True):
        if str(field) == str(Types.BIG_DEC()):
            raise InputError(
                Code.WRONG_TYPE,
                f"column {name!r} is a decimal, of which a DataStream does not know precision and scale",
                "give a Table, whose DECIMAL has both, or make it text or a whole number of the smallest unit",
            )
        if str(field) not in known:
            raise _lacking(name, str(field))
        fields.append(pa.field(name, known[str(field)]))
    return pa.schema(fields)


def table_type(field: pa.Field) -> DataType:
    """The SQL type of an output column. Raises InputError WA-1002 for a type that SQL lacks."""
    if pa.types.is_decimal128(field.type):
        return DataTypes.DECIMAL(field.type.precision, field.type.scale)
    return _plain(field).table()


def row_type(schema: pa.Schema) -> TypeInformation:
    """The type of an output's rows in the DataStream API."""
    types = [Types.BIG_DEC() if pa.types.is_decimal(field.type) else _plain(field).row() for field in schema]
    return Types.ROW_NAMED(list(schema.names), types)


def _plain(field: pa.Field) -> _Plain:
    type_ = field.type
    if pa.types.is_timestamp(type_):
        type_ = _WALL_TIME if type_.tz is None else _INSTANT
    for plain in _PLAIN:
        if plain.arrow == type_:
            return plain
    raise _lacking(field.name, str(type_))


def _arrow_type(name: str, type_: DataType) -> pa.DataType:
    if isinstance(type_, table_types.DecimalType):
        return pa.decimal128(type_.precision, type_.scale)
    if isinstance(type_, table_types.TimeType):  # whatever its precision, Flink keeps milliseconds
        return pa.time32("ms" if type_.precision else "s")
    if type(type_) in _LIKE_PLAIN:
        return _LIKE_PLAIN[type(type_)]
    for plain in _PLAIN:
        if type(plain.table()) is type(type_):
            return plain.arrow
    raise _lacking(name, str(type_))


def _lacking(name: str, type_: str) -> InputError:
    return InputError(
        Code.WRONG_TYPE,
        f"column {name!r} is {type_}",
        "the Flink adapter carries numbers, booleans, text, bytes, dates, timestamps and decimals: cast or drop it",
    )

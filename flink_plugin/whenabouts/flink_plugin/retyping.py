"""Tables as streams in Flink's internal form, whose rows Flink does not convert, and such streams as Tables.

Flink's optimiser does not see through such a stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyflink.datastream import DataStream, StreamExecutionEnvironment
from pyflink.java_gateway import get_gateway
from pyflink.table import DataTypes, Schema, StreamTableEnvironment, Table
from pyflink.table.types import DataType, _to_java_data_type
from pyflink.util.java_utils import get_java_class

CUT, MICROSECONDS = "_wa_cut", 6

_planning: set[int] = set()
"""Threads of the JVM in which a Table environment was made here: Flink's planner works in no others (FLINK-23020).
Python's calls go through several of them if two of its threads have called at once, be it to collect Java's garbage."""


def internal_rows(table: Table) -> Any:
    """The Java stream of a Table's rows. The time attribute of the Table, if it has one, is their timestamp."""
    form = table._j_table.getResolvedSchema().toSourceRowDataType()
    internal = form.bridgedTo(get_java_class(get_gateway().jvm.org.apache.flink.table.data.RowData))
    tables = table._t_env._j_tenv
    thread = int(get_gateway().jvm.java.lang.Thread.currentThread().getId())
    if thread not in _planning:
        StreamTableEnvironment.create(StreamExecutionEnvironment(tables.execEnv()))
        _planning.add(thread)
    return tables.toDataStream(table._j_table, internal)


def logical_type(types: Mapping[str, DataType]) -> Any:
    """Java's type of rows with these columns."""
    row = DataTypes.ROW([DataTypes.FIELD(name, type_) for name, type_ in types.items()])
    return _to_java_data_type(row).getLogicalType()


def cut_to_microseconds(type_: Any) -> tuple[Any, list[int]]:
    """Java's type of such rows with times of six digits at most, and the places of those that have more; after its
    columns it has one for each of these, which says what was cut.

    Flink writes finer times to Arrow as nanoseconds, which overflow, silently, outside the years 1678 to 2262. (Its
    cast to TIMESTAMP(6) keeps digits within the first millisecond of a second, so it does not tell what was cut.)
    """
    gateway = get_gateway()
    logical = gateway.jvm.org.apache.flink.table.types.logical
    kinds = {
        "TIMESTAMP_WITHOUT_TIME_ZONE": logical.TimestampType,
        "TIMESTAMP_WITH_LOCAL_TIME_ZONE": logical.LocalZonedTimestampType,
    }
    types, names = list(type_.getChildren()), [str(name) for name in type_.getFieldNames()]
    finer = []
    for place, each in enumerate(types):
        kind = kinds.get(str(each.getTypeRoot()))
        if kind is not None and each.getPrecision() > MICROSECONDS:
            types[place] = kind(each.isNullable(), MICROSECONDS)
            finer.append(place)
    if not finer:
        return type_, finer
    types += [logical.BooleanType() for _ in finer]
    names += [f"{CUT}_{place}" for place in finer]
    given = gateway.new_array(logical.LogicalType, len(types)), gateway.new_array(gateway.jvm.String, len(names))
    for place, pair in enumerate(zip(types, names, strict=True)):
        given[0][place], given[1][place] = pair
    return logical.RowType.of(*given), finer


def converter_of(types: Mapping[str, DataType]) -> Any:
    """Java's converter between the internal form of rows with these columns and `Row`."""
    row = DataTypes.ROW([DataTypes.FIELD(name, type_) for name, type_ in types.items()])
    converters = get_gateway().jvm.org.apache.flink.table.data.conversion.DataStructureConverters
    return converters.getConverter(_to_java_data_type(row))


def internal_type(types: Mapping[str, DataType]) -> Any:
    """Java's type information of internal rows with these columns."""
    info = get_gateway().jvm.org.apache.flink.table.runtime.typeutils.InternalTypeInfo
    return info.of(logical_type(types))


def table_of_internal(
    rows: DataStream, types: Mapping[str, DataType], tables: StreamTableEnvironment, event_time: str | None, title: str
) -> Table:
    """A stream of `internal_type(types)` as a Table. `event_time`: the column of its time attribute, under the
    stream's watermark. `title`: its name in `explain`."""
    schema = Schema.new_builder()
    for name, type_ in types.items():
        schema = schema.column(name, type_)
    if event_time is not None:
        schema = schema.watermark(event_time, "SOURCE_WATERMARK()")
    made = tables.from_data_stream(rows, schema.build())._j_table
    return Table(tables._j_tenv.createTable(_scan(made.getQueryOperation(), title)), tables)


def _scan(scan: Any, title: str) -> Any:
    """A scan of a stream with a name that is in no catalog, and with columns of SQL's plain types.

    Without these types `to_data_stream` of such a Table would have elements with Flink's internal objects in them,
    which Python cannot read.
    """
    jvm = get_gateway().jvm
    catalog, conversions = jvm.org.apache.flink.table.catalog, jvm.org.apache.flink.table.types.utils.TypeConversions
    table = scan.getContextResolvedTable().getResolvedTable()
    internal, columns = table.getResolvedSchema(), jvm.java.util.ArrayList()
    for column in internal.getColumns():
        columns.add(column.copy(conversions.fromLogicalToDataType(column.getDataType().getLogicalType())))
    schema = catalog.ResolvedSchema(columns, internal.getWatermarkSpecs(), None)
    named = catalog.ContextResolvedTable.anonymous(title, catalog.ResolvedCatalogTable(table.getOrigin(), schema))
    return jvm.org.apache.flink.table.operations.ExternalQueryOperation(
        named, scan.getDataStream(), scan.getPhysicalDataType(), scan.isTopLevelRecord(), scan.getChangelogMode()
    )


def zone_of(table: Table) -> str | None:
    """The time zone of a Table's session; None if it is UTC."""
    name = str(table._t_env.get_config().get_local_timezone())
    rules = get_gateway().jvm.java.time.ZoneId.of(name).getRules()
    utc = get_gateway().jvm.java.time.ZoneOffset.UTC
    return None if rules.isFixedOffset() and rules.equals(utc.getRules()) else name

"""Tables taken through a stream in Flink's own form, and there called what they are.

Flink keeps the same number for an instant (TIMESTAMP_LTZ) and for a timestamp without zone, but Python's vectorised
functions cannot take every instant: PyFlink takes the number for local time, which fails where clocks skip or repeat
an hour. So instants travel as timestamps without zone. A cast would convert them; to call them otherwise costs nothing.

Behind such a stream a Table begins anew: no query is optimised through it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyflink.java_gateway import get_gateway
from pyflink.table import DataTypes, Schema, Table
from pyflink.table.types import DataType, LocalZonedTimestampType, _to_java_data_type
from pyflink.util.java_utils import get_java_class


def without_zone(type_: DataType) -> DataType:
    """The type in which instants travel; any other is its own."""
    if isinstance(type_, LocalZonedTimestampType):
        return DataTypes.TIMESTAMP(type_.precision)
    return type_


def retyped(
    table: Table,
    types: Mapping[str, DataType],
    clock: Schema.Builder | None = None,
    *,
    title: str | None = None,
) -> Table:
    """A Table's rows under types that are the same to Flink but for the zone; `clock` may tell of event time.

    `title`: what `explain` calls a Table that is given to users, where plans of what follows begin. The time attribute
    of the table, if it has one, is the timestamp of the stream's elements.
    """
    jvm, tables = get_gateway().jvm, table._t_env
    form = table._j_table.getResolvedSchema().toPhysicalRowDataType()
    rows = tables._j_tenv.toDataStream(
        table._j_table, form.bridgedTo(get_java_class(jvm.org.apache.flink.table.data.RowData))
    )
    row = DataTypes.ROW([DataTypes.FIELD(name, type_) for name, type_ in types.items()])
    told = jvm.org.apache.flink.table.runtime.typeutils.InternalTypeInfo.of(_to_java_data_type(row).getLogicalType())
    rows.getTransformation().setOutputType(told)
    columns = Schema.new_builder() if clock is None else clock
    for name, type_ in types.items():
        columns = columns.column(name, type_)
    made = tables._j_tenv.fromDataStream(rows, columns.build()._j_schema)
    if title is not None:
        made = tables._j_tenv.createTable(_scan(made.getQueryOperation(), title))
    return Table(made, tables)


def _scan(scan: Any, title: str) -> Any:
    """A scan of a stream under a name of its own, which no catalog knows, and of columns of SQL's plain types.

    Flink reads the stream in its own form, and would give that form on: `to_data_stream` of such a Table has elements
    with Flink's internal objects in them, which Python cannot read.
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


def skips_hours(table: Table) -> bool:
    """Whether clocks of the Table's session were ever set."""
    zone = get_gateway().jvm.java.time.ZoneId.of(table._t_env.get_config().get_local_timezone())
    return not zone.getRules().isFixedOffset()


def zone_of(table: Table) -> str | None:
    """The zone of a Table's session, None where its clocks show UTC."""
    name = str(table._t_env.get_config().get_local_timezone())
    rules = get_gateway().jvm.java.time.ZoneId.of(name).getRules()
    utc = get_gateway().jvm.java.time.ZoneOffset.UTC
    return None if rules.isFixedOffset() and rules.equals(utc.getRules()) else name

"""Tables whose column types are renamed without a conversion, by way of a stream in Flink's internal form.

Flink stores the same number for an instant (TIMESTAMP_LTZ) and for a timestamp without zone, but PyFlink's vectorised
functions do not accept every instant: PyFlink reads the number as local time, which fails where clocks skip or repeat
an hour. So instants are passed as timestamps without zone. A cast would convert them; renaming the type costs nothing.

Flink's optimiser does not see through such a stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyflink.java_gateway import get_gateway
from pyflink.table import DataTypes, Schema, Table
from pyflink.table.types import DataType, LocalZonedTimestampType, _to_java_data_type
from pyflink.util.java_utils import get_java_class


def without_zone(type_: DataType) -> DataType:
    """The type in which a column is passed: instants lose their zone, other types stay."""
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
    """A Table's rows under types that differ from its own by the zone only; `clock` may declare event time.

    `title`: the name in `explain` of a Table that is returned to users. The time attribute of the table, if it has one,
    is the timestamp of the stream's elements.
    """
    jvm, tables = get_gateway().jvm, table._t_env
    form = table._j_table.getResolvedSchema().toPhysicalRowDataType()
    rows = tables._j_tenv.toDataStream(
        table._j_table, form.bridgedTo(get_java_class(jvm.org.apache.flink.table.data.RowData))
    )
    row = DataTypes.ROW([DataTypes.FIELD(name, type_) for name, type_ in types.items()])
    info = jvm.org.apache.flink.table.runtime.typeutils.InternalTypeInfo.of(_to_java_data_type(row).getLogicalType())
    rows.getTransformation().setOutputType(info)
    columns = Schema.new_builder() if clock is None else clock
    for name, type_ in types.items():
        columns = columns.column(name, type_)
    made = tables._j_tenv.fromDataStream(rows, columns.build()._j_schema)
    if title is not None:
        made = tables._j_tenv.createTable(_scan(made.getQueryOperation(), title))
    return Table(made, tables)


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


def skips_hours(table: Table) -> bool:
    """Whether the session's time zone has ever changed its offset."""
    zone = get_gateway().jvm.java.time.ZoneId.of(table._t_env.get_config().get_local_timezone())
    return not zone.getRules().isFixedOffset()


def zone_of(table: Table) -> str | None:
    """The time zone of a Table's session; None if it is UTC."""
    name = str(table._t_env.get_config().get_local_timezone())
    rules = get_gateway().jvm.java.time.ZoneId.of(name).getRules()
    utc = get_gateway().jvm.java.time.ZoneOffset.UTC
    return None if rules.isFixedOffset() and rules.equals(utc.getRules()) else name

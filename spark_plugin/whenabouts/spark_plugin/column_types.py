"""Columns that Spark compares in a way of its own, which the operators cannot follow: refused before a query starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, BooleanType, DataType, MapType, StringType, StructType

from whenabouts.core.errors import Code, QueryError
from whenabouts.core.expressions.letter_case import same
from whenabouts.core.hosting.column_case import check_distinct
from whenabouts.core.hosting.columns_compared import columns_compared
from whenabouts.core.hosting.host import is_utc, require_one_zone
from whenabouts.core.runtime.protocol import Operator, Query
from whenabouts.spark_plugin.packing import FLUSH
from whenabouts.spark_plugin.sessions import ignores_case


def with_own_end(df: DataFrame, name: str) -> DataFrame:
    """The input with its `FLUSH` column, if it has one, under that very name.

    Raises QueryError WA-2006 for one that is not boolean, WA-2009 for two that differ by case only.
    """
    exact = not ignores_case(df.sparkSession)
    found = [column for column in df.columns if column == FLUSH or (not exact and same(column, FLUSH))]
    if not found:
        return df
    check_distinct(found, f"the {name} input has columns")
    kind = df.schema[found[0]].dataType
    if not isinstance(kind, BooleanType):
        raise QueryError(
            Code.BAD_OPTION,
            f"column {found[0]!r} of the {name} input is {kind.simpleString()}, and is true where the input ends",
            f"cast it to boolean, or rename it if it is another column: {FLUSH} marks the row after the last event",
        )
    return df.withColumnRenamed(found[0], FLUSH)


def check_types(query: Query, operator: Operator, inputs: Sequence[DataFrame], schemas: Sequence[pa.Schema]) -> None:
    """Raise QueryError WA-2186 for collated text that is compared, WA-2192 for times with and without a zone together.

    `schemas`: those of the inputs as the query knows them, columns in the order of the DataFrames'.
    """
    for name, df, schema, compared in zip(query.inputs, inputs, schemas, columns_compared(query), strict=True):
        kinds = [field.dataType for field in df.schema.fields if field.name != FLUSH]
        check_collations(name, dict(zip(schema.names, kinds, strict=True)), compared)
    zone = str(inputs[0].sparkSession.conf.get("spark.sql.session.timeZone", "UTC"))
    require_one_zone(query, operator, schemas, None if is_utc(zone) else zone)


def check_collations(name: str, types: Mapping[str, DataType], compared: Iterable[str]) -> None:
    """Raise QueryError WA-2186 for a column that is compared and holds text, however deep, of another collation."""
    for column in compared:
        collation = _collation(types[column]) if column in types else None
        if collation is not None:
            raise QueryError(
                Code.COLLATED,
                f"column {column!r} of the {name} input is text under the collation {collation}, and is compared",
                f"text is equal here if its bytes are: compare lower({column}) of both sides, say, or "
                f"collate({column}, 'UTF8_BINARY')",
            )


def _collation(kind: DataType) -> str | None:
    """The first collation inside of a type that is not that of bytes."""
    if isinstance(kind, StringType):
        collation = getattr(kind, "collation", "UTF8_BINARY")
        return None if collation == "UTF8_BINARY" else str(collation)
    return next(filter(None, map(_collation, inner_types(kind))), None)


def inner_types(kind: DataType) -> list[DataType]:
    """The types of the parts of a nested type; none for a plain one."""
    if isinstance(kind, StructType):
        return [f.dataType for f in kind.fields]
    if isinstance(kind, ArrayType):
        return [kind.elementType]
    if isinstance(kind, MapType):
        return [kind.keyType, kind.valueType]
    return []

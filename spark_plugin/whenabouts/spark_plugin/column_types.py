"""Columns that Spark compares in a way of its own, which the operators cannot follow: refused before a query starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from whenabouts.core.errors import Code, QueryError
from whenabouts.core.hosting.columns_compared import columns_compared
from whenabouts.core.hosting.host import is_utc, require_one_zone
from whenabouts.core.runtime.protocol import Operator, Query
from whenabouts.spark_plugin.packing import FLUSH


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

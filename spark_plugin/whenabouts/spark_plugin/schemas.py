"""Spark's schemas for those who plan queries before they have DataFrames."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from whenabouts.core.errors import Code, QueryError
from whenabouts.spark_plugin.arrow_types import arrow_fields
from whenabouts.spark_plugin.packing import FLUSH


def arrow_schema_of(given: Any) -> pa.Schema:
    """The columns that a query has of a DataFrame, or of one with this schema; those that tell its end are left out.

    Raises QueryError WA-2006 for anything else, InputError WA-1002 for a type that cannot leave the JVM.
    """
    schema = given.schema if isinstance(given, DataFrame) else given
    if not isinstance(schema, StructType):
        raise QueryError(Code.BAD_OPTION, f"a {type(given).__name__} is given as a schema", "give df.schema")
    return pa.schema(arrow_fields([field for field in schema.fields if field.name != FLUSH], "given"))

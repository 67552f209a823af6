"""A batch DataFrame as rows in parts, to which core applies functions where they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StructField, StructType

from whenabouts.core.errors import Code, InputError
from whenabouts.core.frames.scattered import PartFunction, Scattered
from whenabouts.spark_plugin.arrow_types import arrow_schema, worker_schema
from whenabouts.spark_plugin.sessions import ignores_case, prepare
from whenabouts.spark_plugin.workers import Batches, Stage

_PARTS = StructType([StructField("part", BinaryType(), nullable=False)])


def scattered(df: DataFrame) -> Scattered:
    """The partitions of a batch DataFrame, in no order of arrival. Raises InputError WA-1062 for a stream."""
    if df.isStreaming:
        raise InputError(
            Code.NOT_AN_INPUT,
            "the DataFrame is a stream",
            "give its rows so far, read with spark.read: they are a batch",
        )
    prepare(df.sparkSession, streaming=False)
    schema = arrow_schema(df, "profiled")

    def apply(names: Sequence[str], function: PartFunction) -> Iterable[bytes]:
        numbered = df.toDF(*map(str, range(len(df.columns))))  # mapInArrow fails on a dot in a name
        columns = numbered.select(*(str(df.columns.index(name)) for name in names))
        stage = Stage("a profile of " + ", ".join(names), _Parts(function))
        found: list[bytes] = columns.mapInArrow(stage, _PARTS).toArrow().column("part").to_pylist()
        return found

    return Scattered(schema, df.count, apply, ordered=False, ignores_case=ignores_case(df.sparkSession))


class _Parts:
    """What a function yields, as rows."""

    def __init__(self, function: PartFunction) -> None:
        self._function = function

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        schema = worker_schema(_PARTS)
        for part in self._function(iter(batches)):
            yield pa.record_batch([pa.array([part], schema.field("part").type)], schema=schema)

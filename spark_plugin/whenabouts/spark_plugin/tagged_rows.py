"""The output of the operator stage as rows of Spark: blobs of output rows, rejects and counts, distinguished by a tag.

All queries share one stage with one schema. Blobs pass Spark's stateful Python operator without a conversion of any
user column, and are unpacked by `mapInArrow` after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import BinaryType, ByteType, StructField, StructType

from whenabouts.core.hosting.host import Tagged
from whenabouts.core.state.segment_codec import decode
from whenabouts.spark_plugin.arrow_types import conform, spark_fields, worker_schema

TAG = "tag"
BLOB = "blob"
TAGGED = StructType([StructField(TAG, ByteType(), nullable=False), StructField(BLOB, BinaryType(), nullable=False)])


def tagged_batch(rows: Iterable[Tagged]) -> pa.RecordBatch:
    """Tagged rows as an Arrow batch of `TAGGED`."""
    tags, blobs = zip(*rows, strict=True)
    schema = worker_schema(TAGGED)
    return pa.RecordBatch.from_arrays([pa.array(tags, pa.int8()), pa.array(blobs, pa.binary())], schema=schema)


@dataclass(frozen=True)
class Unpacker:
    """Blobs of one tag and schema to rows; `mapInArrow` runs `unpack`, over tagged rows."""

    tag: int
    schema: pa.Schema

    @property
    def spark_schema(self) -> StructType:
        """The schema of the rows in Spark."""
        return StructType(spark_fields(self.schema))

    def unpack(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows from batches of tagged rows; those with another tag are left out."""
        target = worker_schema(self.spark_schema)
        for batch in batches:
            for tag, blob in zip(batch.column(TAG), batch.column(BLOB), strict=True):
                if tag.as_py() == self.tag:
                    yield conform(decode(blob.as_buffer(), self.schema), target)

"""What leaves the operator stage: blobs of output rows, rejects and counts, told apart by a tag.

One stage, one schema for every query. Blobs cross Spark's stateful Python operator without a conversion of any user
column, and are unpacked by `mapInArrow` behind it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.types import BinaryType, ByteType, StructField, StructType

from whenabouts.core import metrics
from whenabouts.core.events import reject_rows
from whenabouts.core.protocol import Operator, Step
from whenabouts.core.segments import decode, encode
from whenabouts.spark_plugin.arrow_types import conform, spark_fields, worker_schema
from whenabouts.spark_plugin.packing import Unpacked
from whenabouts.spark_plugin.workers import begin_task

TAG = "tag"
BLOB = "blob"
TAGGED = StructType([StructField(TAG, ByteType(), nullable=False), StructField(BLOB, BinaryType(), nullable=False)])

OUTPUT, REJECTED, COUNTS = 0, 1, 2

BYTES_PER_BLOB = 16 << 20
"""Output is cut into blobs of about this size: Spark gathers 64 MiB of them before it hands them on."""


class Tagged(NamedTuple):
    """A row on its way out."""

    tag: int
    blob: bytes


def tagged_rows(step: Step, arrived: Unpacked, operator: Operator, inputs: tuple[str, ...]) -> Iterator[Tagged]:
    """All that a step gave, and what the readers had rejected before it."""
    for batch in step.output:
        for piece in _pieces(batch):
            yield Tagged(OUTPUT, encode(piece))
    for blob in arrived.rejects:
        yield Tagged(REJECTED, blob)
    raw = [reader.schema for reader in operator.readers]
    for rejected in step.rejected:
        for piece in _pieces(reject_rows(rejected, raw, inputs)):
            yield Tagged(REJECTED, encode(piece))
    counts = Counter(step.metrics)
    counts[metrics.ROWS_IN] += arrived.rows_in
    counts[metrics.REJECTED] += arrived.rows_rejected
    yield Tagged(COUNTS, json.dumps(dict(counts)).encode())


def tagged_batch(rows: Iterable[Tagged]) -> pa.RecordBatch:
    """Tagged rows as an Arrow batch of `TAGGED`."""
    tags, blobs = zip(*rows, strict=True)
    schema = worker_schema(TAGGED)
    return pa.RecordBatch.from_arrays([pa.array(tags, pa.int8()), pa.array(blobs, pa.binary())], schema=schema)


@dataclass(frozen=True)
class Unpacker:
    """Blobs of one schema to rows; `unpack` is what `mapInArrow` runs."""

    schema: pa.Schema

    @property
    def spark_schema(self) -> StructType:
        """The rows in Spark."""
        return StructType(spark_fields(self.schema))

    def unpack(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows from batches of one column of blobs."""
        begin_task()
        target = worker_schema(self.spark_schema)
        for batch in batches:
            for blob in batch.column(0):
                yield conform(decode(blob.as_py(), self.schema), target)


def read_counts(blobs: Iterable[bytes]) -> Counter[str]:
    """The sum of count blobs.

    >>> read_counts([b'{"rows_in": 2}', b'{"rows_in": 3}'])
    Counter({'rows_in': 5})
    """
    total: Counter[str] = Counter()
    for blob in blobs:
        total.update(json.loads(blob))
    return total


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    rows = max(1, BYTES_PER_BLOB * batch.num_rows // max(batch.nbytes, 1))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)

"""Rows on their way to the stateful operator: `core.hosting`'s packed rows as rows of Spark, by `mapInArrow`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType, TimestampType

from whenabouts.core.hosting import END, BlockPacker, Hosting, Packed
from whenabouts.core.segments import encode
from whenabouts.spark_plugin.arrow_types import worker_schema
from whenabouts.spark_plugin.workers import begin_task

PACKED = StructType(
    [
        StructField("bucket", IntegerType(), nullable=False),
        StructField("kind", IntegerType(), nullable=False),
        StructField("rows", LongType(), nullable=False),
        StructField("clock", TimestampType(), nullable=False),
        StructField("blob", BinaryType(), nullable=False),
    ]
)
"""The fields of `Packed`; `clock` is what Spark's watermark looks at."""

ROWS_PER_PACK = 1 << 17
"""Rows of one input that are packed together: enough for full blobs, and a bound on a worker's memory."""


@dataclass(frozen=True)
class Packer:
    """Packs one input; `pack` is what `mapInArrow` runs. Columns come in the schema's order, under any name."""

    hosting: Hosting
    input: int

    def pack(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Packed rows of one partition. O(rows), and a sort of small integers per pack."""
        begin_task()
        packer = BlockPacker(self.hosting, self.input)
        blocks: list[pa.RecordBatch] = []
        names = self.hosting.schemas[self.input].names
        for batch in batches:
            block, packed = packer.read(pa.RecordBatch.from_arrays(batch.columns, names=names))
            blocks.append(block)
            if sum(b.num_rows for b in blocks) >= ROWS_PER_PACK:
                packed += packer.split(blocks)
                blocks = []
            if packed:
                yield packed_batch(packed)
        packed = list(packer.split(blocks))
        if packed:
            yield packed_batch(packed)


@dataclass(frozen=True)
class EndMarkers:
    """Turns every row of any DataFrame into the news, to each bucket, that the input has ended."""

    buckets: int

    def mark(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Packed rows of kind END."""
        begin_task()
        nothing = pa.RecordBatch.from_arrays([], names=[])
        for batch in batches:
            if batch.num_rows:
                yield packed_batch(Packed(bucket, END, 0, 0, encode(nothing)) for bucket in range(self.buckets))


def packed_batch(packed: Iterable[Packed]) -> pa.RecordBatch:
    """Packed rows as an Arrow batch of `PACKED`."""
    schema = worker_schema(PACKED)
    columns = zip(*packed, strict=True)
    arrays = [pa.array(values, f.type) for values, f in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)

"""From rows to the packed rows of `core.hosting`, as rows of Spark, by `mapInArrow`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType, TimestampType

from whenabouts.core.hosting.host import BlockPacker, Hosting, Packed
from whenabouts.core.hosting.micro_batch_host import CONTROL
from whenabouts.core.hosting.packed_kinds import END, PRESENT
from whenabouts.spark_plugin.arrow_types import worker_schema
from whenabouts.spark_plugin.bucket_labels import bucket_labels
from whenabouts.spark_plugin.unit_alarm import Alarm, tell

STREAMED = StructType(
    [
        StructField("bucket", IntegerType(), nullable=False),
        StructField("kind", IntegerType(), nullable=False),
        StructField("rows", LongType(), nullable=False),
        StructField("clock", TimestampType(), nullable=False),
        StructField("blob", BinaryType(), nullable=False),
    ]
)
"""The fields of `Packed`, with the bucket's label. Spark's watermark follows `clock`. The label `CONTROL` receives the
rejects, and a row of kind `PRESENT` from every task with rows, so that every micro-batch calls it."""

BATCHED = StructType([*STREAMED.fields, StructField("first", LongType(), nullable=False)])
"""In batch with the least `t_max`, by which rows are sorted. Streams do without: Spark would generate code that drops
it, for each input and micro-batch."""


def packed_type(hosting: Hosting) -> StructType:
    """The columns of packed rows."""
    return STREAMED if hosting.streaming else BATCHED


ARRIVED = ("kind", "rows", "blob")
"""The columns of a packed row that the operator's host reads."""

FLUSH = "_wa_end_of_input"
"""A boolean column of an input that signals its own end: if it is true, the row is a flush row and no event."""

ROWS_PER_PACK = 1 << 17
"""Rows of one input that are packed together: enough for full blobs, and a limit on a worker's memory."""


@dataclass(frozen=True)
class Packer:
    """Packs one input; `mapInArrow` runs `pack`.

    Columns are in the schema's order, under any name, followed by `FLUSH` if the input has it.
    """

    hosting: Hosting
    input: int
    alarm: Alarm | None = None

    def pack(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Packed rows of one partition. O(rows), and a sort of small integers per pack."""
        packer, columns = BlockPacker(self.hosting, self.input), packed_type(self.hosting)
        blocks: list[pa.RecordBatch] = []
        rows_in = 0
        ended = False
        names = self.hosting.schemas[self.input].names
        for batch in batches:
            rows_in += batch.num_rows
            if batch.num_columns > len(names):
                flush = batch.column(len(names)).fill_null(False)
                ended |= flush.true_count > 0
                batch = batch.filter(pc.invert(flush))  # a flush row is not an event
            block, refused = packer.read(pa.RecordBatch.from_arrays(batch.columns[: len(names)], names=names))
            blocks.append(block)
            packed = [(row._replace(bucket=CONTROL), 0) for row in refused]
            if sum(b.num_rows for b in blocks) >= ROWS_PER_PACK:
                packed += self._split(packer, blocks)
                blocks = []
            if packed:
                yield packed_batch(packed, columns)
        tell(self.alarm, packer.units.new_messages())
        if rows_in:
            present = Packed(CONTROL, PRESENT, 0, 0, b"")
            yield packed_batch([*self._split(packer, blocks), (present, 0)], columns)
        if ended and self.hosting.streaming:
            yield packed_batch(self._labelled((row, 0) for row in packer.ended()), columns)

    def _split(self, packer: BlockPacker, blocks: list[pa.RecordBatch]) -> Iterator[tuple[Packed, int]]:
        if self.hosting.streaming:
            return self._labelled((row, 0) for row in packer.split(blocks))
        return self._labelled(packer.split_by_time(blocks))

    def _labelled(self, timed: Iterable[tuple[Packed, int]]) -> Iterator[tuple[Packed, int]]:
        labels = bucket_labels(self.hosting.buckets)
        for row, first_us in timed:
            yield row._replace(bucket=labels[row.bucket]), first_us


@dataclass(frozen=True)
class EndMarkers:
    """Turns every row of any DataFrame into one END row per bucket: the input has ended."""

    buckets: int

    def mark(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Packed rows of kind END."""
        for batch in batches:
            if batch.num_rows:
                ends = [(Packed(label, END, 0, 0, b""), 0) for label in bucket_labels(self.buckets)]
                yield packed_batch(ends, STREAMED)


def packed_batch(packed: Iterable[tuple[Packed, int]], columns: StructType) -> pa.RecordBatch:
    """Packed rows, each with its least `t_max`, as an Arrow batch of a `packed_type`."""
    schema = worker_schema(columns)
    values = list(zip(*((*row, first_us) for row, first_us in packed), strict=True))[: len(schema)]
    arrays = [pa.array(each, f.type) for each, f in zip(values, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)

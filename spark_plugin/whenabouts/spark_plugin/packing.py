"""Rows on their way to the stateful operator: blocks of many rows, packed as blobs, one per bucket and input.

Spark's Python operators cost per row and per group; a blob makes a thousand rows one row, and a bucket makes a
thousand keys one group. A packed row is `(bucket, kind, rows, clock, blob)`; `kind` is the number of the input, or
`REJECTS` (rows that the reader refused, in the rejects schema), or `END` (the input has ended).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType, TimestampType

from whenabouts.core.events import reject_rows, rejects_schema, times
from whenabouts.core.protocol import Arrival, Operator, Query
from whenabouts.core.segments import decode, encode
from whenabouts.spark_plugin.arrow_types import worker_schema
from whenabouts.spark_plugin.workers import begin_task

REJECTS = -1
END = -2

PACKED = StructType(
    [
        StructField("bucket", IntegerType(), nullable=False),
        StructField("kind", IntegerType(), nullable=False),
        StructField("rows", LongType(), nullable=False),
        StructField("clock", TimestampType(), nullable=False),
        StructField("blob", BinaryType(), nullable=False),
    ]
)
"""`clock`: the greatest `t_max` in the blob, all that Spark's watermark needs to know of it."""

ROWS_PER_PACK = 1 << 17
"""Rows of one input that are packed together: enough for full blobs, and a bound on a worker's memory."""


@dataclass(frozen=True)
class Hosting:
    """What a worker needs to build the operator, and how its rows are bucketed. Travels to the workers by pickle."""

    query: Query
    schemas: tuple[pa.Schema, ...]
    buckets: int
    streaming: bool

    def operator(self) -> Operator:
        """A fresh operator; all state is outside of it."""
        return self.query.operator(self.schemas, streaming=self.streaming)

    @property
    def rejects_schema(self) -> pa.Schema:
        """Schema of reject blobs."""
        return rejects_schema([reader.schema for reader in self.operator().readers])


@dataclass(frozen=True)
class Packer:
    """Packs one input; `pack` is what `mapInArrow` runs. Columns come in the schema's order, under any name."""

    hosting: Hosting
    input: int

    def pack(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Packed rows of one partition. O(rows), and a sort of small integers per pack."""
        begin_task()
        operator = self.hosting.operator()
        reader = operator.readers[self.input]
        schemas, inputs = [r.schema for r in operator.readers], self.hosting.query.inputs
        blocks: list[pa.RecordBatch] = []
        names = self.hosting.schemas[self.input].names
        for batch in batches:
            block, rejected = reader.read(pa.RecordBatch.from_arrays(batch.columns, names=names))
            blocks.append(block)
            packed = _PackedRows()
            for reject in rejected:
                packed.add(0, REJECTS, reject_rows(reject, schemas, inputs), 0)
            if sum(b.num_rows for b in blocks) >= ROWS_PER_PACK:
                self._split(operator, blocks, packed)
                blocks = []
            if packed.bucket:
                yield packed.batch()
        packed = _PackedRows()
        self._split(operator, blocks, packed)
        if packed.bucket:
            yield packed.batch()

    def _split(self, operator: Operator, blocks: list[pa.RecordBatch], packed: _PackedRows) -> None:
        if not any(block.num_rows for block in blocks):
            return
        for block in pa.Table.from_batches(blocks).combine_chunks().to_batches():
            buckets = operator.keys.buckets(block, self.hosting.buckets)
            order = np.argsort(buckets, kind="stable")
            block, buckets = block.take(pa.array(order)), buckets[order]
            starts = np.flatnonzero(np.diff(buckets, prepend=-1))
            clocks = np.maximum.reduceat(times(block)[1], starts)
            for start, stop, clock in zip(starts, [*starts[1:], len(buckets)], clocks, strict=True):
                packed.add(int(buckets[start]), self.input, block.slice(start, stop - start), int(clock))


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
                packed = _PackedRows()
                for bucket in range(self.buckets):
                    packed.add(bucket, END, nothing, 0)
                yield packed.batch()


@dataclass(slots=True)
class Unpacked:
    """What arrived for one bucket."""

    arrivals: list[Arrival] = field(default_factory=list)
    rejects: list[bytes] = field(default_factory=list)
    rows_in: int = 0
    rows_rejected: int = 0
    ended: bool = False

    def take(self, operator: Operator, packed: Iterable[tuple[int, int, bytes]]) -> None:
        """Sort `(kind, rows, blob)` by what it is."""
        for kind, rows, blob in packed:
            self.rows_in += rows
            if kind == END:
                self.ended = True
            elif kind == REJECTS:
                self.rejects.append(blob)
                self.rows_rejected += rows
            else:
                self.arrivals.append(Arrival(kind, decode(blob, operator.readers[kind].block_schema)))


@dataclass(slots=True)
class _PackedRows:
    bucket: list[int] = field(default_factory=list)
    kind: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    clock: list[int] = field(default_factory=list)
    blob: list[bytes] = field(default_factory=list)

    def add(self, bucket: int, kind: int, rows: pa.RecordBatch, clock_us: int) -> None:
        self.bucket.append(bucket)
        self.kind.append(kind)
        self.rows.append(rows.num_rows)
        self.clock.append(clock_us)
        self.blob.append(encode(rows))

    def batch(self) -> pa.RecordBatch:
        schema = worker_schema(PACKED)
        columns = [self.bucket, self.kind, self.rows, self.clock, self.blob]
        arrays = [pa.array(values, f.type) for values, f in zip(columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

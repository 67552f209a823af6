"""Hosts an operator in a Spark batch: a partition's buckets one after the other, without lasting state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa
from pyspark.sql.types import StructType

from whenabouts.core.hosting.host import Hosting, output_rows, tagged_rows
from whenabouts.core.hosting.out_of_core import Result, Results, Timed, take_in
from whenabouts.spark_plugin.arrow_types import conform, spark_fields, worker_schema
from whenabouts.spark_plugin.packing import ARRIVED
from whenabouts.spark_plugin.tagged_rows import tagged_batch


@dataclass(frozen=True)
class BatchHost:
    """Runs the operator over the buckets of a partition; `mapInArrow` runs `run` or `output`."""

    hosting: Hosting

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Tagged rows from packed rows that are sorted by bucket and least time."""
        for tagged in self._results(batches, tagged_rows):
            yield tagged_batch([tagged])

    @property
    def output_schema(self) -> StructType:
        """The schema of the output rows in Spark."""
        return StructType(spark_fields(self.hosting.operator().output_schema))

    def output(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The output rows alone, in Spark's types: no other stage has to unpack them."""
        schema = worker_schema(self.output_schema)
        for rows in self._results(batches, output_rows):
            yield conform(rows, schema)

    def _results(self, batches: Iterable[pa.RecordBatch], results: Results[Result]) -> Iterator[Result]:
        operator = self.hosting.operator()
        for _, rows in groupby(_rows(batches), key=lambda row: row[0]):
            yield from take_in(self.hosting, operator, (timed for _, timed in rows), results)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Timed]]:
    for batch in batches:
        buckets, *columns = (batch.column(name).to_pylist() for name in ("bucket", "first", *ARRIVED))
        yield from zip(buckets, map(Timed._make, zip(*columns, strict=True)), strict=True)

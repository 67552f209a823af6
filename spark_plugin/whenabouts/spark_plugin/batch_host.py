"""Hosts an operator in a Spark batch: a partition's buckets one after the other, without lasting state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa

from whenabouts.core.hosting.host import Hosting
from whenabouts.core.hosting.out_of_core import Timed, take_in
from whenabouts.spark_plugin.packing import ARRIVED
from whenabouts.spark_plugin.tagged_rows import tagged_batch


@dataclass(frozen=True)
class BatchHost:
    """Runs the operator over the buckets of a partition; `mapInArrow` runs `run`."""

    hosting: Hosting

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Tagged rows from packed rows that are sorted by bucket and least time."""
        operator = self.hosting.operator()
        for _, rows in groupby(_rows(batches), key=lambda row: row[0]):
            for tagged in take_in(self.hosting, operator, (timed for _, timed in rows)):
                yield tagged_batch([tagged])


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Timed]]:
    for batch in batches:
        buckets, *columns = (batch.column(name).to_pylist() for name in ("bucket", "first", *ARRIVED))
        yield from zip(buckets, map(Timed._make, zip(*columns, strict=True)), strict=True)

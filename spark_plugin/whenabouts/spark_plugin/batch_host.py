"""Hosts an operator in a Spark batch: one call per bucket, with all its rows, and state that nobody keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from whenabouts.core.hosting import Arrived, Hosting, tagged_rows
from whenabouts.core.protocol import NO_WATERMARK, Demand
from whenabouts.core.stores import DictStore
from whenabouts.spark_plugin.tagged_rows import tagged_batch
from whenabouts.spark_plugin.workers import begin_task

GroupFunction = Callable[[tuple[pa.Scalar, ...], Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def bucket_batch(hosting: Hosting) -> GroupFunction:
    """What `applyInArrow` calls for each bucket. (A plain function: Spark counts arguments, a method's self too.)"""

    def run(key: tuple[pa.Scalar, ...], packed: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        operator = hosting.operator()
        arrived = Arrived()
        for batch in packed:
            columns = (batch.column(name).to_pylist() for name in ("kind", "rows", "blob"))
            arrived.take(operator, zip(*columns, strict=True))
        step = operator.step(DictStore(), arrived.arrivals, NO_WATERMARK, Demand.END)
        for row in tagged_rows(step, arrived, operator, hosting.query.inputs):
            yield tagged_batch([row])

    return run

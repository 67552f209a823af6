"""A job that gets whenabouts from `--py-files` or `--packages` alone: `spark-submit ... shipped_job.py FOLDER SOURCE`.

SOURCE is the format that it reads the events as: whenabouts or parquet.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import whenabouts as wa
from whenabouts.spark_plugin import write_stream


def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The path from which a worker has loaded the package."""
    import whenabouts as wa

    assert wa.Point("t") == wa.Point("t")  # an import from another part of the package
    yield pa.record_batch({"file": [str(wa.__file__)]})


def main(folder: Path, source: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    files = [row.file for row in spark.range(1).mapInArrow(where, "file string").collect()]
    (folder / "where.txt").write_text("\n".join([str(wa.__file__), *files]))
    query = {"left_time": wa.Point("t"), "right_time": wa.Point("t"), "condition": wa.within("2 s", confidence=1)}
    events, options = str(folder / "events"), {"time": "t"} if source == "whenabouts" else {}
    batch = spark.read.format(source).options(**options).load(events)
    pq.write_table(wa.timing_join(batch, batch, **query).toArrow(), folder / "batch.parquet")  # type: ignore[arg-type]
    stream = spark.readStream.format(source).options(**options).schema(batch.schema).load(events)
    pairs = wa.timing_join(stream, stream, **query, lateness=wa.Lateness(), buckets=2)  # type: ignore[arg-type]
    writer = write_stream(pairs, str(folder / "checkpoint")).format("parquet").trigger(availableNow=True)
    writer.start(str(folder / "sink")).awaitTermination()
    pq.write_table(spark.read.parquet(str(folder / "sink")).toArrow(), folder / "stream.parquet")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

"""A job that has whenabouts from `--py-files` alone: `spark-submit ... shipped_job.py FOLDER`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import whenabouts.core
from whenabouts.core import Lateness, Point, within
from whenabouts.spark_plugin import timing_join, write_stream


def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """From where a worker has the package."""
    import whenabouts.core

    yield pa.record_batch({"file": [str(whenabouts.core.__file__)]})


def main(folder: Path) -> None:
    spark = SparkSession.builder.getOrCreate()
    files = [row.file for row in spark.range(1).mapInArrow(where, "file string").collect()]
    (folder / "where.txt").write_text("\n".join([str(whenabouts.core.__file__), *files]))
    query = {"left_time": Point("t"), "right_time": Point("t"), "condition": within("2 s", confidence=1)}
    batch = spark.read.format("whenabouts").option("time", "t").load(str(folder / "events"))
    pq.write_table(timing_join(batch, batch, **query).toArrow(), folder / "batch.parquet")  # type: ignore[arg-type]
    stream = spark.readStream.format("whenabouts").option("time", "t").load(str(folder / "events"))
    pairs = timing_join(stream, stream, **query, lateness=Lateness(), buckets=2)  # type: ignore[arg-type]
    writer = write_stream(pairs, str(folder / "checkpoint")).format("parquet").trigger(availableNow=True)
    writer.start(str(folder / "sink")).awaitTermination()
    pq.write_table(spark.read.parquet(str(folder / "sink")).toArrow(), folder / "stream.parquet")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

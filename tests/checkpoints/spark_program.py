"""A run of the streams on Spark: `python spark_program.py FOLDER` reads FOLDER/events and ends.

A restart, by any release, continues from FOLDER/checkpoints. Rows go to FOLDER/rows/<query>/<batch>.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from pyspark.sql import DataFrame

from checkpoints import queries
from whenabouts.spark_plugin import coalesce, local_session, timing_join, window_join, write_with_rejects


def results(events: DataFrame) -> Iterator[tuple[str, DataFrame]]:
    """The queries' results by name."""
    for name, options in queries.TIMING_JOINS.items():
        yield name, timing_join(events, events, **options, lateness=queries.TWO_STREAMS, buckets=2)
    streams = dict.fromkeys("abc", events)
    yield "window", window_join(streams, **queries.WINDOW_JOIN, lateness=queries.ONE_STREAM, buckets=2)
    yield "coalesce", coalesce(events, **queries.COALESCE, lateness=queries.ONE_STREAM, buckets=2)


def main(folder: str) -> None:
    """Run each query over all available events."""
    spark = local_session("a life")
    columns = "t_min timestamp, t_max timestamp, kind string, k bigint, level bigint, id bigint"
    events = spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).parquet(f"{folder}/events")
    for name, result in results(events):

        def write_rows(rows: DataFrame, number: int, name: str = name) -> None:
            rows.write.mode("overwrite").parquet(f"{folder}/rows/{name}/{number}")

        def drop(rows: DataFrame, number: int) -> None:
            """There are no rejects."""

        writer = write_with_rejects(result, write_rows, drop, checkpoint=f"{folder}/checkpoints/{name}")
        writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""One run of a streaming program, written as in the documentation: `python one_life.py SPARK FOLDER CALL`.

`SPARK` is the address of a Spark Connect server, or `local`; `CALL` the function that makes the writer. The program
takes in what files there are in FOLDER/events and ends; started again, it continues from FOLDER/checkpoint.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession

from whenabouts.core import Interval, Lateness, within
from whenabouts.spark_plugin import local_session, timing_join, write_stream, write_with_rejects

TIME = Interval("t_min", "t_max", max_uncertainty="5 s")
QUERY = {"left_time": TIME, "right_time": TIME, "condition": within("4 s", confidence=0.6), "on": "k"}


def main(address: str, folder: str, call: str) -> None:
    spark = local_session("a life") if address == "local" else SparkSession.builder.remote(address).getOrCreate()
    columns = "t_min timestamp, t_max timestamp, k bigint, id bigint"
    events = spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).parquet(f"{folder}/events")
    pairs = timing_join(events, events, **QUERY, lateness=Lateness("1 minute", "1 minute"), buckets=2)  # type: ignore[arg-type]
    pairs = pairs.where("probability > 0").alias("likely")  # programs use their results
    if call == "write_stream":
        writer = write_stream(pairs, f"{folder}/checkpoint").format("parquet").option("path", f"{folder}/sink")
    else:

        def write_rows(rows: DataFrame, number: int) -> None:
            rows.write.mode("overwrite").parquet(f"{folder}/rows/{number}")

        def write_rejects(rows: DataFrame, number: int) -> None:
            rows.write.mode("overwrite").parquet(f"{folder}/rejects/{number}")

        writer = write_with_rejects(pairs, write_rows, write_rejects, checkpoint=f"{folder}/checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

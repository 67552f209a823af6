"""Early answers of a stream, merged into a Delta table as docs/coalescing.md does it.

`python merge_into_delta.py CODE FOLDER JAR ...`: CODE is a file with that page's function `merge`. FOLDER/events has
the stream, one file for each micro-batch; FOLDER/tables gets the rows of the table after each one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from delta.tables import DeltaTable
from pyspark.sql import DataFrame

from whenabouts.spark_plugin import coalesce, local_session


def main(code: str, folder: str, *jars: str) -> None:
    spark = local_session(
        "early answers in a Delta table",
        spark__jars=",".join(jars),
        spark__sql__extensions="io.delta.sql.DeltaSparkSessionExtension",
        spark__sql__catalog__spark_catalog="org.apache.spark.sql.delta.catalog.DeltaCatalog",
        spark__sql__warehouse__dir=f"{folder}/warehouse",
        spark__databricks__delta__snapshotPartitions=1,  # instead of 50 tasks for each look at a small table
    )
    names: dict[str, Any] = {"spark": spark, "DeltaTable": DeltaTable}
    exec(Path(code).read_text(encoding="utf-8"), names)
    merge: Callable[[DataFrame, int], None] = names["merge"]

    def merge_twice(changes: DataFrame, batch_id: int) -> None:
        merge(changes, batch_id)
        merge(changes, batch_id)  # a batch that failed after it had been merged is merged again
        pq.write_table(spark.table("lamps").toArrow(), f"{folder}/tables/{batch_id}.parquet")

    readings = spark.readStream.schema("room string, t timestamp, lamp string").option("maxFilesPerTrigger", 1)
    events = readings.parquet(f"{folder}/events")
    changes = coalesce(events, time="t", group="room", values="lamp", lateness="10 s", buckets=2, emit="early")
    DeltaTable.createIfNotExists(spark).tableName("lamps").addColumns(changes.drop("op").schema).execute()
    writer = changes.writeStream.foreachBatch(merge_twice).option("checkpointLocation", f"{folder}/checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

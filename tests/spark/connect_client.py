"""A client of Spark Connect: `python connect_client.py ADDRESS FOLDER` writes its results."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import window

from whenabouts.core import Interval, Lateness, QueryError, within
from whenabouts.spark_plugin import metrics, register_sql, rejects, timing_join, write_stream, write_with_rejects

TIME = Interval("t_min", "t_max", max_uncertainty="5 s")
QUERY = {"left_time": TIME, "right_time": TIME, "condition": within("4 s", confidence=0.6), "on": "k"}


def main(address: str, folder: Path) -> None:
    spark = SparkSession.builder.remote(address).getOrCreate()
    source = str(folder / "events")

    batch = spark.read.parquet(source)
    pairs = timing_join(batch, batch, **QUERY)  # type: ignore[arg-type]
    pq.write_table(pairs.toArrow(), folder / "batch.parquet")
    derived = pairs.where("id_left > 0").select("id_left")
    pq.write_table(rejects(derived).toArrow(), folder / "rejects.parquet")
    assert {row.name for row in metrics(derived).collect()} >= {"rows_in", "rows_processed", "rows_rejected"}

    replayed = spark.readStream.format("whenabouts").options(time="t_min,t_max", maxRowsPerTrigger="15").load(source)
    stream = timing_join(replayed, replayed, **QUERY, lateness=Lateness(), buckets=2)  # type: ignore[arg-type]
    writer = write_stream(stream, str(folder / "checkpoint")).format("parquet")
    writer.trigger(availableNow=True).start(str(folder / "sink")).awaitTermination()
    pq.write_table(spark.read.parquet(str(folder / "sink")).toArrow(), folder / "stream.parquet")
    write_stream(stream, str(folder / "checkpoint"))  # may continue

    files = spark.readStream.schema(batch.schema).parquet(source)
    windows = files.withWatermark("t_max", "5 seconds").groupBy(window("t_max", "1 minute"), "k").count()
    windows = windows.selectExpr("window.start as t_min", "window.end as t_max", "k")
    windows.createOrReplaceTempView("windows")
    for hidden, told in (
        (windows, "on column 't_max'"),
        (spark.table("windows"), "on column 't_max'"),
        (stream, "inner timing join on k"),
    ):
        with pytest.raises(QueryError, match=f"WA-2052: .*{told}"):
            timing_join(hidden, files, **QUERY, lateness=Lateness())  # type: ignore[arg-type]

    out = str(folder)

    def write_rows(rows: DataFrame, number: int) -> None:
        rows.write.mode("append").parquet(f"{out}/rows")

    def write_rejects(rows: DataFrame, number: int) -> None:
        rows.write.mode("append").parquet(f"{out}/bad")

    both = timing_join(files, files, **QUERY, lateness=Lateness(), buckets=2)  # type: ignore[arg-type]
    split = write_with_rejects(both, write_rows, write_rejects, checkpoint=str(folder / "split"))
    split.trigger(availableNow=True).start().awaitTermination()
    pq.write_table(spark.read.parquet(f"{out}/bad").toArrow(), folder / "split.parquet")

    register_sql(spark)
    batch.createOrReplaceTempView("events")
    call = "TABLE(SELECT 'x' AS side, * FROM events), left => 'x', right => 'x', on => 'k', time => 't_min,t_max'"
    table = spark.sql(f"SELECT * FROM timing_join({call}, within => '4 s', confidence => 0.6)").toArrow()
    pq.write_table(table, folder / "sql.parquet")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

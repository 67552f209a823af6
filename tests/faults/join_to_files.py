"""The program that is killed: a full outer timing join of two folders of files, as a stream, into a Parquet sink.

`python join_to_files.py FOLDER`: everything lies in FOLDER, so that starting it again goes on. A query that fails is
started again in the same Spark, and its failure noted in FOLDER/failures. Rows that a worker takes in are noted in
FOLDER/seen, one file for each worker; at the end FOLDER/result.parquet holds what the sink holds. Workers dawdle before
and behind the join, so that there is time to kill them while they are at it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import sleep

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from whenabouts.core import Interval, Lateness, within
from whenabouts.core.timing_join import TimingJoin
from whenabouts.spark_plugin import local_session, run
from whenabouts.spark_plugin.end_of_input import EndOfInput, run_to_end

TIME = Interval("t_min", "t_max", max_uncertainty="2 s")
QUERY = TimingJoin(
    left_time=TIME,
    right_time=TIME,
    on="k",
    how="full_outer",
    condition=within("3 s", confidence=0.6),
    lateness=Lateness("20 s", "20 s"),
)
PAUSE_S = 0.5
COLUMNS = "id bigint, k bigint, t_min timestamp, t_max timestamp"


def main(folder: Path) -> None:
    # A JVM that is killed before long has no use for its slow compiler.
    spark = local_session("killed", spark__driver__extraJavaOptions="-XX:TieredStopAtLevel=1")
    spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    while not ends(spark, folder):
        pass
    pq.write_table(spark.read.parquet(str(folder / "sink")).toArrow(), folder / "result.parquet")


def ends(spark: SparkSession, folder: Path) -> bool:
    """Run the query from its checkpoint to the end of the input; False where it failed before."""

    def stream(name: str) -> DataFrame:
        rows = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(folder / name))
        return rows.mapInArrow(noting(str(folder / "seen")), rows.schema)

    end = EndOfInput(spark, folder / "end")
    pairs = run(QUERY, [stream("left"), stream("right")], buckets=2, end_of_input=end.stream)
    pairs = pairs.mapInArrow(dawdling, pairs.schema)
    writer = pairs.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    try:
        run_to_end(writer.start(str(folder / "sink")), end)
    except StreamingQueryException as error:
        with (folder / "failures").open("a") as file:
            file.write(repr(str(error)) + "\n")
        return False
    return True


def noting(folder: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Note the rows that come by."""

    def note(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            with open(f"{folder}/{os.getpid()}", "a") as file:
                file.write("".join(f"{row}\n" for row in batch.column("id").to_pylist()))
            sleep(PAUSE_S)
            yield batch

    return note


def dawdling(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, once in a task some time later."""
    for number, batch in enumerate(batches):
        if not number:
            sleep(PAUSE_S)
        yield batch


if __name__ == "__main__":
    main(Path(sys.argv[1]))

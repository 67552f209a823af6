"""The program that is killed: a full outer timing join of two folders of files, as a stream, into a Parquet sink.

`python join_to_files.py FOLDER`: everything is in FOLDER, so that a restart continues. A query that fails is restarted
in the same Spark, and its failure recorded in FOLDER/failures. Rows that a worker reads are recorded in FOLDER/seen,
one file for each worker; at the end FOLDER/result.parquet has the contents of the sink.

To kill it, a test first sets a trap (`infra.traps`) at one of PLACES.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from infra.traps import Pass, passing, stop_if_trapped
from whenabouts.core import Interval, Lateness, within
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.spark_plugin import local_session, run, write_stream
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
PLACES = ("left", "right", "output", "done")
"""After the rows of an input in a task, at the first rows of the join's output, and after the last."""
COLUMNS = "id bigint, k bigint, t_min timestamp, t_max timestamp"


def main(folder: Path) -> None:
    # A JVM that is soon killed does not profit from its slow compiler.
    spark = local_session("killed", spark__driver__extraJavaOptions="-XX:TieredStopAtLevel=1")
    spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    while not ends(spark, folder):
        pass
    pq.write_table(spark.read.parquet(str(folder / "sink")).toArrow(), folder / "result.parquet")


def ends(spark: SparkSession, folder: Path) -> bool:
    """Run the query from its checkpoint to the end of the input; False if it failed before."""

    def stream(name: str) -> DataFrame:
        rows = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(folder / name))
        return rows.mapInArrow(noting(str(folder), name), rows.schema)

    end = EndOfInput(spark, folder / "end")
    joined = run(QUERY, [stream("left"), stream("right")], buckets=2, end_of_input=end.stream)
    pairs = joined.mapInArrow(passing(str(folder)), joined.schema)
    writer = write_stream(pairs, str(folder / "checkpoint"), of=joined)
    try:
        run_to_end(writer.format("parquet").start(str(folder / "sink")), end)
    except StreamingQueryException as error:
        with (folder / "failures").open("a") as file:
            file.write(repr(str(error)) + "\n")
        return False
    return True


def noting(folder: str, side: str) -> Pass:
    """Record the rows that pass."""

    def note(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            with open(f"{folder}/seen/{os.getpid()}", "a") as file:
                file.write("".join(f"{row}\n" for row in batch.column("id").to_pylist()))
            stop_if_trapped(folder, side)
            yield batch

    return note


if __name__ == "__main__":
    main(Path(sys.argv[1]))

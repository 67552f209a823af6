"""class_archive.py ENGINE FILE: write the classes that a stream on Spark or Flink loads to FILE, as the JVM keeps them.

A JVM that is started with `-XX:SharedArchiveFile=FILE` maps them; others read, check and link each one, a third of the
CPU of a short job. Tests start a hundred JVMs. FILE is empty if there is no such engine; Java ignores one that does not
fit.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from whenabouts.core import Point, within

TIMES: Any = {"left_time": Point("t"), "right_time": Point("t"), "condition": within("1s", confidence=1), "on": "k"}
ROWS = pa.table({"k": [1, 2], "t": pa.array([1_000_000, 5_000_000], pa.timestamp("us"))})


def of_spark(folder: Path) -> Any:
    """The JVM after a stream of two files."""
    from pyspark.sql import SparkSession

    from whenabouts.spark_plugin import timing_join

    rocksdb = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    settings: dict[str, Any] = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.stateStore.providerClass": rocksdb,
    }
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    sides = [spark.readStream.schema("k bigint, t timestamp").parquet(str(folder / side)) for side in ("a", "b")]
    pairs = timing_join(*sides, **TIMES, lateness="1s")
    writer = pairs.writeStream.option("checkpointLocation", str(folder / "checkpoint")).format("parquet")
    writer.trigger(availableNow=True).start(str(folder / "out")).awaitTermination()
    jvm = spark.sparkContext._jvm
    spark.stop()
    return jvm


def of_flink(folder: Path) -> Any:
    """The JVM after a stream of two files."""
    from pyflink.java_gateway import get_gateway

    from whenabouts.flink_plugin import collect, local_environment, read_files, timing_join

    env = local_environment(1)
    sides = [read_files(env, folder / side / "rows.parquet", name=side) for side in ("a", "b")]
    assert collect(timing_join(*sides, **TIMES, lateness="1s")).num_rows
    return get_gateway().jvm


def archive(engine: str, file: Path) -> None:
    """Run the job, and end its JVM, which then writes what it has loaded."""
    option = f" -XX:ArchiveClassesAtExit={file} -Xlog:cds=off -Xlog:cds+dynamic=off"
    for variable in ("SPARK_SUBMIT_OPTS", "JVM_ARGS"):
        os.environ[variable] = os.environ.get(variable, "") + option
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for side in ("a", "b"):
            (folder / side).mkdir()
            pq.write_table(ROWS, folder / side / "rows.parquet")
        jvm = {"spark": of_spark, "flink": of_flink}[engine](folder)
        with suppress(Exception):  # there is no answer to this call
            jvm.java.lang.System.exit(0)
        with suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)


def main(engine: str, file: Path) -> None:
    """Replace FILE at the end, so that nobody reads half of it."""
    new = file.with_suffix(".new")
    new.unlink(missing_ok=True)
    if find_spec(f"py{engine}"):
        archive(engine, new)
    else:
        new.touch()
    new.replace(file)


main(sys.argv[1], Path(sys.argv[2]).resolve())

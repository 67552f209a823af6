"""The contenders of `state_heavy.py`, each in a process of its own: it runs until its input ends or it is killed.

    python benchmarks/state_heavy_jobs.py CONTENDER FOLDER HELD DAYS SEEN [--buckets N] [--restart]

Progress is lines of JSON in FOLDER/CONTENDER/progress: the number of the step, the greatest conversion with a pair, and
number and hash of the pairs. Spark's jobs see the files of the first SEEN days and end after them; a step is a
micro-batch, and its pairs are those of the step. Flink's see all; their lines are totals, which are part of their
checkpoints.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from clicks import PRIME, SIDES, Clicks, days_of, hash_of, pair_sql, total

from whenabouts.core import Lateness, Point, deadline
from whenabouts.core.runtime.blocks import times
from whenabouts.core.runtime.protocol import NO_WATERMARK, Arrival, FlushMode
from whenabouts.core.runtime.watermarks import watermark_of
from whenabouts.core.state.memory_store import DictStore
from whenabouts.core.timing_join.query import TimingJoin

JOIN: dict[str, Any] = {
    "on": "k", "left_time": Point("t"), "right_time": Point("t"), "lateness": Lateness("1 s", "1 s"),
    "condition": deadline("28 days", since="0 s", confidence=1), "probability": False,
}  # fmt: skip
CHECKPOINT_S = {"flink-ours": 2, "flink-uncached": 2, "flink-own": 10}
"""By checkpoints the files of ours keep pace; Flink's own needs few, since each costs it."""


class Job:
    """Where a contender runs. `buckets`: of ours, or tasks of an engine's own join."""

    def __init__(self, name: str, folder: Path, stream: Clicks, seen: int, buckets: int) -> None:
        self.folder, self.files, self.stream, self.seen, self.buckets = folder / name, folder, stream, seen, buckets
        self.folder.mkdir(exist_ok=True)

    def tell(self, step: int, last: int, pairs: int, hashed: int, *, held: int = 0) -> None:
        """Write a line of progress that survives a kill. `held`: bytes of state, if they are not on disk."""
        with open(self.folder / "progress", "a", encoding="utf-8") as log:
            told = {"step": step, "last": last, "pairs": pairs, "hash": hashed, "held": held}
            log.write(json.dumps(told) + "\n")


def local_ours(job: Job) -> None:
    """Our operator in one process, a day in each step. Its state is in memory: nothing can be restarted."""
    schemas = [pq.read_schema(next(days_of(job.files, side))) for side in SIDES]
    query = TimingJoin(**JOIN)
    operator, store, watermark_us = query.operator(schemas, streaming=True), DictStore(), NO_WATERMARK
    for day, files in enumerate(zip(*(days_of(job.files, side) for side in SIDES), strict=True)):
        arrivals, latest = [], []
        for input, path in enumerate(files):
            blocks = [operator.readers[input].read(batch)[0] for batch in pq.read_table(path).to_batches()]
            arrivals += [Arrival(input, block) for block in blocks]
            latest.append(max(int(times(block)[1].max()) for block in blocks))
        step = operator.step(store, arrivals, watermark_us, FlushMode.FLUSH)
        found = [summed(batch) for batch in step.output]
        pairs, hashed = total([part[:2] for part in found])
        job.tell(day, max((part[2] for part in found), default=0), pairs, hashed, held=store.bytes_held)
        watermark_us = watermark_of(latest, query.lateness_us)


def summed(pairs: pa.RecordBatch) -> tuple[int, int, int]:
    """Number and hash of pairs, and the last conversion among them."""
    clicks, conversions = (np.asarray(pairs.column(f"id_{side}")) for side in ("left", "right"))
    return len(clicks), hash_of(clicks, conversions), int(conversions.max(initial=0))


def spark_sides(job: Job, **options: object) -> list[Any]:
    """The files of the days that may be seen, a day in each micro-batch."""
    from spark_join import FIXED

    from whenabouts.spark_plugin import local_session

    rocksdb = "spark.sql.streaming.stateStore.rocksdb."
    conf = {
        f"{rocksdb}changelogCheckpointing.enabled": True, f"{rocksdb}compression": "lz4",
        "spark.sql.streaming.minBatchesToRetain": 2, "spark.local.dir": job.folder / "local",
        "spark.sql.shuffle.partitions": job.buckets, "spark.driver.memory": os.environ.get("STATE_HEAVY_HEAP", "2g"),
        "spark.driver.extraJavaOptions": FIXED,
    }  # fmt: skip
    spark = local_session("state-heavy", **{name.replace(".", "__"): value for name, value in conf.items()}, **options)
    sides = []
    for side in SIDES:
        seen = job.folder / side
        seen.mkdir(exist_ok=True)
        for day, path in enumerate(days_of(job.files, side)):
            if day < job.seen and not (seen / path.name).exists():
                os.link(path, seen / path.name)
                os.utime(seen / path.name, (1_700_000_000 + day, 1_700_000_000 + day))
        schema = spark.read.parquet(str(next(days_of(job.files, side)))).schema
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).option("maxFileAge", "10000d")
        sides.append(reader.parquet(str(seen)))
    return sides


def spark_told(job: Job) -> Callable[[Any, int], None]:
    """A sink that hashes the pairs of a micro-batch."""
    from pyspark.sql.functions import count, expr
    from pyspark.sql.functions import max as greatest

    hashed = expr(f"sum({pair_sql('id_left', 'id_right', '({} % {}L)')})")

    def write(pairs: Any, number: int) -> None:
        found = pairs.agg(count("*"), hashed, greatest("id_right")).collect()[0]
        job.tell(number, found[2] or 0, found[0], (found[1] or 0) % PRIME)

    return write


def spark_ours(job: Job) -> None:
    """Our join, through the call that the documentation shows."""
    from whenabouts.spark_plugin import timing_join, write_stream

    pairs = timing_join(*spark_sides(job), **JOIN, buckets=job.buckets)
    writer = write_stream(pairs, str(job.folder / "checkpoint")).foreachBatch(spark_told(job))
    writer.trigger(availableNow=True).start().awaitTermination()


def spark_own(job: Job) -> None:
    """Spark's join of two streams with its newest state format."""
    from pyspark.sql.functions import expr

    sides = spark_sides(job, **{"spark__sql__streaming__join__stateFormatVersion": 4})
    left, right = (
        df.toDF(*(f"{name}_{side}" for name in df.columns)).withWatermark(f"t_{side}", "1 second")
        for side, df in zip(("left", "right"), sides, strict=True)
    )
    reach = "t_right >= t_left and t_right <= t_left + interval 28 days"
    pairs = left.join(right, expr(f"k_left = k_right and {reach}"))
    writer = pairs.writeStream.option("checkpointLocation", str(job.folder / "checkpoint"))
    writer.foreachBatch(spark_told(job)).trigger(availableNow=True).start().awaitTermination()


def flink_tables(job: Job, *, restart: bool) -> Any:
    """Two slots, RocksDB with incremental checkpoints, from the last checkpoint if it is a restart."""
    from pyflink.table import StreamTableEnvironment

    from whenabouts.flink_plugin import local_environment

    checkpoints = job.folder / "checkpoint"
    options = {
        "execution.checkpointing.interval": f"{CHECKPOINT_S[job.folder.name]} s",
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.dir": checkpoints.absolute().as_uri(),
        "execution.checkpointing.externalized_checkpoint_retention": "RETAIN_ON_CANCELLATION",
        "execution.checkpointing.timeout": "1 h", "state.backend.type": "rocksdb",
        "state.backend.rocksdb.localdir": str((job.folder / "local").absolute()),
        "taskmanager.memory.managed.size": "1g",
    }  # fmt: skip
    if job.folder.name == "flink-uncached":
        options["python.map-state.read-cache-size"] = "0"
    if restart:
        done = max(checkpoints.glob("*/chk-*/_metadata"), key=lambda path: path.stat().st_mtime)
        options["execution.state_recovery.path"] = done.parent.absolute().as_uri()
    env = local_environment(2, **{name.replace(".", "__"): value for name, value in options.items()})
    tables = StreamTableEnvironment.create(env)
    for name, value in {"enabled": "true", "allow-latency": "1 s", "size": "50000"}.items():
        tables.get_config().set(f"table.exec.mini-batch.{name}", value)
    return env, tables


TOLD = "CREATE TEMPORARY TABLE told (pairs BIGINT, hashed BIGINT, latest BIGINT) WITH ('connector' = 'print')"


def flink_run(tables: Any, sums: str) -> None:
    """Let Flink print totals, which are lines of this process's output."""
    tables.execute_sql(TOLD)
    tables.execute_sql(f"INSERT INTO told {sums}").wait()


def flink_ours(job: Job, *, restart: bool) -> None:
    """Our join of files; both sides' files keep pace by checkpoints."""
    from pyflink.common import Types
    from pyflink.table import Schema

    from whenabouts.core.state.segment_codec import decode
    from whenabouts.flink_plugin import timing_join
    from whenabouts.flink_plugin.file_source import read_files

    env, tables = flink_tables(job, restart=restart)
    sides = [read_files(env, str(job.files / side), name=side, splits_per_checkpoint=1) for side in SIDES]
    pairs = timing_join(*sides, **JOIN, buckets=job.buckets)
    schema = pairs.schema

    told = pairs.stream.map(lambda blob: summed(decode(bytes(blob), schema)), Types.TUPLE([Types.LONG()] * 3))
    names = Schema.new_builder().column("f0", "BIGINT").column("f1", "BIGINT").column("f2", "BIGINT").build()
    tables.create_temporary_view("parts", tables.from_data_stream(told, names))
    flink_run(tables, "SELECT SUM(f0), SUM(f1), MAX(f2) FROM parts")


def flink_own(job: Job, *, restart: bool) -> None:
    """Flink's interval join of rows that a sequence inside the JVM makes, the cheapest source there is."""
    from pyflink.common import WatermarkStrategy
    from pyflink.datastream.connectors.number_seq import NumberSequenceSource
    from pyflink.table import Schema

    env, tables = flink_tables(job, restart=restart)
    stream, sql = job.stream, job.stream.sql()
    t_ms = sql["t_ms"].replace("n", "f0")
    source = NumberSequenceSource(stream.first(0), stream.first(stream.days) - 1)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "events").uid("events").set_parallelism(1)
    schema = (
        Schema.new_builder().column("f0", "BIGINT")
        .column_by_expression("n", "f0").column_by_expression("t", f"TO_TIMESTAMP_LTZ({t_ms}, 3)")
        .watermark("t", "t - INTERVAL '1' SECOND").build()
    )  # fmt: skip
    tables.create_temporary_view("events", tables.from_data_stream(numbers, schema))
    for side in SIDES:
        rows = f"SELECT n AS id, {sql[side]} AS k, t FROM events WHERE {sql[f'of_{side}']}"
        tables.create_temporary_view(side, tables.sql_query(rows))
    pairs = """SELECT l.id AS id_left, r.id AS id_right FROM clicks AS l JOIN conversions AS r
        ON l.k = r.k AND r.t BETWEEN l.t AND l.t + INTERVAL '28' DAY"""
    hashed = f"SUM({pair_sql('id_left', 'id_right')})"
    flink_run(tables, f"SELECT COUNT(*), {hashed}, MAX(id_right) FROM ({pairs})")


PRINTED = re.compile(r"\+[UI]\[(\d+), (\d+), (\d+)\]")


def follow(job: Job, printed: int) -> None:
    """Totals that Flink prints become lines of progress, until it ends."""
    with open(printed, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if found := PRINTED.search(line):
                pairs, hashed, last = map(int, found.groups())
                job.tell(0, last, pairs, hashed % PRIME)
            elif not line.startswith("-U"):
                print(line, end="", file=sys.stderr, flush=True)


def printing(job: Job, run: Callable[[], None]) -> None:
    """Run with what the JVM prints in a pipe that a child follows."""
    there, here = os.pipe()
    if os.fork() == 0:
        os.close(here)
        follow(job, there)
        os._exit(0)
    os.close(there)
    os.dup2(here, 1)
    os.close(here)
    run()


CONTENDERS: dict[str, Callable[..., None]] = {
    "local-ours": local_ours,
    "spark-ours": spark_ours, "spark-own": spark_own, "flink-ours": flink_ours, "flink-uncached": flink_ours,
    "flink-own": flink_own,
}  # fmt: skip


@click.command()
@click.argument("name", type=click.Choice(list(CONTENDERS)))
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("held", type=int)
@click.argument("days", type=int)
@click.argument("seen", type=int)
@click.option("--buckets", default=2, show_default=True)
@click.option("--restart", is_flag=True)
def main(name: str, folder: Path, held: int, days: int, seen: int, buckets: int, restart: bool) -> None:
    """Run a contender."""
    job = Job(name, folder, Clicks(held, days), seen, buckets)
    if not name.startswith("flink"):
        CONTENDERS[name](job)
    else:
        printing(job, lambda: CONTENDERS[name](job, restart=restart))


if __name__ == "__main__":
    main()

"""`format("whenabouts")`: Spark finds it by itself; it gives the rows of the files in batch, or as a stream with
restarts."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit
from pyspark.sql.streaming.query import StreamingQuery

from whenabouts.core import Interval, Lateness, Point, within
from whenabouts.core.local import timing_join as join_locally
from whenabouts.core.sources.replay_options import replay_of
from whenabouts.spark_plugin import timing_join
from whenabouts.spark_plugin.environment import spark_version
from whenabouts.spark_plugin.packing import FLUSH
from whenabouts.spark_plugin.replay_source import SelfCappedReader, schema_of

pytestmark = pytest.mark.slow

N = 60


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two Parquet files of several row groups, a CSV file and one of JSON lines, out of order."""
    folder = tmp_path_factory.mktemp("replay") / "events"
    folder.mkdir()
    draw = np.random.default_rng(1)
    at = pa.array(draw.integers(0, 600_000_000, N) + 1_600_000_000_000_000, pa.timestamp("us", "UTC"))
    table = pa.table({"t": at, "id": pa.array(range(N), pa.int64()), "k": pa.array(np.arange(N) % 3, pa.int64())})
    pq.write_table(table[:25], folder / "a.parquet", row_group_size=9)
    pq.write_table(table[25:50], folder / "b.parquet", row_group_size=9)
    pa.csv.write_csv(table[50:55], folder / "c.csv")
    lines = (json.dumps(row | {"t": row["t"].isoformat()}) for row in table[55:].to_pylist())
    (folder / "d.jsonl").write_text("\n".join(lines))
    return folder


OPTIONS = {"time": "t", "polling": "30 s", "disorder": "1 minute", "seed": "4"}


def written(path: Path, seconds: range) -> Path:
    """One row a second."""
    ids = np.array(seconds, np.int64)
    pq.write_table(pa.table({"t": pa.array(ids * 1_000_000, pa.timestamp("us", "UTC")), "id": ids}), path)
    return path


def local(events: Path) -> pa.Table:
    arrivals = replay_of({"path": str(events)} | OPTIONS).open().arrivals()
    return pa.concat_tables(piece.read() for piece in arrivals.slices(0, N))


def rows(table: pa.Table) -> Counter[str]:
    return Counter(map(repr, table.to_pylist()))


def test_a_batch_has_the_rows_of_the_files_with_the_bounds_of_their_times(spark: SparkSession, events: Path) -> None:
    frame = spark.read.format("whenabouts").options(**OPTIONS).load(events.as_uri())
    assert [(f.name, f.dataType.simpleString()) for f in frame.schema] == [
        ("t", "timestamp"), ("id", "bigint"), ("k", "bigint"), ("t_min", "timestamp"), ("t_max", "timestamp"),
    ]  # fmt: skip
    assert rows(frame.toArrow().cast(local(events).schema)) == rows(local(events))
    few = spark.read.format("whenabouts").schema("id int").options(**OPTIONS).load(str(events))
    assert few.toArrow()["id"].to_pylist().count(59) == 1


def test_types_that_spark_has_others_for_keep_their_values(spark: SparkSession, tmp_path: Path) -> None:
    day = pa.array([86_400_000, None], pa.date64())
    clock = pa.array([1_500, None], pa.time32("ms"))
    pq.write_table(
        pa.table({"t": pa.array([1, 2], pa.timestamp("us")), "day": day, "clock": clock}), tmp_path / "f.parquet"
    )
    frame = spark.read.format("whenabouts").options(time="t").load(str(tmp_path / "f.parquet"))
    assert [row.day for row in frame.select("day").collect()] == [dt.date(1970, 1, 2), None]
    shown = frame.selectExpr("cast(clock as string) AS shown").collect()
    assert [row.shown for row in shown] == ["00:00:01.5", None]


def test_sql_reads_it_by_options(spark: SparkSession, events: Path) -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW polled USING whenabouts "
        f"OPTIONS (path '{events}', time 't', granularity '1 minute', rounding 'up')"
    )
    told = spark.sql("SELECT count(*) AS n, min(t - t_min) AS least FROM polled").collect()[0]
    assert (told.n, told.least) == (N, dt.timedelta(minutes=1))


def test_filters_are_pushed_down_to_row_groups(spark: SparkSession, events: Path) -> None:
    frame = spark.read.format("whenabouts").options(time="t", filterPushdown="true").load(str(events))
    with pytest.raises(Exception, match=r"spark\.sql\.python\.filterPushdown\.enabled"):
        frame.where("id = 3").count()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        assert frame.where("id = 3").rdd.getNumPartitions() == 3  # of 8: one row group, and the text files
        told = frame.where("id > 40 and k in (0, 2) and id * 2 < 110").toArrow()["id"].to_pylist()
        assert sorted(told) == [i for i in range(41, 55) if i % 3 != 1]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def start(
    spark: SparkSession, events: Path, folder: Path, seen: dict[int, list[int]], **options: Any
) -> StreamingQuery:
    def write(batch: DataFrame, number: int) -> None:
        seen[number] = [row.id for row in batch.collect()]

    stream = spark.readStream.format("whenabouts").options(**(OPTIONS | options)).load(str(events))
    writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(folder / "checkpoint"))
    return writer.start()


def test_a_stream_goes_on_where_it_was_and_only_with_the_same_replay(
    spark: SparkSession, events: Path, tmp_path: Path
) -> None:
    """Micro-batches of 14 rows in order of arrival; after a restart the first one is a new one, not a replayed one."""
    seen: dict[int, list[int]] = {}
    query = start(spark, events, tmp_path, seen, maxRowsPerTrigger=14)
    while len(seen) < 2:
        assert query.isActive, query.exception()
    query.stop()
    query = start(spark, events, tmp_path, seen, maxRowsPerTrigger=14)
    query.processAllAvailable()
    query.stop()
    order = local(events)["id"].to_pylist()
    assert [sorted(seen[n]) for n in sorted(seen)] == [sorted(order[at : at + 14]) for at in range(0, N, 14)]
    query = start(spark, events, tmp_path, {}, maxRowsPerTrigger=14, seed="5")
    with pytest.raises(PySparkException, match="WA-3031"):
        query.processAllAvailable()


def test_a_pace_holds_rows_back_until_they_are_due(spark: SparkSession, events: Path, tmp_path: Path) -> None:
    """So slow that no row but the first can be due while the test runs."""
    seen: dict[int, list[int]] = {}
    query = start(spark, events, tmp_path, seen, speed="0.000001")
    query.processAllAvailable()
    query.stop()
    assert [row for number in seen for row in seen[number]] == local(events)["id"].to_pylist()[:1]


@pytest.mark.skipif((spark_version() or "") < "4.2", reason="sources in Python know no limits before Spark 4.2")
def test_available_now_takes_everything_in_capped_micro_batches(
    spark: SparkSession, events: Path, tmp_path: Path
) -> None:
    seen: dict[int, list[int]] = {}

    def write(batch: DataFrame, number: int) -> None:
        seen[number] = [row.id for row in batch.collect()]

    options: dict[str, Any] = OPTIONS | {"maxRowsPerTrigger": 25, "rowsPerSecond": "0.001"}
    stream = spark.readStream.format("whenabouts").options(**options).load(str(events))
    writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert [len(seen[n]) for n in sorted(seen)] == [25, 25, 10]


@pytest.mark.full
def test_a_join_of_replayed_streams_is_the_join_of_the_files(spark: SparkSession, events: Path, tmp_path: Path) -> None:
    """The disorder of the replay is within the lateness of the join: no row is late.

    Rows without a partner are emitted too, since the streams signal their ends by flush rows, which are not events.
    """
    times = Interval("t_min", "t_max", max_uncertainty="30 s")
    query: dict[str, Any] = {"left_time": times, "right_time": times, "condition": within("20 s", confidence=0.5)}
    query["how"] = "left_outer"
    late = Lateness("1 minute", "1 minute")
    table = local(events).select(["id", "t_min", "t_max"])
    other = table.filter(pa.compute.less(table["id"], 8))
    want = join_locally(table, other, **query).select(["id_left", "id_right", "probability"])
    sides = [
        spark.readStream.format("whenabouts")
        .options(**OPTIONS, maxRowsPerTrigger=30, endOfInput="true")
        .load(str(events))
        for _ in range(2)
    ]
    left, right = (side.select("_wa_end_of_input", "id", "t_min", "t_max") for side in sides)
    right = right.where("id < 8 or _wa_end_of_input")
    found: list[pa.Table] = []

    def write(batch: DataFrame, number: int) -> None:
        found.append(batch.select("id_left", "id_right", "probability").toArrow())

    pairs = timing_join(left, right, **query, lateness=late, buckets=2)
    running = pairs.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    running.processAllAvailable()
    running.stop()
    assert 0 < want["id_right"].null_count < want.num_rows
    assert rows(pa.concat_tables(found).cast(want.schema)) == rows(want)


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_the_end_of_a_replay_is_signalled_once(rows: int, tmp_path: Path) -> None:
    """An offset at the number of rows is the end, as in checkpoints of before, unless there are none."""
    path = written(tmp_path / "events.parquet", range(rows))
    options = {"path": str(path), "time": "t", "endOfInput": "true"}
    reader = SelfCappedReader(replay_of({"path": str(path), "time": "t"}), schema_of(options), most=2)
    offsets = [reader.initialOffset()]
    while (offset := reader.latestOffset()) != offsets[-1]:
        offsets.append(offset)
        reader.partitions(*offsets[-2:])
    given = [
        flush
        for first, last in itertools.pairwise(offsets)
        for partition in reader.partitions(first, last)
        for batch in reader.read(partition)
        for flush in batch.column(FLUSH).to_pylist()
    ]
    assert given == [False] * rows + [True]
    assert offsets[-1]["row"] == max(rows, 1)


@pytest.mark.full
@pytest.mark.parametrize("before", [True, False], ids=["old checkpoint", "new query"])
def test_a_replay_without_rows_signals_its_end(spark: SparkSession, tmp_path: Path, before: bool) -> None:
    """Outer rows of the other input are emitted, also after a checkpoint in which the end could not be signalled."""
    some, none = written(tmp_path / "some.parquet", range(5)), written(tmp_path / "none.parquet", range(0))
    found: list[int] = []

    def run(*, ends: bool) -> None:
        def source(path: Path, ends: bool) -> DataFrame:
            stream = (
                spark.readStream.format("whenabouts").options(time="t", endOfInput=str(ends).lower()).load(str(path))
            )
            return stream if ends else stream.withColumn(FLUSH, lit(False))

        left, right = source(some, True), source(none, ends)
        pairs = timing_join(
            left, right, left_time=Point("t"), right_time=Point("t"), condition=within("1 s", confidence=1),
            how="left_outer", lateness="1 minute", buckets=2,
        )  # fmt: skip
        writer = pairs.writeStream.foreachBatch(lambda rows, _: found.extend(row.id_left for row in rows.collect()))
        running = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        running.processAllAvailable()
        running.stop()

    if before:
        run(ends=False)  # the offsets are those of a release that did not count the flush row
        assert '"row":0' in (tmp_path / "checkpoint" / "offsets" / "0").read_text().replace(" ", "")
        assert not found
    for _ in range(2):
        run(ends=True)
    assert sorted(found) == list(range(5))


def test_what_makes_no_sense_is_refused_when_the_source_is_loaded(spark: SparkSession, events: Path) -> None:
    with pytest.raises(PySparkException, match=r"WA-2006: option 'speeed' .*rowsPerSecond, speed"):
        spark.readStream.format("whenabouts").options(time="t", speeed="2").load(str(events))
    with pytest.raises(PySparkException, match="WA-1041"):
        spark.read.format("whenabouts").options(time="t").load("s3://bucket/events")


def test_the_stub_loads_next_to_nothing() -> None:
    import subprocess

    code = (
        "import sys, pyspark.sql.datasource, pyspark.sql.types; before = set(sys.modules); import pyspark_whenabouts;"
        "sys.exit(len(set(sys.modules) - before) > 1)"
    )
    path = {"PYTHONPATH": ":".join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=path, check=False).returncode == 0

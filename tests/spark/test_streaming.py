"""Streaming queries over files, one file of every side in each micro-batch."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr, window
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from whenabouts.core import Interval, Lateness, Point, within
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.harness import Variant
from whenabouts.core.local import run_stream
from whenabouts.core.runtime.protocol import Query
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.spark_plugin import run, timing_join, watch_clock, write_stream, write_with_rejects
from whenabouts.spark_plugin.bucket_labels import partition_of
from whenabouts.spark_plugin.environment import PROVIDER_CONF, ROCKSDB
from whenabouts.spark_plugin.harness import SparkHarness
from whenabouts.spark_plugin.observing import PrintProgress, line, metrics_of

StreamOf = Callable[[Sequence[pa.Table]], DataFrame]

SECOND = 1_000_000
NOW = 1_600_000_000 * SECOND


def _points(*seconds: float, base: int = NOW) -> pa.Table:
    at = [base + round(s * SECOND) for s in seconds]
    return pa.table({"t": pa.array(at, pa.timestamp("us", "UTC")), "id": pa.array(range(len(at)), pa.int32())})


JOIN = TimingJoin(left_time=Point("t"), right_time=Point("t"), condition=within("1 s", confidence=1))


def _finish(writer: DataStreamWriter, folder: Path) -> StreamingQuery:
    query = writer.option("checkpointLocation", (folder / "checkpoint").as_uri()).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def _dropped(query: StreamingQuery) -> list[int]:
    return [op["numRowsDroppedByWatermark"] for step in query.recentProgress for op in step["stateOperators"]]


def test_a_clock_that_steps_is_told_in_foreach_batch_and_in_the_metrics(stream_of: StreamOf, tmp_path: Path) -> None:
    seen = np.arange(257) * SECOND
    seen[-1] += 3_600 * SECOND  # so that the watermark passes the others
    rows = pa.table(
        {
            "seen": pa.array(NOW + seen, pa.timestamp("us", "UTC")),
            "t": pa.array(NOW + seen + np.where(seen < 128 * SECOND, 0, 60 * SECOND), pa.timestamp("us", "UTC")),
            "k": np.ones(257, np.int64),
        }
    )
    steps = watch_clock(stream_of([rows, rows.slice(256)]), reading="t", against="seen", group="k", lateness="5 s")
    told: list[Any] = []
    query = _finish(
        write_with_rejects(steps, lambda rows, _: told.extend(rows.collect()), lambda rows, _: None), tmp_path
    )
    assert [(row.k, row.kind, row.row, row.by_us) for row in told] == [(1, "step", 129, 60 * SECOND)]
    shown: Counter[str] = sum((metrics_of(progress) for progress in query.recentProgress), Counter())
    assert (shown["clock_steps"], shown["clock_misfits"], shown["matched"]) == (1, 0, 1)


def test_late_rows_are_rejected_by_us_and_never_dropped_by_spark(
    spark: SparkSession, stream_of: StreamOf, tmp_path: Path
) -> None:
    r"""
    left    0 s | 10 s | 3 s late, 8 s in time      watermark in step 2: 10 s - 5 s
    right   0 s | 10 s | 3 s late, 8 s in time
    """
    spark.conf.unset(PROVIDER_CONF)
    steps = [_points(0), _points(10), _points(3, 8)]
    pairs = timing_join(stream_of(steps), stream_of(steps), **_fields(JOIN), lateness=Lateness("5 s", "5 s"), buckets=1)
    assert spark.conf.get(PROVIDER_CONF) == ROCKSDB  # the call ensures it
    seen: list[tuple[str, Any]] = []
    totals: Counter[str] = Counter()

    def write_rows(rows: DataFrame, number: int) -> None:
        seen.extend(("pair", row.t_left.timestamp()) for row in rows.collect())

    def write_rejects(rows: DataFrame, number: int) -> None:
        seen.extend((f"{row.code} {row.input}", row.t.timestamp()) for row in rows.collect())

    def write_counts(rows: DataFrame, number: int) -> None:
        for row in rows.collect():
            totals[row.name] += row.value

    printed = StringIO()
    listener = PrintProgress(printed)
    spark.streams.addListener(listener)
    query = _finish(write_with_rejects(pairs, write_rows, write_rejects, write_counts), tmp_path)
    start = NOW / SECOND
    assert Counter(seen) == Counter(
        [*(("pair", start + s) for s in (0, 10, 8)), ("WA-1010 left", start + 3), ("WA-1010 right", start + 3)]
    )
    assert len(_dropped(query)) >= 3
    assert set(_dropped(query)) == {0}
    assert (totals["rows_in"], totals["rows_processed"], totals["rows_rejected"], totals["rows_late"]) == (8, 6, 2, 2)
    shown: Counter[str] = sum((metrics_of(progress) for progress in query.recentProgress), Counter())
    assert {name: totals[name] for name in shown if shown[name]} == {name: n for name, n in shown.items() if n}
    assert shown["rows_in"] == 8
    assert shown["rows_rejected_WA-1010"] == 2
    assert [metrics_of(p)["state_rows_left"] for p in query.recentProgress][:3] == [1, 2, 2]
    third = query.recentProgress[2]
    ((name, row),) = third.observedMetrics.items()
    assert name.endswith(": inner timing join: -1 s <= right - left <= 1 s with confidence 1")
    assert row.counts == {name: n for name, n in metrics_of(third).items() if n}
    told = line(third, metrics_of(third))
    assert "4 rows in, 1 out, 2 rejected, 2 of them late, state 4 rows, 0.0 MB, watermark " in told
    try:
        for _ in range(1_800):  # Spark notifies its listeners asynchronously, also of streams that have ended
            if told in printed.getvalue().splitlines():
                break
            sleep(0.1)
    finally:
        spark.streams.removeListener(listener)
    assert told in printed.getvalue().splitlines()


def test_a_micro_batch_without_rejects_plans_no_work_for_them(stream_of: StreamOf, tmp_path: Path) -> None:
    steps = [_points(0), _points(10), _points(3)]
    pairs = timing_join(stream_of(steps), stream_of(steps), **_fields(JOIN), lateness=Lateness("5 s", "5 s"), buckets=1)
    works: list[bool] = []
    schemas = set()

    def write_rejects(rows: DataFrame, number: int) -> None:
        works.append("MapInArrow" in rows._jdf.queryExecution().optimizedPlan().toString())
        schemas.add(rows.schema.simpleString())

    _finish(write_with_rejects(pairs, lambda rows, _: None, write_rejects), tmp_path)
    assert works[:3] == [False, False, True], "the third has late rows"
    assert len(schemas) == 1


def test_code_of_a_stream_is_kept_while_another_one_runs(
    spark: SparkSession, stream_of: StreamOf, tmp_path: Path
) -> None:
    left, right = (stream_of([_points(step, step + 0.5) for step in range(0, 40, 10)]) for _ in range(2))
    ours = timing_join(left, right, **_fields(JOIN), lateness=Lateness("1 s", "1 s"))
    timed = [df.toDF(f"t_{n}", f"id_{n}").withWatermark(f"t_{n}", "1 second") for n, df in enumerate((left, right))]
    own = timed[0].join(timed[1], expr("id_0 = id_1 and t_1 between t_0 - interval 1 second and t_0"))
    jvm: Any = spark._jvm
    compiled = jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()

    def newly_compiled(rows: DataFrame, name: str) -> int:
        before = compiled.getCount()
        _finish(rows.writeStream.format("noop"), tmp_path / name)
        return int(compiled.getCount() - before)

    newly_compiled(ours, "ours")
    newly_compiled(own, "own")
    assert newly_compiled(ours, "ours again") == 0


def test_labels_go_where_spark_says(spark: SparkSession) -> None:
    rows = spark.sql("select cast(id as int) as n, pmod(hash(cast(id as int)), 7) as p from range(-50, 500)").collect()
    assert [row.p for row in rows] == [partition_of(row.n, 7) for row in rows]


def test_windows_can_follow_in_append_mode(stream_of: StreamOf, tmp_path: Path) -> None:
    steps = [_points(0, 1.5, 3), _points(12, 14), _points(31), _points(60)]
    pairs = timing_join(stream_of(steps), stream_of(steps), **_fields(JOIN), lateness=Lateness(), buckets=2)
    counted = pairs.groupBy(window("event_time", "10 seconds")).count()
    rows: list[tuple[float, int]] = []

    def write(batch: DataFrame, number: int) -> None:
        rows.extend((row.window.start.timestamp() - NOW / SECOND, row["count"]) for row in batch.collect())

    query = _finish(counted.writeStream.outputMode("append").foreachBatch(write), tmp_path)
    # pairs: each point with itself; the window of the last point never closes
    assert sorted(rows) == [(0, 3), (10, 2), (30, 1)]
    assert set(_dropped(query)) == {0}


@pytest.mark.full
def test_times_before_1970_are_neither_late_nor_refused(stream_of: StreamOf, tmp_path: Path) -> None:
    """Spark's watermark is 0 until the times pass 1970; it must not decide anything before, on either side of the
    epoch."""
    steps = [_points(-7200, base=0), _points(-3600, base=0), _points(-7200, 5, base=0), _points(3, 20, base=0)]
    pairs = timing_join(stream_of(steps), stream_of(steps), **_fields(JOIN), lateness=Lateness("2 s", "2 s"), buckets=1)
    found: list[tuple[float, float]] = []

    def write(batch: DataFrame, number: int) -> None:
        found.extend((row.t_left.timestamp(), row.event_time.timestamp()) for row in batch.collect())

    _finish(pairs.writeStream.foreachBatch(write), tmp_path)
    # -7200 twice: each of its two left rows meets both right rows
    assert Counter(found) == Counter([(t, t) for t in (-7200,) * 4 + (-3600, 5, 3, 20)])


def test_other_buckets_for_an_old_checkpoint_are_refused(stream_of: StreamOf, tmp_path: Path) -> None:
    one, two = stream_of([_points(0), _points(1)]), stream_of([_points(0), _points(1)])

    def start(buckets: int, steps_of: DataFrame) -> StreamingQuery:
        pairs = timing_join(steps_of, two, **_fields(JOIN), lateness=Lateness(), buckets=buckets)
        writer = pairs.writeStream.format("noop") if failed else pairs.writeStream.foreachBatch(fail_second)
        return _finish(writer, tmp_path)

    def fail_second(batch: DataFrame, number: int) -> None:
        batch.count()
        if number == 1 and not failed:
            failed.append(number)
            raise RuntimeError("once")

    failed: list[int] = []
    with pytest.raises(StreamingQueryException, match="once"):
        start(1, one)
    with pytest.raises(StreamingQueryException, match=r"\A[^\n]*WA-3003: the checkpoint holds 1 buckets"):
        start(3, one)


@pytest.mark.full
@pytest.mark.parametrize(("least", "outcome"), [(0.5, [(30.0, 31.0)]), (None, "WA-3006")])
def test_a_restart_may_change_the_confidence_down_to_the_least_declared(
    stream_of: StreamOf, tmp_path: Path, least: float | None, outcome: list[tuple[float, float]] | str
) -> None:
    """Intervals of 2 s that end 1 s apart are within 1 s with probability 1/2. New rows meet those of the old query."""
    ends = [[10], [20], [30], [31]]  # left has 10 and 30, right 20 and 31; the fourth step fails at first
    tables = [
        pa.table({"a": [NOW + (end - 2) * SECOND for end in at], "b": [NOW + end * SECOND for end in at]})
        for at in ends
    ]
    nothing = tables[0].slice(0, 0)
    left = stream_of([tables[0], nothing, tables[2], nothing])
    right = stream_of([nothing, tables[1], nothing, tables[3]])
    found: list[tuple[float, float]] = []
    failed: list[int] = []

    def start(confidence: float, least: float | None, *, lacking: bool = False) -> None:
        times = Interval("a", "b", max_uncertainty="2 s")
        pairs = timing_join(
            left, right, left_time=times, right_time=times, condition=within("1 s", confidence=confidence),
            lateness=Lateness("1 s", "1 s"), min_confidence=least, buckets=1,
        )  # fmt: skip
        writer = write_stream(pairs, (tmp_path / "checkpoint").as_uri())
        writer = writer.format("noop") if lacking else writer.foreachBatch(write)
        writer.trigger(availableNow=True).start().awaitTermination()

    def write(batch: DataFrame, number: int) -> None:
        rows = [((row.b_left - NOW) / SECOND, (row.b_right - NOW) / SECOND) for row in batch.collect()]
        if number == 3 and not failed:
            failed.append(number)
            raise RuntimeError("once")
        found.extend(rows)

    with pytest.raises(StreamingQueryException, match="once"):
        start(0.9, least)
    assert found == []
    if isinstance(outcome, str):
        with pytest.raises(StreamingQueryException, match=rf"\A[^\n]*{outcome}: "):
            start(0.5, None, lacking=True)
    else:
        start(0.5, least)
        assert found == outcome


# --- Through the conformance harness --------------------------------------------------------------------------------


def _files(count: int, *, seed: int) -> list[pa.Table]:
    """Rows in order of time, with an interval each, in `count` files, one of them empty."""
    rng = np.random.default_rng(seed)
    rows = [(NOW + int(rng.integers(0, 1000)) * 1_000, i % 3, i % 2) for i in range(60)]
    rows.sort()
    table = pa.table(
        {
            "t0": pa.array([t for t, _, _ in rows], pa.timestamp("us", "UTC")),
            "t1": pa.array([t + k * 40_000 for t, k, _ in rows], pa.timestamp("us", "UTC")),
            "k": pa.array([k for _, k, _ in rows], pa.int64()),
            "v": pa.array([v for _, _, v in rows], pa.int16()),
        }
    )
    size = -(-60 // (count - 1))
    files = [table.slice(i * size, size) for i in range(count - 1)]
    return [*files[:1], table.slice(0, 0), *files[1:]]


INTERVAL = Interval("t0", "t1", max_uncertainty="100 ms")
QUERIES: dict[str, tuple[Query, list[list[pa.Table]]]] = {
    "join": (
        TimingJoin(
            left_time=INTERVAL, right_time=INTERVAL, on="k", condition=within("30 ms", confidence=0.5), strategy="lazy",
            lateness=Lateness("200 ms", "200 ms"),
        ),
        [_files(4, seed=1), _files(3, seed=2)],
    ),
    "extents": (
        Coalesce(time="t0", group="k", values="v", window="300 ms", slide="100 ms", lateness="10 ms"),
        [_files(4, seed=3)],
    ),
}  # fmt: skip


def _multiset(table: pa.Table) -> Counter[str]:
    return Counter(map(repr, table.to_pylist()))


@pytest.mark.full
@pytest.mark.parametrize("kind", ["join", "extents"])
def test_a_stream_that_loses_a_micro_batch_ends_with_the_rows_of_the_local_engine(
    spark: SparkSession, kind: str
) -> None:
    query, files = QUERIES[kind]
    want = run_stream(query, files)
    harness = SparkHarness()
    harness.start()
    job = harness.open(query, Variant(streaming=True, parallelism=2, restart_after=2))
    for name, tables in zip(query.inputs, files, strict=True):
        job.source(name, tables)
    got = job.collect()
    harness.stop()
    assert want.output.num_rows > 10
    assert got.output.schema.equals(want.output.schema)
    assert _multiset(got.output) == _multiset(want.output)
    assert got.rejects.num_rows == 0
    assert got.metrics["rows_in"] == got.metrics["rows_processed"] == sum(t.num_rows for f in files for t in f)
    assert sorted(job.attempts.values())[-2:] == [1, 2]  # exactly one micro-batch did its work twice
    assert spark.sql("select 1").count() == 1  # the harness leaves a session that it did not start


def test_extents_come_out_by_timer_before_the_input_ends(stream_of: StreamOf, tmp_path: Path) -> None:
    """An extent is final once the watermark has passed it, even if its own bucket gets no more rows."""
    rows = [("a", 0), ("b", 0), ("b", 10), ("b", 20), ("b", 30)]
    steps = [
        pa.table({"k": [k], "t": pa.array([NOW + t * SECOND], pa.timestamp("us", "UTC")), "v": [1]}) for k, t in rows
    ]
    query = Coalesce(time="t", group="k", values="v", window="5 s", slide="5 s", closed="right", lateness=0)
    out: dict[int, list[tuple[str, float]]] = {}

    def write(batch: DataFrame, number: int) -> None:
        out[number] = sorted((row.k, row.valid_from.timestamp() - NOW / SECOND) for row in batch.collect())

    _finish(run(query, [stream_of(steps)], buckets=64).writeStream.foreachBatch(write), tmp_path)
    assert out[3] == [("a", 0), ("b", 0)]  # the watermark of step 3 is 10 s: step 2 had brought that row
    assert [row for number in sorted(out) for row in out[number]] == [("a", 0), ("b", 0), ("b", 10), ("b", 20)]


def test_lazy_rows_wait_over_micro_batches_until_their_time_is_up(stream_of: StreamOf, tmp_path: Path) -> None:
    """The watermark of a micro-batch is the time of the rows before it. At 10 s the rows of 0 s are due, and with them
    all that wait. Those of 30 s still wait in the end."""
    query = replace(JOIN, strategy="lazy", block_size=1000, max_latency="5 s", lateness=Lateness("0 s", "0 s"))
    steps = [_points(second) for second in (0, 10, 20, 30)]
    out: dict[int, list[float]] = {}

    def write(batch: DataFrame, number: int) -> None:
        out[number] = sorted(row.t_left.timestamp() - NOW / SECOND for row in batch.collect())

    _finish(run(query, [stream_of(steps), stream_of(steps)], buckets=2).writeStream.foreachBatch(write), tmp_path)
    assert {number: rows for number, rows in out.items() if rows} == {2: [0, 10, 20]}


def _fields(query: TimingJoin) -> dict[str, Any]:
    return {"left_time": query.left_time, "right_time": query.right_time, "condition": query.condition}


def test_the_clock_of_these_tests_is_what_it_says() -> None:
    assert _points(1.5).column("t")[0].as_py() == dt.datetime(2020, 9, 13, 12, 26, 41, 500_000, dt.UTC)

"""Restarts from a checkpoint: permitted changes take effect, and others are refused before the query starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import window

from whenabouts.core import EngineError, Lateness, Point, QueryError, within
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.hosting.query_identity import VERSION
from whenabouts.core.runtime.protocol import Query
from whenabouts.core.shared_coalescing.query import SharedCoalescing
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.window_join.query import WindowJoin
from whenabouts.core.wrappers.deduplication import deduplicated
from whenabouts.core.wrappers.state_limit import StateLimit
from whenabouts.planner.text_queries import parse_query
from whenabouts.spark_plugin import asof_join, coalesce, run, timing_join, window_join, write_stream, write_with_rejects

pytestmark = pytest.mark.slow

StreamOf = Callable[[Sequence[pa.Table]], DataFrame]

SECOND = 1_000_000
NOW = 1_600_000_000 * SECOND


def events(*seconds: float) -> pa.Table:
    at = [NOW + round(s * SECOND) for s in seconds]
    return pa.table({"t": pa.array(at, pa.timestamp("us", "UTC")), "k": pa.array([1] * len(at), pa.int64())})


def keyed(*rows: tuple[int, float]) -> pa.Table:
    keys, seconds = zip(*rows, strict=True)
    return events(*seconds).set_column(1, "k", pa.array(keys, pa.int64()))


def join(left: DataFrame, right: DataFrame, **options: Any) -> DataFrame:
    given: dict[str, Any] = {
        "left_time": Point("t"), "right_time": Point("t"), "on": "k", "condition": within("1 s", confidence=1),
        "lateness": Lateness("20 s", "20 s"), "buckets": 2,
    }  # fmt: skip
    return timing_join(left, right, **(given | options))


def queries_without_lateness() -> list[Query]:
    joined = TimingJoin(left_time=Point("t"), right_time=Point("t"), condition=within("1 s", confidence=1))
    windows = WindowJoin(times={"a": Point("t"), "b": Point("t")}, windows={("a", "b"): "1 s"})
    alone = Coalesce(time="t", values="k")
    schemas = {name: events(0).schema for name in "ab"}
    texts = ("SELECT k FROM a COALESCE ON k", "SELECT a.k FROM a, b WHERE a.k = b.k AND WINDOW(a, b) = '1 s'")
    bound = [parse_query(text).bind(schemas) for text in texts]
    return [joined, windows, alone, deduplicated(joined, "k"), SharedCoalescing(queries={"q": alone}), *bound]


STEPS = [events(0), events(10), events(30, 11), events(45, 31), events(60, 38)]


@pytest.fixture
def settings(spark: SparkSession) -> Any:
    """Restores the settings of sessions."""
    names = ("spark.sql.shuffle.partitions", "spark.sql.streaming.multipleWatermarkPolicy")
    before = {name: spark.conf.get(name, None) for name in names}
    yield spark.conf
    for name, value in before.items():
        spark.conf.unset(name) if value is None else spark.conf.set(name, value)


@pytest.mark.full
def test_lateness_file_options_and_shuffle_partitions_may_change(
    stream_of: StreamOf, settings: Any, tmp_path: Path
) -> None:
    """Rows of 11, 31 and 38 s come 19, 14 and 7 s after later ones; after the restart 5 s is the limit."""
    stream, checkpoint = stream_of(STEPS), str(tmp_path / "checkpoint")
    pairs: list[float] = []
    told: Counter[str] = Counter()
    failed: list[int] = []

    def write(rows: DataFrame, number: int) -> None:
        if number == 3 and not failed:
            failed.append(number)
            raise RuntimeError("once")
        pairs.extend(row.t_left.timestamp() - NOW / SECOND for row in rows.collect())

    def write_rejects(rows: DataFrame, number: int) -> None:
        told.update(f"{row.code} {row.t.timestamp() - NOW / SECOND:g}" for row in rows.collect())

    def start(result: DataFrame) -> None:
        writer = write_with_rejects(result, write, write_rejects, checkpoint=checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()

    settings.set("spark.sql.shuffle.partitions", "2")
    with pytest.raises(StreamingQueryException, match="once"):
        start(join(stream, stream))
    settings.set("spark.sql.shuffle.partitions", "3")
    start(join(stream, stream, lateness=Lateness("5 s", "5 s"), condition=within("500 ms", confidence=1)))
    # step 2 still knew the old window: 10 and 11 s are 1 s apart, each way
    assert sorted(pairs)[:5] == [0, 10, 10, 11, 11]
    assert sorted(pairs)[5:] == [30, 31, 45, 60]  # the failed micro-batch uses the watermark before it
    assert told == {"WA-1010 38": 2}


@pytest.mark.full
def test_rows_that_wait_are_settled_by_the_query_that_continues(stream_of: StreamOf, tmp_path: Path) -> None:
    """Left rows of 0 s wait by the first queries when these end, at the watermark 17 s: for 20 s, or for their partner.

    Those after the restart ask for less. In the as-of join keys 2 to 9 have no right row; in the join of best partners
    each has one at 5 s.
    """
    every, seconds = range(2, 10), (0, 1, 17, 17.5, 18, 40)
    left = stream_of([keyed((1, s), *((k, s) for k in every if s not in (1, 40))) for s in seconds])
    right = stream_of([keyed((1, s)) for s in seconds])
    near = stream_of([keyed((1, s), *((k, 5) for k in every if s == 0)) for s in seconds])
    found: dict[str, list[tuple[int, float | None, float | None]]] = {"as-of": [], "best": []}

    def start(name: str, result: DataFrame, *, fails: bool) -> None:
        def write(rows: DataFrame, number: int) -> None:
            if number == 4 and fails:
                raise RuntimeError("once")
            for row in rows.collect():
                ends = [t and t.timestamp() - NOW / SECOND for t in (row.t_left, row.t_right)]
                found[name].append((row.k, *ends))

        writer = write_stream(result, str(tmp_path / name)).foreachBatch(write)
        writer.trigger(availableNow=True).start().awaitTermination()

    def nearest(tolerance: str) -> DataFrame:
        options: dict[str, Any] = {"on": "k", "direction": "nearest", "tolerance": tolerance, "lateness": "0 s"}
        return asof_join(left, right, left_time=Point("t"), right_time=Point("t"), buckets=3, **options)

    def both(window: str) -> DataFrame:
        condition = within(window, confidence=1)
        return join(left, near, best="both", how="full_outer", condition=condition, lateness="0 s", buckets=3)

    for name, first, then in (("as-of", nearest("20 s"), nearest("4 s")), ("best", both("15 s"), both("6 s"))):
        with pytest.raises(StreamingQueryException, match="once"):
            start(name, first, fails=True)
        assert [row for row in found[name] if row[0] != 1] == []
        start(name, then, fails=False)
        expected = [(k, s, 5 if s == 0 and name == "best" else None) for k in every for s in (0, 17, 17.5, 18)]
        assert sorted(row for row in found[name] if row[0] != 1) == expected


@pytest.mark.parametrize("takes", [0, 1])
def test_functions_of_write_with_rejects_may_leave_rows_unread(stream_of: StreamOf, tmp_path: Path, takes: int) -> None:
    """The first micro-batch is looked at. The second is written before the query fails, and left out when repeated."""
    steps = [keyed(*((k, second) for k in range(8))) for second in (0, 10, 20)]
    stream = stream_of(steps)
    written: dict[int, int] = {}

    def write(rows: DataFrame, number: int) -> None:
        if number in written:
            return
        written[number] = rows.count() if number else len(rows.take(1)) if takes else 0
        if number == 1:
            raise RuntimeError("once")

    def start() -> None:
        pairs = join(stream, stream, buckets=4)
        writer = write_with_rejects(pairs, write, lambda rows, number: None, checkpoint=str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(StreamingQueryException, match="once"):
        start()
    start()
    assert [written[number] for number in range(3)] == [takes, 8, 8]


def _consume(batch: DataFrame, number: int) -> None:
    batch.count()


def test_another_query_is_refused_before_it_starts(
    stream_of: StreamOf, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, checkpoint = stream_of(STEPS[:2]), str(tmp_path / "checkpoint")
    pairs = join(stream, stream)
    counted = pairs.groupBy(window("event_time", "10 seconds")).count()
    writer = write_stream(counted, checkpoint)  # there is no checkpoint yet
    writer = writer.foreachBatch(_consume)
    writer.trigger(availableNow=True).start().awaitTermination()
    with pytest.raises(EngineError, match=r"WA-3032.*how was 'inner' and is 'left_outer'"):
        write_stream(counted, checkpoint, of=join(stream, stream, how="left_outer"))
    write_stream(join(stream, stream, condition=within("5 s", confidence=0.5), strategy="eager"), checkpoint)
    wider = stream.selectExpr("t", "k", "1 as more")
    others: list[tuple[DataFrame, str]] = [
        (join(stream, stream, how="left_outer"), r"WA-3032.*how was 'inner' and is 'left_outer'"),
        (join(stream, stream, on=None), r"WA-3032.*on was \('k',\) and is \(\)"),
        (join(wider, stream), r"WA-3032.*column 'more' of the left input was absent and is int32"),
        (join(stream, stream, buckets=3), r"WA-3003: the checkpoint holds 2 buckets of keys.*give buckets=2"),
        (coalesce(stream, time="t", values="k", window="5 s", lateness="0 s", buckets=2), "WA-3032.* a Coalesce"),
    ]
    for other, told in others:
        with pytest.raises(EngineError, match=told):
            write_stream(other, checkpoint)
    with monkeypatch.context() as later:
        later.setattr("whenabouts.core.hosting.query_identity.VERSION", VERSION + 1)
        with pytest.raises(EngineError, match=f"WA-3003: .* has version {VERSION} of the layout"):
            write_stream(pairs, checkpoint)
    foreign = str(tmp_path / "foreign")
    query = stream.writeStream.foreachBatch(_consume).option("checkpointLocation", foreign)
    query.trigger(availableNow=True).start().awaitTermination()
    with pytest.raises(EngineError, match=r"WA-3032.*it holds no state of ours"):
        write_stream(pairs, foreign)


def test_what_cannot_work_is_refused_in_a_code(stream_of: StreamOf, settings: Any, tmp_path: Path) -> None:
    stream = stream_of(STEPS[:1])
    for mode in ("complete", "update"):
        with pytest.raises(QueryError, match=f"WA-2053: output mode '{mode}'"):
            write_stream(join(stream, stream), str(tmp_path / "checkpoint"), output_mode=mode)
    with pytest.raises(QueryError, match="WA-2051"):
        join(stream, stream, lateness=None)
    with pytest.raises(QueryError, match="WA-2051"):
        window_join({"a": stream, "b": stream}, time=Point("t"), windows={("a", "b"): "1 s"})
    with pytest.raises(QueryError, match=r"WA-2051.*give lateness=.10 s."):
        coalesce(stream, time="t", values="k")
    for query in queries_without_lateness():
        with pytest.raises(QueryError, match="WA-2051"):
            run(query, [stream] * len(query.inputs))
    with pytest.raises(QueryError, match=r"WA-2052: the right input has a watermark of its own, on column 't'"):
        join(stream, stream.withWatermark("t", "5 seconds"))
    windows = stream.withWatermark("t", "5 seconds").groupBy(window("t", "1 minute"), "k").count()
    windows.selectExpr("window.end as t", "k").createOrReplaceTempView("windows")
    for hidden in (windows.selectExpr("window.end as t", "k"), stream.sparkSession.table("windows")):
        with pytest.raises(QueryError, match=r"WA-2052: the left input .* on column 't'.*after an aggregation"):
            join(hidden, stream)
    for kept in (stream.dropDuplicates(["k"]), stream.limit(3)):
        join(kept, stream)  # stateful, but without a watermark
    for columns in (["t_left as t", "k_left as k", "event_time"], ["t_left as t", "k_left as k"]):
        with pytest.raises(QueryError, match=r"WA-2052: the left input .* inner timing join: .*write its rows"):
            join(join(stream, stream, on=None).selectExpr(*columns), stream)
    with pytest.raises(EngineError, match=r"WA-3005: .*No FileSystem for scheme .nosuch.*the file system's JARs"):
        write_stream(join(stream, stream), "nosuch://bucket/checkpoint")
    settings.set("spark.sql.streaming.multipleWatermarkPolicy", "max")
    with pytest.raises(QueryError, match=r"WA-2052: .*multipleWatermarkPolicy is max"):
        join(stream, stream)


@pytest.mark.full
def test_state_keeps_to_its_bound(stream_of: StreamOf, tmp_path: Path) -> None:
    """Two rows of each side arrive; the limit is three rows in all, and can be raised on restart."""
    stream = stream_of([events(0, 1), events(2, 3)])
    rejected: list[str] = []
    totals: Counter[str] = Counter()

    def start(limit: StateLimit, checkpoint: str) -> None:
        writer = write_with_rejects(
            join(stream, stream, state_limit=limit),
            lambda rows, number: None,
            lambda rows, number: rejected.extend(row.code for row in rows.collect()),
            lambda counts, number: totals.update({row.name: row.value for row in counts.where("value > 0").collect()}),
            checkpoint=str(tmp_path / checkpoint),
        )
        writer.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(
        StreamingQueryException, match=r"\A[^\n]*WA-3033: 4 rows arrive in a bucket that has room for 3"
    ):
        start(StateLimit(3), "fail")
    start(StateLimit(8), "fail")
    assert rejected == []
    totals.clear()
    start(StateLimit(3, "shed"), "shed")
    assert rejected == ["WA-1042"] * 5
    assert totals["rows_shed"] == totals["rows_rejected"]

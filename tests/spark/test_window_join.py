"""`window_join` as Spark users call it; the conformance suite checks its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import window

from whenabouts.core import EngineError, Point, QueryError
from whenabouts.spark_plugin import rejects, window_join

NOW = 1_600_000_000 * 1_000_000
WINDOWS = {("a", "b"): "2 s", ("b", "c"): ("0 s", "5 s")}


def _points(*seconds: float | None) -> pa.Table:
    at = [None if s is None else NOW + round(s * 1_000_000) for s in seconds]
    ids = pa.array(range(len(at)), pa.int32())
    return pa.table({"t": pa.array(at, pa.timestamp("us", "UTC")), "id": ids, "k": pa.array([1] * len(at))})


def test_a_batch_with_a_predicate_and_rejects(batch_of: Callable[[pa.Table], DataFrame]) -> None:
    frames = {"a": batch_of(_points(0, 10)), "b": batch_of(_points(1, 11, None)), "c": batch_of(_points(2, 5, 12))}
    different = {("a", "c"): lambda a, c: pc.not_equal(a["id"], c["id"])}
    found = window_join(frames, on="k", time=Point("t"), windows=WINDOWS, predicates=different)
    assert found.columns == ["t_a", "id_a", "k", "t_b", "id_b", "t_c", "id_c", "t_first", "t_last"]
    rows = found.select("id_a", "id_b", "id_c").collect()
    assert sorted(map(tuple, rows)) == [(0, 0, 1), (1, 1, 2)]
    assert [(row["input"], row["code"]) for row in rejects(found).collect()] == [("b", "WA-1003")]
    in_sql = {("a", "c"): "a.id <> c.id AND c.t > a.t + INTERVAL '1' SECOND"}
    same = window_join(frames, on="k", time=Point("t"), windows=WINDOWS, predicates=in_sql)
    assert sorted(map(tuple, same.select("id_a", "id_b", "id_c").collect())) == [(0, 0, 1), (1, 1, 2)]
    with pytest.raises(QueryError, match="WA-2092: line 1, column 8"):
        window_join(frames, on="k", time=Point("t"), windows=WINDOWS, predicates={("a", "c"): "a.id < c.idd"})


def test_the_last_instant_carries_the_watermark_on(
    spark: SparkSession, stream_of: Callable[[Sequence[pa.Table]], DataFrame], tmp_path: Path
) -> None:
    """Counts of ten seconds by `t_last` are emitted in append mode once the streams have passed them."""
    steps = [(0, 3), (11, 14), (60, 61), (120, 121)]
    frames = {name: stream_of([_points(*step) for step in steps]) for name in "abc"}
    found = window_join(frames, on="k", time=Point("t"), windows=WINDOWS, lateness="0 s")
    counted = found.groupBy(window("t_last", "10 seconds")).count()
    writer = counted.writeStream.format("memory").queryName("counted").outputMode("append")
    query = writer.option("checkpointLocation", (tmp_path / "checkpoint").as_uri()).trigger(availableNow=True).start()
    query.awaitTermination()
    rows = spark.sql("SELECT unix_seconds(window.start) - 1600000000 AS start, count FROM counted").collect()
    assert sorted(map(tuple, rows))[:2] == [(0, 3), (10, 3)]


def test_what_cannot_be_is_said_in_the_driver(
    batch_of: Callable[[pa.Table], DataFrame], stream_of: Callable[[Sequence[pa.Table]], DataFrame]
) -> None:
    frames = {"a": batch_of(_points(0)), "b": stream_of([_points(1)])}
    with pytest.raises(EngineError, match="WA-3004"):
        window_join(frames, time=Point("t"), windows={("a", "b"): 1})
    with pytest.raises(QueryError, match="WA-2006"):
        window_join(frames, time={"a": Point("t")}, windows={("a", "b"): 1})

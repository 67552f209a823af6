"""Objects that Spark's functions cannot accept are refused with a code before any session is used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pandas as pd
import pyarrow as pa
import pytest

import whenabouts.spark_plugin as on_spark
from whenabouts.core import Point, WhenaboutsError, within
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.spark_plugin import kafka

TABLE = pa.table({"t": [1]})
JOIN: dict[str, Any] = {"left_time": Point("t"), "right_time": Point("t"), "condition": within(1, confidence=1)}
RUNS: dict[str, Any] = {"time": "t", "values": "v", "window": 5, "slide": 1}
WRONG = (None, "table", b"x", 4, Path("/data"), TABLE, TABLE.to_pandas(), pd.Series([1]), [], {}, object(), int)
CALLS: dict[str, Callable[[Any], Any]] = {
    "timing_join": lambda wrong: on_spark.timing_join(wrong, wrong, **JOIN),
    "window_join": lambda wrong: on_spark.window_join({"a": wrong}, time=Point("t"), windows={("a", "b"): 1}),
    "window_join of a list": lambda wrong: on_spark.window_join(wrong, time=Point("t"), windows={("a", "b"): 1}),
    "coalesce": lambda wrong: on_spark.coalesce(wrong, **RUNS),
    "temporal_aggregate": lambda wrong: on_spark.temporal_aggregate(wrong, **RUNS, aggregates={"m": "max"}),
    "temporal_join": lambda wrong: on_spark.temporal_join(wrong, wrong, **RUNS),
    "watch_clock": lambda wrong: on_spark.watch_clock(wrong, reading="t", against="t"),
    "run": lambda wrong: on_spark.run(TimingJoin(**JOIN), [wrong, wrong]),
    "run of a list": lambda wrong: on_spark.run(TimingJoin(**JOIN), wrong),
    "run of a query": lambda wrong: on_spark.run(wrong, []),
    "rejects": lambda wrong: on_spark.rejects(wrong),
    "metrics": lambda wrong: on_spark.metrics(wrong),
    "write_stream": lambda wrong: on_spark.write_stream(wrong, "/checkpoint"),
    "write_with_rejects": lambda wrong: on_spark.write_with_rejects(wrong, print, print),
    "register_sql": lambda wrong: on_spark.register_sql(wrong),
    "metrics_of": lambda wrong: on_spark.metrics_of(wrong),
    "local_session": lambda wrong: on_spark.local_session(cores=wrong if wrong != 4 else "4"),
}


@pytest.mark.parametrize("name", CALLS)
def test_another_object_is_refused_with_a_code(name: str) -> None:
    for wrong in WRONG:
        if name == "local_session" and isinstance(wrong, (pd.DataFrame, pd.Series)):
            continue  # the test's own comparison
        with pytest.raises(WhenaboutsError, match=r"^WA-(1062|2006): "):
            CALLS[name](wrong)


@pytest.mark.parametrize("wrong", [None, 4, b"id", {"id": 1}, ["id", 4]])
def test_a_key_of_a_topic_that_names_no_columns_is_refused(wrong: Any) -> None:
    with pytest.raises(WhenaboutsError, match="WA-2006: key is "):
        kafka.topic_writer("broker:9092", "pairs", key=wrong)


def test_the_key_of_a_topic_may_be_the_name_of_one_column(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(kafka, "col", asked.append)
    for name in ("struct", "to_json", "lit"):
        monkeypatch.setattr(kafka, name, MagicMock())
    kafka.topic_writer("broker:9092", "pairs", key="id")(MagicMock(columns=[]), 0)
    assert asked == ["`id`"]

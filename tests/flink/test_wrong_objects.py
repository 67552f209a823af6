"""Objects that Flink's functions cannot accept are refused with a code before any environment is created."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import whenabouts.flink_plugin as on_flink
from whenabouts.core import Point, WhenaboutsError, within
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.flink_plugin.kafka import topic_sink

TABLE = pa.table({"t": [1]})
JOIN: dict[str, Any] = {"left_time": Point("t"), "right_time": Point("t"), "condition": within(1, confidence=1)}
RUNS: dict[str, Any] = {"time": "t", "values": "v", "window": 5, "slide": 1, "lateness": 0}
WRONG = (None, "table", b"x", Path("/data"), TABLE, TABLE.to_pandas(), pd.Series([1]), [], {}, object(), int)
CALLS: dict[str, Callable[[Any], Any]] = {
    "timing_join": lambda wrong: on_flink.timing_join(wrong, wrong, **JOIN),
    "window_join": lambda wrong: on_flink.window_join({"a": wrong}, time=Point("t"), windows={("a", "b"): 1}),
    "window_join of a list": lambda wrong: on_flink.window_join(wrong, time=Point("t"), windows={("a", "b"): 1}),
    "coalesce": lambda wrong: on_flink.coalesce(wrong, **RUNS),
    "temporal_aggregate": lambda wrong: on_flink.temporal_aggregate(wrong, **RUNS, aggregates={"m": "max"}),
    "temporal_join": lambda wrong: on_flink.temporal_join(wrong, wrong, **RUNS),
    "watch_clock": lambda wrong: on_flink.watch_clock(wrong, reading="t", against="t"),
    "run": lambda wrong: on_flink.run(TimingJoin(**JOIN), [wrong, wrong]),
    "run of a list": lambda wrong: on_flink.run(TimingJoin(**JOIN), wrong),
    "run of a query": lambda wrong: on_flink.run(wrong, []),
    "rejects": lambda wrong: on_flink.rejects(wrong),
    "metrics": lambda wrong: on_flink.metrics(wrong),
    "read_files": lambda wrong: on_flink.read_files(wrong, "events.parquet"),
    "local_environment": lambda wrong: on_flink.local_environment(wrong),
}


@pytest.mark.parametrize("name", CALLS)
def test_another_object_is_refused_with_a_code(name: str) -> None:
    for wrong in WRONG:
        with pytest.raises(WhenaboutsError, match=r"^WA-(1062|2006): "):
            CALLS[name](wrong)


@pytest.mark.parametrize("wrong", [None, 4, b"id", {"id": 1}, ["id", 4]])
def test_a_key_of_a_topic_that_names_no_columns_is_refused(wrong: Any) -> None:
    with pytest.raises(WhenaboutsError, match="WA-2006: key is "):
        topic_sink(None, "broker:9092", "pairs", key=wrong)

"""Every operator that the adapter adds to a job has a uid, which never changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyflink.common import Types
from pyflink.datastream import DataStream, StreamExecutionEnvironment
from pyflink.java_gateway import get_gateway
from pyflink.table import StreamTableEnvironment, Table

from whenabouts.core import Lateness, Point, within
from whenabouts.flink_plugin import coalesce, metrics, rejects, timing_join
from whenabouts.flink_plugin.blocks import Blocks
from whenabouts.flink_plugin.file_source import read_files
from whenabouts.flink_plugin.mini_cluster import PROCESS, THREAD, local_environment

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

JOIN: Any = {
    "on": "k",
    "left_time": Point("t"),
    "right_time": Point("t"),
    "condition": within("1 s", confidence=1),
    "lateness": Lateness(left="1 h", right="1 h"),
    "name": "one",
}
RUNS: Any = {"time": "t", "group": "k", "values": "t", "window": "1h", "lateness": "1h", "name": "other"}

STRICT = {"pipeline__auto_generate_uids": "false", "table__exec__uid__generation": "ALWAYS"}
"""Flink refuses a job with an operator that has no uid; what its planner makes of Tables gets uids of its own."""


def _blocks(env: StreamExecutionEnvironment, folder: Path) -> list[Blocks]:
    pq.write_table(pa.table({"k": [1], "t": [1]}), folder / "rows.parquet")
    return [read_files(env, folder / "rows.parquet", name=name) for name in ("left", "right", "readings")]


def _tables(env: StreamExecutionEnvironment, zone: str = "UTC") -> list[Table]:
    tables = StreamTableEnvironment.create(env)
    tables.get_config().set("table.local-time-zone", zone)
    tables.execute_sql(
        "CREATE TEMPORARY TABLE made (k BIGINT, t AS TO_TIMESTAMP_LTZ(k, 3), WATERMARK FOR t AS t) WITH ('connector' = "
        "'datagen', 'fields.k.kind' = 'sequence', 'fields.k.start' = '1', 'fields.k.end' = '3')"
    )
    return [tables.from_path("made")] * 3


def _rows(env: StreamExecutionEnvironment) -> list[DataStream]:
    type_ = Types.ROW_NAMED(["k", "t"], [Types.LONG(), Types.LONG()])
    made = [env.from_collection([(1, 1)], type_) for _ in range(3)]
    for place, stream in enumerate(made):
        stream._j_data_stream.getTransformation().setUid(f"mine-{place}")
    return made


def _queries(env: StreamExecutionEnvironment, folder: Path, form: str) -> None:
    """Two queries in one job, with sinks for rows, rejects and counts."""
    sources: list[Any]
    watermarks = "source" if form.startswith("event times") else "lateness"
    if form == "blocks":
        sources = _blocks(env, folder)
    elif "table" in form:
        sources = _tables(env, "Europe/Berlin" if form.endswith("in Berlin") else "UTC")
    else:
        sources = _rows(env)
    pairs = timing_join(*sources[:2], **JOIN, watermarks=watermarks)
    runs = coalesce(sources[2], **RUNS, watermarks=watermarks)
    nowhere = get_gateway().jvm.org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink
    results = [pairs, rejects(pairs), rejects(pairs), metrics(pairs), runs, rejects(runs)]
    for place, result in enumerate(results):
        stream = result.stream if isinstance(result, Blocks) else result
        if isinstance(stream, Table):
            stream = stream._t_env.to_data_stream(stream)
        stream._j_data_stream.sinkTo(nowhere()).uid(f"mine-to-{place}")


def _expected(form: str) -> set[str]:
    """Every savepoint has them: the state of an operator whose uid changes is lost."""
    steps = ["blocks"] if form.startswith("event times") else ["blocks", "watermarks", "packed"]
    if form == "event times of rows":
        steps.append("event-times")
    found = {f"{side}-{step}" for side in ("one-left", "one-right", "other-events") for step in steps}
    given = {f"{query}-{what}" for query in ("one", "other") for what in ("output", "rejects")}
    if form != "blocks":
        found |= {f"{side}-columns" for side in ("one-left", "one-right", "other-events")}
        given |= {f"{uid}-{what}" for uid in given for what in (TABLE if "table" in form else ROWS)}
    return found | given | {"one", "other", "one-calls", "other-calls", "one-counts"}


TABLE, ROWS = ("spread", "spread-rows"), ("row-columns", "rows")
TIMED = [f"event times of {form}" for form in ("rows", "tables", "tables in Berlin")]


@pytest.mark.parametrize(
    ("form", "mode"), [(form, THREAD) for form in ("blocks", "rows", "tables", *TIMED)] + [("blocks", PROCESS)]
)
def test_every_operator_has_a_uid(tmp_path: Path, form: str, mode: str) -> None:
    env = local_environment(2, mode=mode, **STRICT)
    _queries(env, tmp_path, form)
    graph = env._j_stream_execution_environment.getStreamGraph(False)
    nodes = [(node.getOperatorName(), node.getTransformationUID()) for node in graph.getStreamNodes().toArray()]
    assert [name for name, uid in nodes if uid is None] == []
    ours = [uid for _, uid in nodes if uid.startswith(("one", "other"))]
    assert sorted(ours) == sorted(_expected(form))
    env._generate_stream_graph(clear_transformations=True).getJobGraph()  # refused by Flink if a chain of them has none

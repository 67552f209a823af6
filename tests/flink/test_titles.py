"""Plans and the web UI describe a query: its kind, its keys, its condition and its confidence."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyflink.table import StreamTableEnvironment
from pyflink.table.expressions import col

from whenabouts.core import Point, within
from whenabouts.flink_plugin import rejects, timing_join
from whenabouts.flink_plugin.mini_cluster import THREAD, local_environment

pytestmark = pytest.mark.filterwarnings("ignore")

JOIN: Any = {
    "on": "k",
    "left_time": Point("t"),
    "right_time": Point("t"),
    "condition": within("2 s", confidence=0.6),
    "lateness": "5 s",
}
TITLE = "alarms: inner timing join on k: -2 s <= right - left <= 2 s with confidence 0.6"


def test_explain_and_the_job_graph_say_what_is_joined() -> None:
    tables = StreamTableEnvironment.create(local_environment(1, mode=THREAD))
    rows = tables.sql_query("SELECT 1 AS k, TIMESTAMP '2024-05-01 00:00:00' AS t")
    pairs = timing_join(rows, rows, **JOIN, name="alarms")
    plan = pairs.where(col("k") > 0).explain()
    assert plan.count(TITLE) == 3  # as written, as optimised, and as executed
    assert f"rejects of {TITLE}" in rejects(pairs).explain()
    tables.to_data_stream(pairs)
    graph = json.loads(pairs._t_env._j_tenv.execEnv().getExecutionPlan())
    assert [node["contents"] for node in graph["nodes"]].count(TITLE) == 1
    names = [str(t.getName()) for t in pairs._t_env._j_tenv.execEnv().getTransformations()]
    assert "alarms" in names  # metrics use the name, which stays short

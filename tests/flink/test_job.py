"""A job as its operators see it: counts in Flink's metrics, and a restart from a savepoint."""

from __future__ import annotations

import json
import time
import urllib.request
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyflink.common import JobClient, Types
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.java_gateway import get_gateway

from infra.processes import free_port
from whenabouts.core import Point, within
from whenabouts.core.metrics import shown
from whenabouts.flink_plugin import metrics, rejects, timing_join
from whenabouts.flink_plugin.blocks import Blocks
from whenabouts.flink_plugin.file_source import read_files
from whenabouts.flink_plugin.mini_cluster import THREAD, local_environment
from whenabouts.flink_plugin.row_streams import rows_of

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

FILES, READ = 6, 4
"""Files of a side, and how many the job reads before its first checkpoint."""


def _files(folder: Path, name: str) -> Path:
    """In each file a row of two keys each, and one without a time."""
    (folder / name).mkdir()
    for number in range(FILES):
        t = pa.array([1_000_000 * number, 1_000_000 * number + 1, None], pa.int64())
        pq.write_table(pa.table({"k": [0, 1, 2], "t": t}), folder / name / f"{number}.parquet")
    return folder / name


def _rest(port: int, path: str) -> Any:
    """The answer of Flink's REST interface."""
    with urllib.request.urlopen(f"http://localhost:{port}/jobs{path}", timeout=10) as answer:
        return json.load(answer)


def _metrics(port: int, job: str) -> dict[str, int]:
    """The counts of the running operator, summed over its subtasks, without Flink's prefix of the names."""
    found: dict[str, int] = {}
    for vertex in _rest(port, f"/{job}")["vertices"]:
        where = f"/{job}/vertices/{vertex['id']}/subtasks/metrics"
        names = {metric["id"]: metric["id"].rpartition(".")[2] for metric in _rest(port, where)}
        ours = [name for name in names if names[name] in shown(("left", "right"))]
        if ours:
            found |= {names[told["id"]]: int(told["sum"]) for told in _rest(port, f"{where}?get={','.join(ours)}")}
    return found


def _wait_for(port: int, job: str, expected: dict[str, int]) -> dict[str, int]:
    """The operator's counts, once they are at least the expected ones."""
    deadline = time.monotonic() + 60
    found: dict[str, int] = {}
    while any(found.get(name, 0) < count for name, count in expected.items()):
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
        found = _metrics(port, job)
    return found


def _savepoint(job: JobClient, folder: Path) -> str:
    """The place of a savepoint. (PyFlink's own method asks Java for a form that Flink 2 does not have.)"""
    canonical = get_gateway().jvm.org.apache.flink.core.execution.SavepointFormatType.CANONICAL
    return str(job._j_job_client.triggerSavepoint(str(folder), canonical).get())


def _join(folder: Path, parallelism: int, **conf: object) -> tuple[StreamExecutionEnvironment, Blocks]:
    """Pairs of a key that are a second apart at most: of the same file, and of one with the next."""
    env = local_environment(parallelism, mode=THREAD, restart_strategy__type="none", **conf)
    sides = [read_files(env, folder / name, splits_per_checkpoint=READ // 2, name=name) for name in ("left", "right")]
    time_, condition = Point("t"), within("1 s", confidence=1)
    pairs = timing_join(*sides, on="k", left_time=time_, right_time=time_, condition=condition, lateness=0)
    assert isinstance(pairs, Blocks)
    return env, pairs


def test_counts_are_in_flinks_metrics_and_a_savepoint_goes_on_with_another_parallelism(tmp_path: Path) -> None:
    for name in ("left", "right"):
        _files(tmp_path, name)
    port = free_port()
    often = {"execution__checkpointing__interval": "1 h", "metrics__fetcher__update_interval": "50 ms"}
    env, pairs = _join(tmp_path, 1, rest__port=port, **often)
    assert rows_of(pairs) is rows_of(pairs)
    for rows in (rows_of(pairs), rows_of(rejects(pairs)), metrics(pairs)):
        rows.print()
    job = env.execute_async("counts")
    expected = {"rows_in": 24, "rows_rejected": 8, "rows_processed": 16, "matched": 20, "rows_rejected_WA-1003": 8}
    found = _wait_for(port, str(job.get_job_id()), expected)
    assert {name: found[name] for name in expected} == expected
    assert found["rows_stored"] - found["rows_evicted"] == found["state_rows_left"] + found["state_rows_right"] > 0
    assert found["state_bytes_left"] > 0
    savepoint = _savepoint(job, tmp_path / "savepoints")
    job.cancel().result()

    _, pairs = _join(
        tmp_path, 2, execution__checkpointing__interval="100 ms", execution__state_recovery__path=savepoint
    )
    seconds = Types.TUPLE([Types.LONG(), Types.LONG()])
    times = rows_of(pairs).map(lambda row: (row["t_left"] // 1_000_000, row["t_right"] // 1_000_000), seconds)
    with times.execute_and_collect() as rows:
        rest = list(rows)
    assert (len(rest), set(rest)) == (12, {(3, 4), (4, 3), (4, 4), (4, 5), (5, 4), (5, 5)})

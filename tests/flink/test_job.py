"""What a job looks like to those who run it: every operator has a uid, the counts are in Flink's metrics."""

from __future__ import annotations

import json
import socket
import time
import urllib.request
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from whenabouts.core import Point, within
from whenabouts.flink_plugin.api import counts, rejects, timing_join
from whenabouts.flink_plugin.file_source import read_files
from whenabouts.flink_plugin.mini_cluster import PROCESS, THREAD, local_environment
from whenabouts.flink_plugin.row_streams import rows_of

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

READ = 3
"""Files that the job reads; it waits for a checkpoint before the fourth, and there is none."""


def _files(folder: Path, name: str) -> Path:
    """In each file a row of two keys each, and one without a time."""
    (folder / name).mkdir()
    for number in range(READ + 1):
        t = pa.array([1_000_000 * number, 1_000_000 * number + 1, None], pa.int64())
        pq.write_table(pa.table({"k": [0, 1, 2], "t": t}), folder / name / f"{number}.parquet")
    return folder / name


def _free_port() -> int:
    with socket.socket() as asked:
        asked.bind(("localhost", 0))
        port: int = asked.getsockname()[1]
        return port


def _metrics(port: int, operator: str) -> dict[str, int]:
    """The counts of the running operator, summed over its subtasks, from Flink's REST interface."""

    def get(path: str) -> Any:
        with urllib.request.urlopen(f"http://localhost:{port}/jobs{path}", timeout=10) as answer:
            return json.load(answer)

    found: dict[str, int] = {}
    for job in get("")["jobs"]:
        for vertex in get(f"/{job['id']}")["vertices"]:
            where = f"/{job['id']}/vertices/{vertex['id']}/subtasks/metrics"
            ids = [metric["id"] for metric in get(where) if metric["id"].startswith(f"{operator}.")]
            if ids:
                values = get(f"{where}?get={','.join(ids)}")
                found |= {value["id"].removeprefix(f"{operator}."): int(value["sum"]) for value in values}
    return found


@pytest.mark.parametrize("mode", [THREAD, PROCESS])
def test_every_operator_has_a_uid_and_flinks_metrics_the_counts(tmp_path: Path, mode: str) -> None:
    port = _free_port()
    env = local_environment(
        1,
        mode=mode,
        metrics__fetcher__update_interval="50 ms",
        rest__port=port,
        pipeline__auto_generate_uids="false",
    )
    sides = [
        read_files(env, _files(tmp_path, name), splits_per_checkpoint=READ, name=name) for name in ("left", "right")
    ]
    condition = within(10, confidence=1)
    pairs = timing_join(*sides, on="k", left_time=Point("t"), right_time=Point("t"), condition=condition)
    assert rows_of(pairs) is rows_of(pairs)
    for number, rows in enumerate((rows_of(pairs), rows_of(rejects(pairs)), counts(pairs))):
        rows.print().uid(f"sink {number}")
    expected = {"rows_in": 18, "rows_rejected": 6, "rows_processed": 12, "matched": 6, "rows_rejected_WA-1003": 6}
    job = env.execute_async("counts")
    try:
        deadline = time.monotonic() + 60
        found: dict[str, int] = {}
        while not expected.items() <= found.items():
            assert time.monotonic() < deadline, found
            time.sleep(0.1)
            found = _metrics(port, "timing-join")
        assert found["rows_stored"] - found["rows_evicted"] == found["state_rows_left"] + found["state_rows_right"] > 0
        assert found["state_bytes_left"] > 0
    finally:
        job.cancel().result()

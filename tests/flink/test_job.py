"""A job as its operators see it: counts in Flink's metrics, and a restart from a savepoint."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyflink.common import JobClient, Types
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.java_gateway import get_gateway

from infra.processes import free_port
from whenabouts import watch_clock
from whenabouts.core import Learned, Point, uniform, within
from whenabouts.core.metrics import shown
from whenabouts.flink_plugin import coalesce, metrics, rejects, timing_join
from whenabouts.flink_plugin.blocks import Blocks
from whenabouts.flink_plugin.counting import FLINK_NAMES
from whenabouts.flink_plugin.file_source import read_files
from whenabouts.flink_plugin.mini_cluster import THREAD, local_environment
from whenabouts.flink_plugin.row_streams import rows_of

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

STEPS = ("blocks", "watermarks", "packed")
"""The operators of an input, from its source to the operator of the query."""
FILES, READ = 6, 4
"""Files of a side, and how many the job reads before its first checkpoint."""
READINGS = 40
"""Files of readings before the first checkpoint. One more keeps their source waiting: a task that ends takes its last
counts along, if Flink has not fetched them by then."""


def _files(folder: Path, name: str) -> Path:
    """In each file a row of two keys each, and one without a time."""
    (folder / name).mkdir()
    for number in range(FILES):
        t = pa.array([1_000_000 * number, 1_000_000 * number + 1, None], pa.int64())
        pq.write_table(pa.table({"k": [0, 1, 2], "t": t}), folder / name / f"{number}.parquet")
    return folder / name


def _readings(folder: Path) -> Path:
    """Files, in each of which but the first a row that is late once the watermark has seen the file before."""
    (folder / "readings").mkdir()
    for number in range(READINGS + 1):
        pq.write_table(
            pa.table({"t": [1_000_000 * number, 0], "k": [0, 1], "v": [0, 0]}),
            folder / "readings" / f"{number:02}.parquet",
        )
    return folder / "readings"


def _watched(folder: Path) -> pa.Table:
    """Rows of two clocks, one of which steps and one of which is ever later than was learned; then one row an hour on,
    which moves the watermark past them; and a file that keeps the source waiting (two are read before a checkpoint)."""
    (folder / "watched").mkdir()
    row = np.arange(300)
    late = np.random.default_rng(3).integers(0, 10_000, (2, 300))
    late[0, 160:] += 2_000_000
    late[1, 160:] = 9_990
    rows = pa.table(
        {
            "k": np.repeat([0, 1], 300),
            "seen": np.tile(row * 1_000_000, 2),
            "t": late.ravel() + np.tile(row * 1_000_000, 2),
        }
    ).sort_by("seen")
    later = pa.table({"k": [2], "seen": [3_600_000_000], "t": [3_600_000_000]})
    for number, table in enumerate((rows, later, later)):
        pq.write_table(table, folder / "watched" / f"{number}.parquet")
    return rows


def _rest(port: int, path: str) -> Any:
    """The answer of Flink's REST interface."""
    with urllib.request.urlopen(f"http://localhost:{port}/jobs{path}", timeout=60) as answer:
        return json.load(answer)


def _metrics(port: int, job: str, operator: str = "timing-join") -> dict[str, int]:
    """What the running operator shows, summed over its subtasks, without Flink's prefix of the names."""
    found: dict[str, int] = {}
    own = ("clock_steps", "clock_misfits")
    names = (*shown(("left", "right", "events"), own), *FLINK_NAMES.values(), "numRecordsIn", "currentInputWatermark")
    for vertex in _rest(port, f"/{job}")["vertices"]:
        where = f"/{job}/vertices/{vertex['id']}/subtasks/metrics"
        shown_here = {metric["id"]: metric["id"].rpartition(".")[::2] for metric in _rest(port, where)}
        # PyFlink makes one operator of the Python functions of a task, and joins their names: the first is the query's.
        ours = [id for id, (group, name) in shown_here.items() if group.split("__")[0] == operator and name in names]
        if ours:
            asked = _rest(port, f"{where}?get={quote(','.join(ours))}")
            found |= {shown_here[told["id"]][1]: int(told["sum"]) for told in asked}
    return found


def _wait_for(port: int, job: str, expected: dict[str, int], operator: str = "timing-join") -> dict[str, int]:
    """The operator's counts, once they are at least the expected ones and have been the same for a second.

    Flink fetches one count after another, now and then: an answer may have some of before a step, some of after it.
    """
    deadline = time.monotonic() + 180
    found: dict[str, int] = {}
    since = time.monotonic()
    while any(found.get(name, 0) < count for name, count in expected.items()) or time.monotonic() < since + 1:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
        try:
            last, found = found, _metrics(port, job, operator)
        except OSError:  # no answer in time
            continue
        if found != last:
            since = time.monotonic()
    return found


def _savepoint(job: JobClient, folder: Path, form: str) -> str:
    """The place of a savepoint. (PyFlink's own method asks Java for a form that Flink 2 does not have.)"""
    forms = get_gateway().jvm.org.apache.flink.core.execution.SavepointFormatType
    return str(job._j_job_client.triggerSavepoint(str(folder), getattr(forms, form)).get())


def _join(folder: Path, parallelism: int, **conf: object) -> tuple[StreamExecutionEnvironment, Blocks]:
    """Pairs of a key that are a second apart at most: of the same file, and of one with the next."""
    env = local_environment(parallelism, mode=THREAD, restart_strategy__type="none", **conf)
    sides = [read_files(env, folder / name, splits_per_checkpoint=READ // 2, name=name) for name in ("left", "right")]
    time_, condition = Point("t"), within("1 s", confidence=1)
    pairs = timing_join(*sides, on="k", left_time=time_, right_time=time_, condition=condition, lateness=0)
    assert isinstance(pairs, Blocks)
    return env, pairs


def _alarms(folder: Path, env: StreamExecutionEnvironment) -> tuple[Blocks, dict[str, int]]:
    """The alarms of watched clocks, and how many of which kind there are in process."""
    rows = _watched(folder)
    options: dict[str, Any] = {
        "reading": "t", "against": "seen", "group": "k", "error": 0.02, "every": 10_000,
        "clock": Learned("t", 0, 0, 0, uniform("-10 ms", 0)),
    }  # fmt: skip
    kinds = Counter(watch_clock(rows, **options)["kind"].to_pylist())
    told = {"clock_steps": kinds["step"], "clock_misfits": kinds.total() - kinds["step"], "matched": kinds.total()}
    files = read_files(env, folder / "watched", splits_per_checkpoint=1, name="watched")
    alarms = watch_clock(files, lateness=0, **options)
    assert isinstance(alarms, Blocks)
    return alarms, told


def _names(port: int, job: str) -> set[str]:
    """The operators of a job as Flink's screens show them, those of one task joined by arrows, branches in brackets."""
    vertices = [vertex["name"] for vertex in _rest(port, f"/{job}")["vertices"]]
    return {name.removeprefix("Source: ") for vertex in vertices for name in re.split(" -> |, |[()]", vertex)}


@pytest.mark.parametrize(
    ("backend", "form"), [("HashMap", "CANONICAL"), pytest.param("ForSt", "NATIVE", marks=pytest.mark.full)]
)
def test_counts_are_in_flinks_metrics_and_a_savepoint_goes_on_with_another_parallelism(
    tmp_path: Path, backend: str, form: str
) -> None:
    for name in ("left", "right"):
        _files(tmp_path, name)
    port = free_port()
    often = {"execution__checkpointing__interval": "1 h", "metrics__fetcher__update_interval": "50 ms"}
    often["pipeline__auto_watermark_interval"] = "1 ms"
    kept = {"state__backend__type": backend.lower()}
    env, pairs = _join(tmp_path, 1, rest__port=port, **often, **kept)
    assert rows_of(pairs) is rows_of(pairs)
    readings = read_files(env, _readings(tmp_path), splits_per_checkpoint=READINGS // 2, name="readings")
    runs = coalesce(readings, time="t", group="k", values="v", window="1h", lateness=0)
    assert isinstance(runs, Blocks)
    alarms, told = _alarms(tmp_path, env)
    for rows in (rows_of(pairs), rows_of(rejects(pairs)), metrics(pairs), rows_of(runs), rows_of(alarms)):
        rows.print()
    job = env.execute_async("counts")
    expected = {"rows_in": 24, "rows_rejected": 8, "rows_processed": 16, "matched": 20, "rows_rejected_WA-1003": 8}
    # The watermark of the last rows comes after them; with it half of the rows leave the state.
    expected |= {"rows_stored": 16, "rows_evicted": 8}
    found = _wait_for(port, str(job.get_job_id()), expected | {"currentInputWatermark": 2_999})
    assert {name: found[name] for name in expected} == expected
    assert found["rows_stored"] - found["rows_evicted"] == found["state_rows_left"] + found["state_rows_right"] > 0
    assert found["state_bytes_left"] > 0
    assert found["numRecordsIn"] > 0
    assert found["currentInputWatermark"] in (2_999, 3_000)  # milliseconds; the last rows of both sides are at 3 s
    late = _wait_for(port, str(job.get_job_id()), {"rows_in": 2 * READINGS, "numLateRecordsDropped": 1}, "coalesce")
    assert 0 < late["numLateRecordsDropped"] == late["rows_late"] == late["rows_rejected_WA-1010"]
    assert (told["clock_steps"], told["clock_misfits"]) == (1, 2)
    shown_alarms = _wait_for(port, str(job.get_job_id()), {"rows_in": 601, **told}, "watch-clock")
    assert {name: shown_alarms[name] for name in told} == told
    documented = [*(f"timing-join-{side}-{step}" for side in ("left", "right") for step in STEPS), "timing-join"]
    assert {*documented, "left", "right", "timing-join-output", "timing-join-rejects"} <= _names(
        port, str(job.get_job_id())
    )
    assert _rest(port, f"/{job.get_job_id()}/checkpoints/config")["state_backend"] == f"{backend}StateBackend"
    savepoint = _savepoint(job, tmp_path / "savepoints", form)
    job.cancel().result()

    _, pairs = _join(
        tmp_path,
        2,
        **kept,
        execution__checkpointing__interval="100 ms",
        execution__state_recovery__path=savepoint,
        execution__state_recovery__ignore_unclaimed_state="true",  # those of coalesce and watch_clock
    )
    seconds = Types.TUPLE([Types.LONG(), Types.LONG()])
    times = rows_of(pairs).map(lambda row: (row["t_left"] // 1_000_000, row["t_right"] // 1_000_000), seconds)
    with times.execute_and_collect() as rows:
        rest = list(rows)
    assert (len(rest), set(rest)) == (12, {(3, 4), (4, 3), (4, 4), (4, 5), (5, 4), (5, 5)})

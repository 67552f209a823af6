"""A killed job continues from its last checkpoint: the file sink holds each row of the batch answer once."""

from __future__ import annotations

import os
import random
import re
import runpy
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from whenabouts.core import local

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

ROWS = 30
"""Rows of a file."""
MOST = 5
"""Splits that a job begins before it is killed, at most."""
JOB = Path(__file__).with_name("job_to_kill.py")


def test_the_job_is_restarted_as_the_documentation_says() -> None:
    page = (Path(__file__).parents[2] / "docs" / "flink.md").read_text(encoding="utf-8")
    example = page.partition("To restart a job in a new process")[2].partition("```python")[2].partition("```")[0]
    options = re.findall(r"(\w+)=", example)
    assert len(options) == 5
    job = JOB.read_text(encoding="utf-8")
    assert all(f"{option}=" in job or f'"{option}"' in job for option in options)


DOCUMENTED = {
    "left": {"account": "k", "t": "t_max", "id": "id"},
    "right": {"account": "k", "t0": "t_min", "t1": "t_max", "amount": "id"},
}
"""The columns that docs/join-aggregate.md names, and the columns that they are here."""


def _write(folder: Path, files: int, call: str) -> dict[str, pa.Table]:
    tables = {}
    for seed, name in enumerate(("left", "right")):
        draw = np.random.default_rng(seed)
        t_max = np.sort(draw.integers(0, 60_000_000, files * ROWS)) + 1_700_000_000_000_000
        longest = 2_000_000 if call == "join_aggregate" else 4_000_000
        columns = {"t_min": t_max - draw.integers(0, longest, len(t_max)), "t_max": t_max}
        columns |= {"k": draw.integers(0, 9, len(t_max)), "id": np.arange(len(t_max))}
        if call == "join_aggregate":
            columns = {documented: columns[own] for documented, own in DOCUMENTED[name].items()}
        tables[name] = pa.table(columns)
        (folder / name).mkdir()
        for number in range(files):
            pq.write_table(tables[name].slice(number * ROWS, ROWS), folder / name / f"{number:03}.parquet")
    return tables


def _start(
    folder: Path,
    mode: str,
    parallelism: int,
    backend: str,
    checkpoint: str | None,
    splits: int = 0,
    call: str = "timing_join",
) -> subprocess.Popen[bytes]:
    """The job in a session of its own, which contains only its JVM and workers."""
    command = [sys.executable, str(JOB), str(folder), mode, str(parallelism), *([checkpoint] if checkpoint else [])]
    own = {"SPLITS_LOG": str(folder / "splits.log"), "SPLITS": str(splits), "STATE_BACKEND": backend}
    own["JOB_CALL"] = call
    own["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    with open(folder / "job.log", "ab") as log:
        return subprocess.Popen(command, env=os.environ | own, stdout=log, stderr=log, start_new_session=True)


def _splits(folder: Path) -> list[str]:
    log = folder / "splits.log"
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


def _kill_after(job: subprocess.Popen[bytes], folder: Path, splits: int) -> None:
    """Kill -9 the job once it has begun the given number of splits, the last of which it does not end."""
    deadline = time.monotonic() + 300
    while len(_splits(folder)) < splits:
        assert job.poll() is None, (folder / "job.log").read_text()[-3000:]
        assert time.monotonic() < deadline, "the job does not get on"
        time.sleep(0.02)
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()


def _last_checkpoint(folder: Path) -> str | None:
    done = list(folder.glob("checkpoints/*/chk-*/_metadata"))
    return max(done, key=lambda path: path.stat().st_mtime).parent.as_uri() if done else None


def _finished_lines(folder: Path) -> Counter[str]:
    parts = [part for part in folder.glob("out/*/part-*") if ".inprogress" not in part.name]
    return Counter(line for part in parts for line in part.read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize(
    ("mode", "backend", "kills", "seed", "call"),
    [
        pytest.param("thread", "hashmap", 2, 6, "join_aggregate", marks=pytest.mark.full),
        pytest.param("thread", "hashmap", 2, 7, "folding", marks=pytest.mark.full),
        pytest.param("thread", "hashmap", 2, 5, "asof_join", marks=pytest.mark.full),
        pytest.param("thread", "forst", 2, 4, "timing_join", marks=pytest.mark.full),
        pytest.param("thread", "hashmap", 3, 0, "timing_join", marks=pytest.mark.full),
        pytest.param("process", "rocksdb", 5, 1, "timing_join", marks=pytest.mark.full),
        pytest.param("thread", "rocksdb", 5, 2, "timing_join", marks=pytest.mark.exhaustive),
        pytest.param("process", "hashmap", 7, 3, "timing_join", marks=pytest.mark.exhaustive),
    ],
)
def test_a_killed_job_gives_the_batch_answer(
    tmp_path: Path, mode: str, backend: str, kills: int, seed: int, call: str
) -> None:
    files = kills * MOST // 2 + MOST  # of a side: what all killed jobs may begin, and more than one of them besides
    tables = _write(tmp_path, files, call)
    draw = random.Random(seed)
    for number in range(kills):
        splits = len(_splits(tmp_path)) + draw.randint(2, MOST)
        job = _start(tmp_path, mode, 1 + number % 2, backend, _last_checkpoint(tmp_path), splits, call)
        _kill_after(job, tmp_path, splits)
    last = _start(tmp_path, mode, 2, backend, _last_checkpoint(tmp_path), call=call)
    assert last.wait(timeout=600) == 0, (tmp_path / "job.log").read_text()[-3000:]
    operation, options = runpy.run_path(str(JOB))["CALLS"][call]
    if call in ("timing_join", "asof_join"):
        operation = getattr(local, call)  # the others ask the tables for their engine
    expected = operation(tables["left"], tables["right"], **options).to_pylist()
    assert _finished_lines(tmp_path) == Counter(repr(list(row.values())) for row in expected)
    read = Counter(_splits(tmp_path))
    assert len(read) == 2 * files
    assert max(read.values()) > 1, "no kill came between two checkpoints"

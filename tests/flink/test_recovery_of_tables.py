"""A job of Tables that is killed continues from its last checkpoint, and is refused if its state would be ignored."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

from whenabouts.core import local

pytestmark = [pytest.mark.slow, pytest.mark.full, pytest.mark.filterwarnings("ignore")]

JOB = Path(__file__).with_name("tables_to_kill.py")
ROWS, FILES = 60, 6
PATIENCE_S = 300


def _tables() -> list[pa.Table]:
    tables = []
    for seed in (0, 1):
        draw = np.random.default_rng(seed)
        t_max = np.sort(draw.integers(0, 60_000_000, FILES * ROWS)) + 1_700_000_000_000_000
        columns = {"t_min": t_max - draw.integers(0, 4_000_000, len(t_max)), "t_max": t_max}
        tables.append(pa.table(columns | {"k": draw.integers(0, 9, len(t_max)), "id": np.arange(len(t_max))}))
    return tables


def _add_files(folder: Path, tables: list[pa.Table], numbers: range) -> None:
    """A file comes into its folder whole: the job may look at any moment."""
    for name, table in zip(("left", "right"), tables, strict=True):
        (folder / name).mkdir(exist_ok=True)
        for number in numbers:
            file = folder / f"{name}-{number}.csv"
            csv.write_csv(table.slice(number * ROWS, ROWS), file, csv.WriteOptions(include_header=False))
            file.rename(folder / name / f"{number}.csv")


def _start(folder: Path, parallelism: int, buckets: int, checkpoint: str | None = None) -> subprocess.Popen[bytes]:
    """The job in a session of its own, which contains only its JVM and workers."""
    command = [sys.executable, str(JOB), str(folder), str(parallelism), str(buckets)]
    own = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with open(folder / "job.log", "ab") as log:
        return subprocess.Popen(
            command if checkpoint is None else [*command, checkpoint],
            env=os.environ | own, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip


def _kill(job: subprocess.Popen[bytes]) -> None:
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()


def _found(folder: Path) -> Counter[tuple[int, int]]:
    """The pairs in files that are finished."""
    lines = [line for file in folder.glob("out/part-*") for line in file.read_text(encoding="utf-8").splitlines()]
    return Counter((int(left), int(right)) for left, right in (line.split(",") for line in lines))


def _wait_for(job: subprocess.Popen[bytes], folder: Path, pairs: Counter[tuple[int, int]]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while (found := _found(folder)).total() < pairs.total():
        assert job.poll() is None, (folder / "job.log").read_text()[-3000:]
        assert time.monotonic() < deadline, f"{found.total()} of {pairs.total()} pairs"
        time.sleep(0.1)
    assert found == pairs


def _last_checkpoint(folder: Path) -> str:
    done = folder.glob("checkpoints/*/chk-*/_metadata")
    return max(done, key=lambda path: path.stat().st_mtime).parent.as_uri()


def test_tables_continue_with_another_parallelism_and_not_with_other_buckets(tmp_path: Path) -> None:
    tables = _tables()
    join = runpy.run_path(str(JOB))["JOIN"]

    def wanted(files: int) -> Counter[tuple[int, int]]:
        pairs = local.timing_join(*(table.slice(0, files * ROWS) for table in tables), **join)
        return Counter(zip(pairs["id_left"].to_pylist(), pairs["id_right"].to_pylist(), strict=True))

    _add_files(tmp_path, tables, range(FILES // 2))
    job = _start(tmp_path, parallelism=2, buckets=4)
    try:
        _wait_for(job, tmp_path, wanted(FILES // 2))
        _kill(job)
        _add_files(tmp_path, tables, range(FILES // 2, FILES))
        job = _start(tmp_path, 1, 4, _last_checkpoint(tmp_path))
        _wait_for(job, tmp_path, wanted(FILES))
        _kill(job)
        job = _start(tmp_path, 2, 2, _last_checkpoint(tmp_path))
        assert job.wait(PATIENCE_S) != 0
    finally:
        if job.poll() is None:
            _kill(job)
    told = (tmp_path / "job.log").read_text()
    assert "WA-3003: the checkpoint holds 4 buckets of keys, the query asks for 2" in told, told[-3000:]
    assert _found(tmp_path) == wanted(FILES)

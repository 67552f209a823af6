"""What Flink's Python takes from its process, or writes to it: jobs in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from whenabouts.core.runtime.output_memory import MEBIBYTES

pytestmark = pytest.mark.slow

JOB = """
import sys, warnings
from pathlib import Path
from whenabouts.core import Point, within
from whenabouts.flink_plugin import collect, local_environment, metrics, read_files, timing_join

folder, mode = Path(sys.argv[1]), sys.argv[2]
env = local_environment(1, mode=mode)
left, right = (read_files(env, folder / f"{name}.parquet", name=name) for name in ("left", "right"))
pairs = timing_join(
    left, right, left_time=Point("t"), right_time=Point("t"), condition=within("1 s", confidence=1), lateness="1 s"
)
if sys.argv[3] == "pairs":
    print("rows:", collect(pairs).num_rows)
else:
    with metrics(pairs).execute_and_collect() as counts:
        print("counts:", *counts)
"""


def _run(folder: Path, mode: str, what: str, **own: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | own | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", JOB, str(folder), mode, what]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)


def _write(folder: Path, times: list[int]) -> None:
    for name in ("left", "right"):
        pq.write_table(pa.table({"t": times, "id": range(len(times))}), folder / f"{name}.parquet")


def test_a_step_whose_output_does_not_fit_ends_the_job_with_a_code(tmp_path: Path) -> None:
    """Python in the JVM has the environment of the JVM: it must be set before."""
    _write(tmp_path, [1_700_000_000_000_000 + n for n in range(2000)])
    done = _run(tmp_path, "thread", "pairs", **{MEBIBYTES: "1"})
    assert done.returncode != 0
    assert "WA-2201: at least 4,000,000 pairs of 2,000 x 2,000 rows are expected" in done.stderr
    assert MEBIBYTES in done.stderr


@pytest.mark.parametrize("mode", [pytest.param(mode, marks=pytest.mark.full) for mode in ("process", "thread")])
def test_times_that_look_like_another_unit_are_counted_and_warned_of_where_python_reads_them(
    tmp_path: Path, mode: str
) -> None:
    """That is in the client's process if the job is local and in process mode."""
    _write(tmp_path, [1_700_000_000 + n for n in range(200)])  # seconds
    done = _run(tmp_path, mode, "counts")
    assert done.returncode == 0, done.stderr
    if mode == "process":
        assert "WA-1063: time column 't' of the left input holds integers such as 1700000000" in done.stderr
    assert '"rows_doubtful_unit": 200' in done.stdout

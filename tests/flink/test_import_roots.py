"""Workers find the package wherever a job is started, also if Python does not run the hooks of editable installs."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from whenabouts.core.hosting.worker_archive import build_worker_archive

CLIENT = (
    "import os; from whenabouts.flink_plugin.mini_cluster import import_roots; print(os.pathsep.join(import_roots()))"
)
WORKER = "import whenabouts.flink_plugin.bucket_host, whenabouts.core.timing_join.operator"


def _environment(folder: Path, installed: str) -> dict[str, str]:
    """The environment of a process that finds the package this way, in a folder without it."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if installed != "as it is":
        site = Path(build_worker_archive(folder))
        if installed == "in one folder":
            with zipfile.ZipFile(site) as file:
                file.extractall(folder / "site")
            site = folder / "site"
        env["PYTHONPATH"] = str(site)
    return env


@pytest.mark.parametrize("installed", ["as it is", "in one folder", "as an archive"])
def test_a_worker_without_hooks_imports_what_the_client_tells_it(tmp_path: Path, installed: str) -> None:
    env = _environment(tmp_path, installed)
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    told = subprocess.run(
        [sys.executable, "-c", CLIENT], check=True, cwd=fresh, env=env, capture_output=True, text=True
    )
    roots = told.stdout.splitlines()[-1]
    assert all(map(os.path.isabs, roots.split(os.pathsep)))
    worker = [sys.executable, "-S", "-c", WORKER]  # -S: no site, so no hooks, as in a Python inside a JVM
    subprocess.run(worker, check=True, cwd=tmp_path, env=env | {"PYTHONPATH": roots})


JOB = """
import sys
from pyflink.table import StreamTableEnvironment
import whenabouts as wa
from whenabouts.flink_plugin import local_environment
tables = StreamTableEnvironment.create(local_environment(1, mode=sys.argv[1]))
rows = tables.sql_query("SELECT 1 AS k, TIMESTAMP '2024-05-01 00:00:01' AS t")
pairs = wa.timing_join(rows, rows, on="k", left_time=wa.Point("t"), right_time=wa.Point("t"),
                       condition=wa.within("1 s", confidence=1), lateness="5 s")
with pairs.select(pairs.k, pairs.probability).execute().collect() as found:
    print(sorted(map(tuple, found)))
"""


@pytest.mark.full
@pytest.mark.parametrize("mode", ["thread", "process"])
@pytest.mark.parametrize("installed", ["as it is", "in one folder"])
def test_a_job_runs_from_a_fresh_folder(tmp_path: Path, mode: str, installed: str) -> None:
    env = _environment(tmp_path, installed)
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", JOB, mode], check=False, cwd=fresh, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "[(1, 1.0)]"

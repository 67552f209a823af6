"""A cluster whose machines have Spark and numba, but not whenabouts: `--py-files` ships it.

It ships an archive, or a copy of the wheel that WHENABOUTS_WHEEL names: Spark does not accept `.whl` files.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

from whenabouts.spark_plugin import build_worker_archive

pytestmark = [pytest.mark.slow, pytest.mark.full]


def test_a_cluster_runs_it_from_py_files(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    at = pa.array([0, 1, 5, 6, 20], pa.timestamp("s", "UTC"))
    pq.write_table(pa.table({"t": at, "id": range(5)}), tmp_path / "events" / "a.parquet")
    shipped = str(tmp_path / "whenabouts.zip")
    if wheel := os.environ.get("WHENABOUTS_WHEEL"):
        shutil.copy(wheel, shipped)
    else:
        build_worker_archive(tmp_path)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "XDG_"))} | {
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": shipped,  # for the processes in which Spark plans data sources: they do not get --py-files
        "HOME": "/dev/null/nowhere",  # kernels are cached with the temporary files
        "TMPDIR": str(tmp_path),
    }
    command = [
        str(Path(pyspark.__path__[0]) / "bin" / "spark-submit"), "--master", "local-cluster[2,1,1024]",
        "--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2",
        "--conf", "spark.sql.session.timeZone=UTC", "--py-files", shipped,
        str(Path(__file__).parent / "shipped_job.py"), str(tmp_path),
    ]  # fmt: skip
    job = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
    )
    assert job.returncode == 0, job.stderr[job.stderr.find("Traceback") :][:3000]
    driver, *workers = (tmp_path / "where.txt").read_text().split("\n")
    assert driver.startswith(shipped)
    assert workers
    assert all("whenabouts.zip" in place and not place.startswith(shipped) for place in workers), workers
    assert list((tmp_path / f"whenabouts-{os.getuid()}").glob("**/*.nbi")), "no kernel was kept"
    for name in ("batch", "stream"):
        table = pq.read_table(tmp_path / f"{name}.parquet")
        pairs = sorted(zip(table["id_left"].to_pylist(), table["id_right"].to_pylist(), strict=True))
        assert pairs == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 2), (2, 3), (3, 2), (3, 3), (4, 4)]

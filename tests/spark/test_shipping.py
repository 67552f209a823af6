"""A cluster whose machines have Spark and numba, and not whenabouts: it goes there with `--py-files`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

from whenabouts.spark_plugin import archive

pytestmark = [pytest.mark.slow, pytest.mark.full]


def test_a_cluster_runs_it_from_py_files(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    at = pa.array([0, 1, 5, 6, 20], pa.timestamp("s", "UTC"))
    pq.write_table(pa.table({"t": at, "id": range(5)}), tmp_path / "events" / "a.parquet")
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [
        str(Path(pyspark.__path__[0]) / "bin" / "spark-submit"), "--master", "local-cluster[2,1,1024]",
        "--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2",
        "--conf", "spark.sql.session.timeZone=UTC", "--py-files", archive(tmp_path),
        str(Path(__file__).parent / "shipped_job.py"), str(tmp_path),
    ]  # fmt: skip
    job = subprocess.run(
        command,
        env=plain | {"PYSPARK_PYTHON": sys.executable, "TMPDIR": str(tmp_path), "HOME": str(tmp_path)},
        cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert job.returncode == 0, job.stderr[job.stderr.find("Traceback") :][:3000]
    places = (tmp_path / "where.txt").read_text().split("\n")
    assert len(places) == 2
    assert all("whenabouts.zip" in place for place in places), places
    for name in ("batch", "stream"):
        table = pq.read_table(tmp_path / f"{name}.parquet")
        pairs = sorted(zip(table["id_left"].to_pylist(), table["id_right"].to_pylist(), strict=True))
        assert pairs == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 2), (2, 3), (3, 2), (3, 3), (4, 4)]

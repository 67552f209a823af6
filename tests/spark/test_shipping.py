"""Clusters whose machines have Spark and numba, but not whenabouts: `--py-files` or `--packages` brings it.

`--py-files` ships an archive, or a copy of the wheel that WHENABOUTS_WHEEL names: Spark does not accept `.whl` files.
`--packages` fetches the JAR of `make jar` from a Maven repository, here a folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

from whenabouts.spark_plugin import build_worker_archive

pytestmark = [pytest.mark.slow, pytest.mark.full]

ROOT = Path(__file__).parents[2]
PAIRS = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 2), (2, 3), (3, 2), (3, 3), (4, 4)]


def _events(folder: Path) -> None:
    (folder / "events").mkdir()
    at = pa.array([0, 1, 5, 6, 20], pa.timestamp("s", "UTC"))
    pq.write_table(pa.table({"t": at, "id": range(5)}), folder / "events" / "a.parquet")


def _submit(folder: Path, source: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "XDG_"))}
    command = [
        str(Path(pyspark.__path__[0]) / "bin" / "spark-submit"), "--master", "local-cluster[2,1,1024]",
        "--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2",
        "--conf", "spark.sql.session.timeZone=UTC", *options,
        str(Path(__file__).parent / "shipped_job.py"), str(folder), source,
    ]  # fmt: skip
    return subprocess.run(
        command,
        env=clean | {"PYSPARK_PYTHON": sys.executable, "TMPDIR": str(folder)} | environment,
        cwd=folder, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip


def _check(job: subprocess.CompletedProcess[str], folder: Path, name: str) -> str:
    """The job ended well, its workers loaded the package from a file of this name; returns the driver's file."""
    assert job.returncode == 0, job.stderr[job.stderr.find("Traceback") :][:3000]
    driver, *workers = (folder / "where.txt").read_text().split("\n")
    assert workers
    assert all(name in place and place != driver for place in workers), (driver, workers)
    for kind in ("batch", "stream"):
        table = pq.read_table(folder / f"{kind}.parquet")
        assert sorted(zip(table["id_left"].to_pylist(), table["id_right"].to_pylist(), strict=True)) == PAIRS
    return driver


def test_a_cluster_runs_it_from_py_files(tmp_path: Path) -> None:
    _events(tmp_path)
    shipped = str(tmp_path / "whenabouts.zip")
    if wheel := os.environ.get("WHENABOUTS_WHEEL"):
        shutil.copy(wheel, shipped)
    else:
        build_worker_archive(tmp_path)
    job = _submit(
        tmp_path, "whenabouts", "--py-files", shipped,
        PYTHONPATH=shipped,  # for the processes in which Spark plans data sources: they do not get --py-files
        HOME="/dev/null/nowhere",  # the cache of kernels is with the temporary files
    )  # fmt: skip
    assert _check(job, tmp_path, "whenabouts.zip").startswith(shipped)
    # So few rows compile nothing, but this is where kernels are looked for (`tests/core/test_kernel_cache.py`).
    assert list((tmp_path / f"whenabouts-{os.getuid()}").glob("*.py")), "no cache of kernels"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The coordinates of the Spark package, and the repository that has it."""
    target = tmp_path_factory.mktemp("repository")
    made = subprocess.run(
        [sys.executable, str(ROOT / ".ci" / "spark_package.py"), str(target)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    coordinates, repository = made.stdout.strip().split(" in ")
    return coordinates, repository


def _python_without(folder: Path, *packages: str) -> str:
    """A Python that has all that this one has, but neither whenabouts nor these packages."""
    venv.create(folder / "env", with_pip=False)
    lacking = next((folder / "env").glob("lib/python3*/site-packages"))
    for source in {Path(pa.__file__).parents[1], Path(pyspark.__path__[0]).parent}:
        for entry in source.iterdir():
            if not entry.name.startswith((*packages, "__editable__", "whenabouts", "_pytest", "pyspark")):
                link = lacking / entry.name
                if not link.exists():
                    link.symlink_to(entry)
    return str(folder / "env" / "bin" / "python")


def test_a_cluster_runs_it_from_a_maven_repository(tmp_path: Path, repository: tuple[str, str]) -> None:
    """On machines whose Python, the driver's too, has no whenabouts of its own."""
    _events(tmp_path)
    coordinates, url = repository
    python = _python_without(tmp_path)
    # Ivy looks for the package in other places, too, and finds it in ours
    job = _submit(
        tmp_path, "parquet", "--packages", coordinates, "--repositories", url,
        "--conf", f"spark.jars.ivy={tmp_path / 'ivy'}", PYSPARK_PYTHON=python, PYSPARK_DRIVER_PYTHON=python,
    )  # fmt: skip
    driver = _check(job, tmp_path, "whenabouts-spark-")
    assert driver.startswith(str(tmp_path / "ivy")), driver


def test_a_worker_without_numba_says_what_to_install(tmp_path: Path, repository: tuple[str, str]) -> None:
    """The Python of the executors has all but numba; the query ends at its start, with a code."""
    _events(tmp_path)
    python = _python_without(tmp_path, "numba")
    coordinates, url = repository
    job = _submit(
        tmp_path, "parquet", "--packages", coordinates, "--repositories", url,
        "--conf", f"spark.jars.ivy={tmp_path / 'ivy'}",
        PYSPARK_PYTHON=python, PYSPARK_DRIVER_PYTHON=sys.executable,
    )  # fmt: skip
    assert job.returncode != 0
    assert "WA-3002: numba is not installed" in job.stderr, job.stderr[-3000:]
    assert f"pyarrow>=16.0 for {python}" in job.stderr


def test_the_jar_has_the_package_and_its_coordinates(repository: tuple[str, str]) -> None:
    coordinates, url = repository
    group, artifact, version = coordinates.split(":")
    folder = Path(url.removeprefix("file://")).joinpath(*group.split("."), artifact, version)
    assert sorted(file.name for file in folder.iterdir()) == sorted(
        f"{artifact}-{version}.{kind}{sum_}" for kind in ("jar", "pom") for sum_ in ("", ".sha1")
    )
    with zipfile.ZipFile(folder / f"{artifact}-{version}.jar") as jar:
        names = jar.namelist()
    assert names[0] == "META-INF/MANIFEST.MF"
    assert {f"META-INF/maven/{group}/{artifact}/pom.xml", "META-INF/LICENSE", "whenabouts/__init__.py"} <= set(names)

"""The package is found and shipped wherever Python is started and however it is installed."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from whenabouts.core.hosting.worker_archive import PARTS, build_worker_archive, parts

REPOSITORY = Path(__file__).parents[2]

IMPORTS_ALL = """
import whenabouts as wa
import whenabouts.cli, whenabouts.conformance, whenabouts.core, whenabouts.planner
import whenabouts.flink_plugin, whenabouts.spark_plugin, pyspark_whenabouts
missing = [name for name in wa.__all__ if not hasattr(wa, name)]
assert not missing, missing
modules = (wa, whenabouts.cli, whenabouts.core, whenabouts.planner, whenabouts.flink_plugin, whenabouts.spark_plugin)
print(*(module.__file__ for module in modules), sep="\\n")
"""


def test_every_package_of_the_repository_is_a_part() -> None:
    folders = {path.parent.name for path in REPOSITORY.glob("*/whenabouts/*/__init__.py")}
    assert folders == set(PARTS)
    assert {part.name for part in parts()} == set(PARTS)


def test_only_one_source_root_has_the_package_itself() -> None:
    """mypy refuses two, and Python would see the first one only."""
    assert list(REPOSITORY.glob("*/whenabouts/__init__.py")) == [REPOSITORY / "core" / "whenabouts" / "__init__.py"]


def _unpacked(folder: Path) -> dict[str, str]:
    """The layout of a wheel: one folder that holds all parts."""
    with zipfile.ZipFile(build_worker_archive(folder)) as file:
        file.extractall(folder / "site")
    return {"PYTHONPATH": str(folder / "site")}


def _as_installed(_: Path) -> dict[str, str]:
    return {}


@pytest.mark.parametrize("installed", [_as_installed, _unpacked])
def test_the_archive_is_whole_from_a_folder_of_its_own(tmp_path: Path, installed: object) -> None:
    assert callable(installed)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | installed(tmp_path)
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    code = "import whenabouts as wa; wa.build_worker_archive()"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=fresh, env=env)
    with zipfile.ZipFile(fresh / "whenabouts.zip") as file:
        names = set(file.namelist())
    assert {f"whenabouts/{part}/__init__.py" for part in PARTS} <= names
    assert {"whenabouts/__init__.py", "whenabouts/py.typed", "pyspark_whenabouts/__init__.py"} <= names


def test_everything_is_imported_from_an_archive_on_the_path(tmp_path: Path) -> None:
    """It comes before what is installed: a worker may have another release."""
    shipped = build_worker_archive(tmp_path)
    env = os.environ | {"PYTHONPATH": shipped}
    found = subprocess.run(
        [sys.executable, "-c", IMPORTS_ALL], check=True, cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert all(file.startswith(shipped) for file in found.stdout.splitlines())


@pytest.mark.parametrize("last", [False, True])
def test_source_roots_may_come_in_any_order(tmp_path: Path, last: bool) -> None:
    """Without site packages, as in a Python inside a JVM: only the roots, with the one that has `__init__.py` first or
    last."""
    roots = sorted({str(part.parents[1]) for part in parts()}, key=lambda root: (root.endswith("core")) == last)
    code = (
        "import whenabouts, whenabouts.planner.streams, whenabouts.spark_plugin, whenabouts.flink_plugin;"
        "print(len(whenabouts.__path__))"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join([*roots, *sys.path])}
    found = subprocess.run([sys.executable, "-S", "-c", code], check=True, env=env, capture_output=True, text=True)
    assert found.stdout.split() == [str(len(PARTS))]

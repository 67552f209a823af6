"""The package is found and shipped from wherever Python is started, however it is installed."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from whenabouts.core.hosting.worker_archive import PARTS, archive, parts

REPOSITORY = Path(__file__).parents[2]


def test_every_package_of_the_repository_is_a_part() -> None:
    folders = {path.parent.name for path in REPOSITORY.glob("*/whenabouts/*/__init__.py")}
    assert folders == set(PARTS)
    assert {part.name for part in parts()} == set(PARTS)


def _unpacked(folder: Path) -> dict[str, str]:
    """The layout of a wheel: one folder that holds all parts."""
    with zipfile.ZipFile(archive(folder)) as file:
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
    code = "from whenabouts.core.hosting.worker_archive import archive; archive()"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=fresh, env=env)
    with zipfile.ZipFile(fresh / "whenabouts.zip") as file:
        names = set(file.namelist())
    assert {f"whenabouts/{part}/__init__.py" for part in PARTS} <= names
    assert {"whenabouts/", "pyspark_whenabouts/__init__.py"} <= names

"""What is added to our wheels: Python imports a namespace package from an archive that has entries for its folders, and
type checkers find it in an editable install by plain paths."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from zipimport import zipimporter

import pytest

ROOT = Path(__file__).parents[2]
SETUP = ROOT / "setup.py"


def test_a_namespace_package_is_found_in_an_archive_that_has_entries_for_its_folders(tmp_path: Path) -> None:
    add_folders = runpy.run_path(str(SETUP))["add_folders"]
    found = []
    for wheel in (tmp_path / "plain.whl", tmp_path / "ours.whl"):
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("outer/inner/__init__.py", "")
        if wheel.stem == "ours":
            add_folders(str(wheel))
        found.append(zipimporter(str(wheel)).find_spec("outer"))
    assert found[0] is None
    assert found[1] is not None
    assert list(found[1].submodule_search_locations or []) == [str(tmp_path / "ours.whl" / "outer")]


@pytest.mark.slow
def test_an_editable_install_is_found_by_python_and_by_mypy_from_another_folder(tmp_path: Path) -> None:
    """In an environment of its own, by a user's file: an import hook would serve the one and not the other."""
    project, place, user = tmp_path / "project", tmp_path / "venv", tmp_path / "user"
    project.mkdir()
    user.mkdir()
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, project)
    for root in ("core", "cli", "planner", "spark_plugin", "flink_plugin", "conformance"):
        shutil.copytree(ROOT / root, project / root, ignore=shutil.ignore_patterns("__pycache__"))
    venv.create(place, system_site_packages=False)
    python = place / "bin" / "python"
    build = (
        "import sys; from setuptools.build_meta import build_editable; print('wheel=' + build_editable(sys.argv[1]))"
    )
    built = subprocess.run(
        [sys.executable, "-c", build, str(tmp_path)], cwd=project, capture_output=True, text=True, check=True
    )
    wheel = tmp_path / built.stdout.rpartition("wheel=")[2].strip()
    site = next(place.glob("lib/python*/site-packages"))
    with zipfile.ZipFile(wheel) as archive:  # what pip does with it
        archive.extractall(site)
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # Spark's tests may have set it
    found = subprocess.run(
        [python, "-c", "import whenabouts; print(*whenabouts.__path__)"],
        cwd=user, env=alone, capture_output=True, text=True,
    )  # fmt: skip
    assert found.stdout.split() == [
        str(project / root / "whenabouts")
        for root in ("core", "cli", "planner", "spark_plugin", "flink_plugin", "conformance")
    ]
    (user / "use.py").write_text("from whenabouts.core import within\nreveal_type(within(1, confidence=1.0))\n")
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--python-executable", python, "--cache-dir", tmp_path / "cache", "use.py"],
        cwd=user,
        env=alone,
        capture_output=True,
        text=True,
    )
    assert 'Revealed type is "whenabouts.core.times.conditions.Condition"' in checked.stdout
    assert "import-untyped" not in checked.stdout
    assert "import-not-found" not in checked.stdout.replace("pyarrow", "")

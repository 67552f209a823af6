"""The installed package, editable and as a wheel: Python, mypy and pyright find it, with types.

In an environment of its own, used by a file in another folder. Nothing else is installed there, so that an undeclared
dependency would be missing.
"""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
ROOTS = runpy.run_path(str(ROOT / "setup.py"))["ROOTS"]

USE = """
from typing import assert_type

import whenabouts as wa
import whenabouts.spark_plugin
from whenabouts import planner
from whenabouts.conformance import options
from whenabouts.core import within_value
from whenabouts.flink_plugin import check_environment
from whenabouts.spark_plugin import coalesce

near: wa.Condition = wa.within("1 s", confidence=0.8)
assert_type(near.confidence, float)
assert_type(wa.Interval("from", "to"), wa.Interval)
assert_type(wa.absolute_tolerance(0.5), wa.Equivalence)
assert_type(within_value(0.5), wa.Equivalence)
assert_type(wa.parse_query("SELECT * FROM s [ROWS 9] COALESCE ON v"), wa.TextQuery)
assert_type(planner.Registry().plan(), wa.Plan)
assert_type(wa.planner.Registry().plan(), wa.Plan)
assert_type(whenabouts.spark_plugin.build_worker_archive(), str)
assert_type(check_environment(), None)
wa.coalesce
wa.timing_joint  # type: ignore
wa.within("1 s", confidence="high")  # type: ignore
wa.coalesce(None, time="t", values="v", windows=5)  # type: ignore
coalesce(None, time="t", values="v", windows=5)  # type: ignore
assert_type(wa.coalesce("a frame", time="t", values="v"), str)  # what goes in comes out
assert_type(coalesce("a frame", time="t", values="v"), str)
"""


class Installed(NamedTuple):
    """An environment with the package and nothing else."""

    python: Path
    folders: list[str]
    wheel: Path | None
    user: Path
    """A folder with a file that uses the package."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy to build in: building leaves files behind."""
    project = tmp_path_factory.mktemp("project")
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, project)
    for root in ROOTS:
        shutil.copytree(ROOT / root, project / root, ignore=shutil.ignore_patterns("__pycache__"))
    return project


@pytest.fixture(scope="module", params=["editable", "wheel"])
def installed(request: pytest.FixtureRequest, project: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder, kind = tmp_path_factory.mktemp(request.param), request.param
    build = f"import sys; from setuptools.build_meta import build_{kind} as build; print('wheel=' + build(sys.argv[1]))"
    built = subprocess.run(
        [sys.executable, "-c", build, str(folder)], cwd=project, capture_output=True, text=True, check=True
    )
    wheel = folder / built.stdout.rpartition("wheel=")[2].strip()
    venv.create(folder / "venv", system_site_packages=False)
    site = next((folder / "venv").glob("lib/python*/site-packages"))
    with zipfile.ZipFile(wheel) as archive:  # what pip does with it
        archive.extractall(site)
    user = folder / "user"
    user.mkdir()
    (user / "use.py").write_text(USE)
    folders = [str(project / root / "whenabouts") for root in ROOTS] if kind == "editable" else [f"{site}/whenabouts"]
    return Installed(folder / "venv" / "bin" / "python", folders, wheel if kind == "wheel" else None, user)


def alone() -> dict[str, str]:
    """This process's environment without Python's path: Spark's tests may have set it."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def run(installed: Installed, *command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=installed.user, env=alone(), capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_python_finds_all_parts(installed: Installed) -> None:
    code = "import whenabouts as wa; print(*wa.__path__, wa.within('1 s', confidence=1).confidence, sep='\\n')"
    found = run(installed, installed.python, "-c", code)
    assert found.stdout.splitlines() == [*installed.folders, "1.0"], found.stderr


@pytest.mark.slow
def test_a_wheel_is_imported_without_being_unpacked(installed: Installed) -> None:
    """As `spark-submit --py-files` and `flink run -pyfs` pass it."""
    if installed.wheel is None:
        return
    code = (
        f"import sys; sys.path[:0] = [{str(installed.wheel)!r}];"
        "import whenabouts as wa, whenabouts.planner, whenabouts.spark_plugin, whenabouts.flink_plugin, whenabouts.cli;"
        "assert all(hasattr(wa, name) for name in wa.__all__);"
        "files = [module.__file__ for name, module in sys.modules.items() if name.startswith('whenabouts')];"
        "print(*{file.partition('/whenabouts/')[0] for file in files})"
    )
    found = run(installed, sys.executable, "-c", code)
    assert found.stdout.split() == [str(installed.wheel)], found.stderr


@pytest.mark.slow
def test_the_command_line_is_a_module(installed: Installed) -> None:
    """Only its dependencies are missing here."""
    found = run(installed, installed.python, "-m", "whenabouts", "--version")
    assert "No module named 'click'" in found.stderr


@pytest.mark.slow
def test_mypy_knows_every_type(installed: Installed) -> None:
    cache = installed.user / "cache"
    checked = run(
        installed,
        *(sys.executable, "-m", "mypy", "--strict", "--python-executable", installed.python, "--cache-dir", cache),
        "use.py",
    )
    assert checked.stdout.startswith("Success"), checked.stdout


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("pyright") is None, reason="pyright is not installed; it needs node and the npm registry"
)
def test_pyright_knows_every_type(installed: Installed) -> None:
    (installed.user / "pyrightconfig.json").write_text('{"reportUnnecessaryTypeIgnoreComment": "error"}')
    checked = run(installed, "pyright", "--pythonpath", installed.python, "use.py")
    assert checked.stdout.splitlines()[-1].startswith("0 errors, 0 warnings"), checked.stdout

"""What a release states in several places is the same in all of them."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from whenabouts.core.hosting.preflight import OF_WORKERS
from whenabouts.flink_plugin.environment import PYTHONS

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CHECK = runpy.run_path(str(ROOT / ".ci" / "release_check.py"))
SUPPORTED: list[str] = CHECK["pythons"](PROJECT)


def _text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_every_file_has_the_version_of_pyproject() -> None:
    assert set(CHECK["versions_elsewhere"](ROOT).values()) == {PROJECT["version"]}


def test_the_matrix_in_the_readme_is_that_of_pyproject() -> None:
    rows = re.findall(r"^\| (3\.\d+) \| (\w+) \| (\w+) \| (\w+)", _text("README.md"), re.MULTILINE)
    assert [row[0] for row in rows] == SUPPORTED
    assert {row[1:3] for row in rows} == {("yes", "yes")}
    assert [row[0] for row in rows if row[3] == "yes"] == [f"{major}.{minor}" for major, minor in PYTHONS]
    (flink,) = PROJECT["optional-dependencies"]["flink"]
    first_without = next(row[0] for row in rows if row[3] == "no")
    assert flink.endswith(f"python_version < '{first_without}'")


def test_every_place_that_names_pythons_names_the_supported_ones() -> None:
    first, last = SUPPORTED[0], SUPPORTED[-1]
    past = f"3.{int(last.partition('.')[2]) + 1}"
    assert PROJECT["requires-python"] == f">={first},<{past}"
    fits = ", ".join(f"({python.replace('.', ', ')})" for python in (first, last))
    assert f"{fits.replace('), (', ') <= sys.version_info[:2] <= (')}" in _text(".ci/environment.sh")
    found = _text("core/whenabouts/__init__.py")
    assert f"{fits.replace('), (', ') <= sys.version_info[:2] <= (')}" in found
    assert f"one from {first} to {last} is needed" in found
    workflow = yaml.safe_load(_text(".github/workflows/ci.yml"))
    assert workflow["jobs"]["fast"]["strategy"]["matrix"]["python"] == SUPPORTED
    recipe = yaml.safe_load(_text("recipe/recipe.yaml"))
    for part in ("host", "run"):
        assert f"python >={first},<{past}" in recipe["requirements"][part]


def test_the_conda_recipe_requires_what_the_package_does() -> None:
    """Under conda's names, in which tzdata is the system's and python-tzdata the package."""
    run = yaml.safe_load(_text("recipe/recipe.yaml"))["requirements"]["run"]
    conda = {line.removeprefix("python-").replace(" ", "") for line in run if not line.startswith("python ")}
    assert conda == {dependency.replace(" ", "") for dependency in PROJECT["dependencies"]}
    least = {f"{name}>={major}.{minor}".removesuffix(".0") for name, (major, minor) in OF_WORKERS.items()}
    assert least <= {dependency.removesuffix(".0") for dependency in conda}


@pytest.mark.parametrize("name", ["examples/kubernetes/Dockerfile", "tests/infra/Dockerfile"])
def test_a_dockerfile_gets_the_files_that_it_copies(name: str, tmp_path: Path) -> None:
    """Docker leaves what .dockerignore names out of the folder that it builds from."""
    build = pytest.importorskip("docker.utils.build")
    text = _text(name).replace("*", "x")
    copied = [file for line in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE) for file in line.split()]
    assert copied
    for file in [*copied, "core/secret"]:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    rules = [rule for rule in _text(".dockerignore").splitlines() if rule and not rule.startswith("#")]
    sent = {path for path in build.exclude_paths(tmp_path, rules) if (tmp_path / path).is_file()}
    assert sent == set(copied)

"""What a worker's Python needs."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

from whenabouts.core.errors import EngineError
from whenabouts.core.hosting import preflight

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_workers_need_what_the_package_declares() -> None:
    declared = dict(re.split(r">=", re.split(r"[,;]", item)[0]) for item in PROJECT["dependencies"] if ">=" in item)
    for package, least in preflight.OF_WORKERS.items():
        assert (*map(int, declared[package].split(".")), 0)[:2] == least, package


@pytest.mark.parametrize(
    ("found", "problem"), [(None, "numba is not installed"), ("0.60.9", "numba is 0.60.9, at least 0.61 is needed")]
)
def test_a_worker_without_a_package_says_for_which_python_to_install_it(
    monkeypatch: pytest.MonkeyPatch, found: str | None, problem: str
) -> None:
    monkeypatch.setattr(preflight, "installed_version", {"numba": found}.get)
    monkeypatch.setattr(preflight, "find_spec", lambda _: None)
    hint = f"install numba>=0.61, numpy>=2.0, pyarrow>=16.0 for {sys.executable} on every machine"
    with pytest.raises(EngineError, match=re.escape(f"WA-3002: {problem} (hint: {hint}")):
        preflight.check_worker.__wrapped__()


def test_a_package_may_be_there_without_its_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "installed_version", lambda _: None)
    preflight.check_worker.__wrapped__()

"""`benchmarks/run.py` continues a run that was interrupted."""

from __future__ import annotations

import importlib.util
import tomllib
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "run.py"
_spec = importlib.util.spec_from_file_location("benchmarks_run", SCRIPT)
assert _spec is not None
assert _spec.loader is not None
run = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(run)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The scripts that are started, in order; `growth` fails when it runs for the first time, `scale` is long."""
    scripts: list[str] = []

    def start(command: Sequence[str], **_: Any) -> SimpleNamespace:
        name = Path(command[1]).stem
        scripts.append(name)
        return SimpleNamespace(returncode=int(name == "growth" and scripts.count(name) == 1))

    monkeypatch.setattr(run.subprocess, "run", start)
    monkeypatch.setattr(run, "RUNS", {"coalesce": ("", ""), "growth": ("", ""), "scale": (None, "")})
    monkeypatch.setattr(run, "UNFINISHED", tmp_path / "cache" / "benchmarks.json")
    return scripts


def test_a_run_continues_with_what_is_left(started: list[str]) -> None:
    """What was measured is not measured again; the page is rendered each time; a finished run leaves no trace."""
    first = CliRunner().invoke(run.main)
    assert first.exit_code == 1
    assert "growth" in first.output
    second = CliRunner().invoke(run.main)
    assert second.exit_code == 0
    assert "coalesce: measured before" in second.output
    assert started == ["coalesce", "growth", "page", "growth", "page"]
    assert not run.UNFINISHED.exists()


@pytest.mark.parametrize(
    "change", ["--again", "--full", "the sources", "a damaged file"], ids=["again", "full", "sources", "damaged"]
)
def test_a_run_of_another_kind_measures_all(started: list[str], monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    """Figures of other sources, or of the quick part, do not count."""
    CliRunner().invoke(run.main)
    started.clear()
    if change == "the sources":
        monkeypatch.setattr(run, "sources", lambda: "others")
    elif change == "a damaged file":
        run.UNFINISHED.write_text('{"run": 1}')
    CliRunner().invoke(run.main, [change] if change.startswith("--") else [])
    assert started[:2] == ["coalesce", "growth"]


@pytest.mark.parametrize("name", ["one.py", "One.java"])
def test_the_hash_of_the_sources_follows_the_benchmarks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    """One changed byte changes it; the same bytes do not."""
    monkeypatch.setattr(run, "HERE", tmp_path / "benchmarks")
    script = tmp_path / "benchmarks" / name
    script.parent.mkdir()
    script.write_text("1\n")
    before = run.sources()
    assert run.sources() == before
    script.write_text("2\n")
    assert run.sources() != before


def test_the_full_run_measures_whatever_is_promised() -> None:
    """Each suite is the figures of the script of its name."""
    promises = tomllib.loads((SCRIPT.parent / "promises.toml").read_text(encoding="utf-8"))["promise"]
    assert {promise["suite"] for promise in promises} <= set(run.RUNS)

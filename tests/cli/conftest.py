"""Shared by the tests of the command line: a way to run it, and input files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from whenabouts.cli import main

Cli = Callable[..., Result]


def pytest_configure(config: pytest.Config) -> None:
    # pyspark leaves the sockets of collect() and of its JVM to the garbage collector, which may run in any test.
    config.addinivalue_line("filterwarnings", "ignore:unclosed <socket:ResourceWarning")


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Runs `whenabouts ARGUMENTS` in an empty folder; arguments may be one string."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Result:
        words = arguments[0].split() if len(arguments) == 1 else list(arguments)
        return CliRunner().invoke(main, words)

    return run


@pytest.fixture
def pair_of_files(tmp_path: Path) -> Path:
    """`l.csv` and `r.jsonl`, with one sure pair, one of probability 0.9, and one bad row for every kind of text."""
    (tmp_path / "l.csv").write_text(
        "id,k,t_min,t_max\n"
        "1,a,2024-01-01T00:00:00Z,2024-01-01T00:00:10Z\n"
        "2,b,2024-01-01T00:00:00Z,2024-01-01T00:00:10Z\n"
        "3,a,soon,2024-01-01T00:00:10Z\n"
        "4,a,2024-01-01T00:00:20Z,2024-01-01T00:00:10Z\n"
    )
    (tmp_path / "r.jsonl").write_text(
        '{"k": "a", "t": "2024-01-01T00:00:05Z", "v": 1.5}\n'
        '{"k": "b", "t": "2024-01-01T00:00:11Z", "v": null}\n'
        '{"k": "a", "t": null, "v": 2.0}\n'
    )
    return tmp_path

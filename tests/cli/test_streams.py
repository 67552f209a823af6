"""Closed and full stdout and stderr: a lost note ends no run, and the exit code tells of a result that is lost."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROWS = "t,v\n2024-01-01T00:00:00,1\n2024-01-01T00:00:01,1\n"
COALESCE = "coalesce a.csv --time t --values v"
FULL = "/dev/full"

pytestmark = pytest.mark.skipif(not Path(FULL).exists(), reason="/dev/full is Linux's")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.csv").write_text(ROWS)
    return tmp_path


def run(folder: Path, words: str, *, unbuffered: bool = False, **streams: int | None) -> subprocess.Popen[str]:
    """Start the command. `streams`: where stdout and stderr lead; None: they are closed from the start."""
    closed = [number for number, name in ((1, "stdout"), (2, "stderr")) if streams.get(name, 0) is None]
    return subprocess.Popen(
        [sys.executable, "-c", "from whenabouts.cli import main; main()", *words.split()], cwd=folder, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1" if unbuffered else ""},
        preexec_fn=lambda: list(map(os.close, closed)),
        stdout=streams.get("stdout") or subprocess.PIPE, stderr=streams.get("stderr") or subprocess.PIPE,
    )  # fmt: skip


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, errors = process.communicate(timeout=120)
    return process.returncode, errors or ""


@pytest.mark.parametrize("words", ["--version", "join --help", f"{COALESCE} -o -", COALESCE, "doctor"])
def test_a_reader_that_has_gone_ends_the_command_as_sigpipe_does(folder: Path, words: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = run(folder, words, stdout=writing)
    os.close(writing)
    code, errors = ended(process)
    assert code == 141
    assert not [line for line in errors.splitlines() if not line.startswith("note: ")], "no result is claimed"


@pytest.mark.parametrize("words", ["--version", "join --help", f"{COALESCE} -o -", COALESCE, "doctor"])
def test_a_full_stdout_is_an_error_with_a_code(folder: Path, words: str) -> None:
    with open(FULL, "wb") as full:
        code, errors = ended(run(folder, words, stdout=full.fileno()))
    assert code == 4
    assert errors.splitlines()[-1].startswith("error: WA-3005: stdout could not be written: ")


@pytest.mark.parametrize("unbuffered", [False, True])
@pytest.mark.parametrize("words", ["join --help", f"{COALESCE} -o -"])
def test_what_a_full_pipe_does_not_take_is_an_error(folder: Path, words: str, unbuffered: bool) -> None:
    """Of what does not fit it takes the beginning: an unbuffered stream writes less than it is given, then nothing."""
    (folder / "a.csv").write_text(
        "t,v\n" + "".join(f"2024-01-01T00:{i // 60:02}:{i % 60:02},{i}\n" for i in range(500))
    )
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writing, False)
    code, errors = ended(run(folder, words, unbuffered=unbuffered, stdout=writing))
    os.close(writing)
    with open(reading, "rb") as taken:
        assert len(taken.read()) == 4096
    assert code == 4
    assert errors.splitlines()[-1].startswith("error: WA-3005: stdout could not be written: ")


@pytest.mark.parametrize(
    ("words", "expected"), [(COALESCE, 141), (f"{COALESCE} -o -", 141), (f"{COALESCE} -o x.csv", 0)]
)
def test_a_stdout_closed_from_the_start_matters_only_if_something_is_written_to_it(
    folder: Path, words: str, expected: int
) -> None:
    code, errors = ended(run(folder, words, stdout=None))
    assert code == expected, errors
    assert "error" not in errors


@pytest.mark.parametrize("how", ["full", "gone", "closed"])
def test_notes_that_cannot_be_written_end_no_run(folder: Path, how: str) -> None:
    reading, gone = os.pipe()
    os.close(reading)
    with open(FULL, "wb") as full:
        stderr = {"full": full.fileno(), "gone": gone, "closed": None}[how]
        codes = [
            ended(run(folder, words, stderr=stderr))[0] for words in (f"{COALESCE} -o x.csv", "coalesce --no-such")
        ]
    os.close(gone)
    assert codes == [0, 2]
    assert (folder / "x.csv").read_text().count("\n") == 2

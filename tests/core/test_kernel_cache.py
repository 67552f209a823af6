"""Kernels are compiled once per machine, even if the package is in an archive and the user has no home folder."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import whenabouts.core

HITS = """
from whenabouts.core.probability import satisfaction_probability as module
kernels = [k for k in vars(module).values() if hasattr(k, "make_ready")]
for kernel in kernels:
    kernel.make_ready()
print(module.__file__)
print(sum(len(k.stats.cache_hits) for k in kernels), sum(len(k.stats.cache_misses) for k in kernels))
p = module.satisfaction_probability([0], [4], [0], [4], 0, 4)
print(float(p[0]))
"""


PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1
"""Of Linux's `prctl`."""

pytestmark = pytest.mark.slow


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """The core as on a cluster: a read-only archive on the path."""
    path = tmp_path / "whenabouts.zip"
    root = Path(whenabouts.core.__file__).parent
    with zipfile.ZipFile(path, "w") as file:
        file.write(root.parent / "__init__.py", "whenabouts/__init__.py")
        for source in root.rglob("*.py"):
            file.write(source, f"whenabouts/core/{source.relative_to(root).as_posix()}")
    return path


def without_override() -> None:
    """In a new process in which root, too, may write only where permissions allow it (other users have no such
    right)."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        libc.prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0)


def start(archive: Path, temporary: Path, **environment: str) -> subprocess.Popen[str]:
    known = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "XDG_"))}
    known |= {"PYTHONPATH": str(archive), "HOME": "/dev/null/nowhere", "TMPDIR": str(temporary)}
    return subprocess.Popen(
        [sys.executable, "-c", HITS], env=known | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, preexec_fn=without_override,
    )  # fmt: skip


def told(process: subprocess.Popen[str]) -> list[str]:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out.split("\n")


@pytest.mark.full
def test_an_archive_without_a_home_is_compiled_once(archive: Path, tmp_path: Path) -> None:
    """Two processes at once on a cold cache, then one that finds it, then one on another CPU, which must not use that
    code."""
    cold = [start(archive, tmp_path), start(archive, tmp_path)]
    answers = [told(process) for process in cold]
    warm = told(start(archive, tmp_path))
    assert warm[0].startswith(str(archive))
    kernels = sum(map(int, answers[0][1].split()))  # one of the two may find what the other has just compiled
    assert kernels > 0
    assert warm[1] == f"{kernels} 0"
    other = told(start(archive, tmp_path, NUMBA_CPU_NAME="generic"))
    assert other[1] == f"0 {kernels}"
    again = told(start(archive, tmp_path))
    assert again[1] == f"{kernels} 0"
    assert {answer[2] for answer in (*answers, warm, other, again)} == {"0.5"}


def test_many_at_once_begin_on_an_empty_folder(archive: Path, tmp_path: Path) -> None:
    """Each compiles, or finds what another has just stored; none fails, and the resulting cache is complete."""
    kept = tmp_path / "kept"
    kept.mkdir()
    cold = [start(archive, tmp_path, NUMBA_CACHE_DIR=str(kept)) for _ in range(4)]
    answers = [told(process) for process in cold]
    assert {answer[2] for answer in answers} == {"0.5"}
    kernels = {sum(map(int, answer[1].split())) for answer in answers}
    assert len(kernels) == 1
    warm = told(start(archive, tmp_path, NUMBA_CACHE_DIR=str(kept)))
    assert warm[1:3] == [f"{kernels.pop()} 0", "0.5"]
    assert not list(kept.glob("**/*.tmp.*"))


@pytest.mark.full
def test_a_cache_that_cannot_be_written_is_passed_over(archive: Path, tmp_path: Path) -> None:
    """Also a filled one: numba rejects a folder that is not writable. Kernels are then stored with the temporary
    files."""
    kept, temporary = tmp_path / "kept", tmp_path / "temporary"
    temporary.mkdir()
    first = told(start(archive, temporary, NUMBA_CACHE_DIR=str(kept)))
    before = {path: path.stat().st_mtime_ns for path in kept.rglob("*")}
    folders = [kept, *(path for path in kept.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        answers = [told(start(archive, temporary, NUMBA_CACHE_DIR=str(kept))) for _ in range(2)]
    finally:
        for folder in folders:
            folder.chmod(0o755)
    kernels = sum(map(int, first[1].split()))
    assert [answer[1:3] for answer in answers] == [[f"0 {kernels}", "0.5"], [f"{kernels} 0", "0.5"]]
    assert {path: path.stat().st_mtime_ns for path in kept.rglob("*")} == before


def test_a_folder_that_others_can_write_is_not_trusted(archive: Path, tmp_path: Path) -> None:
    (tmp_path / f"whenabouts-{os.getuid()}").mkdir(mode=0o777)
    (tmp_path / f"whenabouts-{os.getuid()}").chmod(0o777)
    told(start(archive, tmp_path))
    assert list((tmp_path / f"whenabouts-{os.getuid()}").iterdir()) == []


CALLEE = """
from typing import NamedTuple
from whenabouts.core.arrays.jit import INT64, compiled

class Pair(NamedTuple):
    FIELDS

STEP = 1

@compiled(INT64(INT64), inline=True)
def next_of(x):
    return x + 1
"""

SHAPE = """
from typing import NamedTuple

class Shape(NamedTuple):
    FIELDS
"""

CALLER = """
from numba import types
from callee_of_a_test import Pair, STEP, next_of
from shape_of_a_test import Shape
from whenabouts.core.arrays.jit import INT64, compiled

@compiled(INT64(types.NamedUniTuple(INT64, 2, Pair)))
def answer(pair):
    return 100 * next_of(pair.a) + STEP + Shape(0, 1000).a
"""

ANSWER = """
import caller_of_a_test as module
module.answer.make_ready()
print(module.answer(module.Pair(1, 2)), sum(module.answer.stats.cache_hits.values()))
"""


@pytest.mark.slow
def test_a_kernel_is_compiled_again_if_what_it_calls_has_changed(tmp_path: Path) -> None:
    """As by an upgrade that leaves the kernel's own module as it was: a callee, a constant, the order of fields of an
    argument, and of what it makes itself."""

    def answer(text: str, *options: str) -> list[str]:
        (tmp_path / "callee_of_a_test.py").write_text(text)
        done = subprocess.run(
            [sys.executable, "-B", *options, "-c", ANSWER],
            cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True,
        )  # fmt: skip
        return done.stdout.split()

    (tmp_path / "caller_of_a_test.py").write_text(CALLER)
    (tmp_path / "shape_of_a_test.py").write_text(SHAPE.replace("FIELDS", "a: int; b: int"))
    text = CALLEE.replace("FIELDS", "a: int; b: int")
    assert answer(text) == ["201", "0"]
    assert answer(text) == ["201", "1"]
    text = text.replace("x + 1", "x + 2")
    assert answer(text) == ["301", "0"]
    text = text.replace("STEP = 1", "STEP = 7")
    assert answer(text) == ["307", "0"]
    text = text.replace("a: int; b: int", "b: int; a: int")
    assert answer(text) == ["407", "0"]
    assert answer(text) == ["407", "1"]
    assert answer(text, "-OO")[0] == "407"
    assert answer(text) == ["407", "1"], "both have a place"
    (tmp_path / "shape_of_a_test.py").write_text(SHAPE.replace("FIELDS", "b: int; a: int"))
    assert answer(text) == ["1407", "0"]

"""A kernel whose cache was damaged by a full disk or a power cut is compiled again, without a crash."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MODULE = """
from whenabouts.core.arrays.jit import INT64, READ_INT64, compiled

@compiled(INT64(READ_INT64))
def squares(values):
    total = 0
    for value in values:
        total += value * value
    return total
"""

LIVES = """
import importlib, random, sys
from pathlib import Path
import numpy

folder = Path(sys.argv[1])
sys.path.insert(0, str(folder))

def life():
    sys.modules.pop("kernels_of_a_test", None)
    kernel = importlib.import_module("kernels_of_a_test").squares
    kernel.make_ready()
    assert kernel(numpy.arange(10)) == 285
    return sum(kernel.stats.cache_hits.values())

assert life() == 0
files = sorted(path for path in folder.rglob("*.nb[ic]"))
whole = {path: path.read_bytes() for path in files}
assert [path.suffix for path in files] == [".nbc", ".nbi"] or [path.suffix for path in files] == [".nbi", ".nbc"]
random.seed(7)
for path, content in whole.items():
    size = len(content)
    damaged = [b"", content[:1], content[: size // 2], content[:-1], bytes(size), content + b"more", b"no pickle"]
    for start in range(0, size, size // 9):  # blocks of zeros, as a power cut leaves them
        damaged.append(content[:start] + bytes(min(512, size - start)) + content[start + 512 :])
    for change in damaged:
        for other, was in whole.items():
            other.write_bytes(was)
        assert life() == 1, "what is whole is not compiled again"
        path.write_bytes(change)
        assert life() == (change == content), (path.suffix, len(change))
        assert life() == 1, "what was compiled again is stored"
print("done")
"""


@pytest.mark.slow
def test_a_damaged_file_is_compiled_again(tmp_path: Path) -> None:
    (tmp_path / "kernels_of_a_test.py").write_text(MODULE)
    done = subprocess.run(
        [sys.executable, "-c", LIVES, str(tmp_path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-2000:]


FULL = """
import resource, signal, sys
import numpy
from kernels_of_a_test import squares

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
squares.make_ready()
print(squares(numpy.arange(10)), sum(squares.stats.cache_hits.values()))
"""


@pytest.mark.slow
def test_a_kernel_that_cannot_be_stored_is_used_all_the_same(tmp_path: Path) -> None:
    """On a full disk, for the index (of some hundred bytes) and for the code."""
    (tmp_path / "kernels_of_a_test.py").write_text(MODULE)
    for most, hits in ((10, 0), (4_000, 0), (1 << 20, 0), (1 << 20, 1)):
        done = subprocess.run(
            [sys.executable, "-c", FULL, str(most)],
            cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (0, f"285 {hits}\n"), done.stderr[-2000:]


RENAMED = """
from typing import NamedTuple
import numpy as np
from numba import types
from whenabouts.core.arrays.jit import INT64, READ_INT64, compiled

class NAME(NamedTuple):
    values: np.ndarray

@compiled(INT64(types.NamedTuple((READ_INT64,), NAME)))
def total(of):
    return of.values.sum()
"""


@pytest.mark.full
@pytest.mark.slow
def test_a_class_in_a_signature_may_be_renamed(tmp_path: Path) -> None:
    """The index of a cache names the classes of signatures; those of an older cache need not exist any more."""
    for name in ("Old", "New"):
        (tmp_path / "kernels_of_a_test.py").write_text(RENAMED.replace("NAME", name))
        done = subprocess.run(
            [sys.executable, "-c", "import kernels_of_a_test as module; module.total.make_ready()"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr

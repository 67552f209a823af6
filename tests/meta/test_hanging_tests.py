"""A test that hangs ends its worker, shows where it hung, and runs once more; it fails if it hangs again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = """
import os, time
from pathlib import Path

def test_before():
    pass

def test_that_may_hang():
    seen = Path("seen")
    seen.touch()
    with seen.open("a") as file:
        file.write("x")
    {what}

def test_after():
    pass
"""
SETTINGS = "[pytest]\nfaulthandler_timeout = 5\nfaulthandler_exit_on_timeout = true\n"

pytestmark = pytest.mark.slow


# In the process that replaces the first one, before it has run anything.
ENDS_AT_ONCE = """
import os
from pathlib import Path

def pytest_sessionstart(session):
    if hasattr(session.config, "workerinput") and Path("seen").exists():
        os._exit(3)
"""


def run(folder: Path, what: str, plugin: str = "", files: int = 0) -> tuple[int, str, int]:
    """Exit code, what was printed, and how often the test began. `files`: as many others run before, and after."""
    (folder / "test_some.py").write_text(TESTS.format(what=what))
    for number in range(files):
        for name in ("before", "then"):
            (folder / f"test_{name}_{number}.py").write_text(
                "".join(f"def test_{test}():\n    pass\n" for test in range(number + 1))
            )
    (folder / "some_plugin.py").write_text(plugin)
    (folder / "pytest.ini").write_text(SETTINGS)
    options = ["-n", "1", "--max-worker-restart=1", "-p", "conftest", "-p", "some_plugin"]
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=folder,
        env={**environment, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=100,
    )
    return done.returncode, done.stdout, len((folder / "seen").read_text())


def test_one_that_hangs_once_runs_again(tmp_path: Path) -> None:
    code, printed, begun = run(tmp_path, "time.sleep(60 if len(seen.read_text()) == 1 else 0)")
    assert (code, begun) == (0, 2), printed
    assert "Timeout (0:00:05)!" in printed
    assert "in test_that_may_hang" in printed
    assert "HUNG test_some.py::test_that_may_hang, and ran once more" in printed
    assert "3 passed, 1 hung once" in printed


def test_a_new_worker_takes_on_what_is_left(tmp_path: Path) -> None:
    """A worker that is given a single test, or only what has run, would wait forever."""
    code, printed, begun = run(tmp_path, "time.sleep(60 if len(seen.read_text()) == 1 else 0)", files=8)
    assert (code, begun) == (0, 2), printed
    assert "75 passed, 1 hung once" in printed


def test_one_that_always_hangs_fails(tmp_path: Path) -> None:
    code, printed, begun = run(tmp_path, "time.sleep(60)")
    assert (code, begun) == (1, 2), printed
    assert "FAILED test_some.py::test_that_may_hang - worker 'gw1' crashed" in printed


def test_one_that_cannot_run_again_fails(tmp_path: Path) -> None:
    code, printed, begun = run(tmp_path, "time.sleep(60)", ENDS_AT_ONCE)
    assert (code, begun) == (1, 1), printed
    assert "HUNG test_some.py::test_that_may_hang, and did not run once more" in printed


def test_one_that_breaks_its_worker_fails_at_once(tmp_path: Path) -> None:
    code, printed, _ = run(tmp_path, "os._exit(3) if len(seen.read_text()) == 1 else None")
    assert code == 1, printed
    assert "FAILED test_some.py::test_that_may_hang - worker 'gw0' crashed" in printed

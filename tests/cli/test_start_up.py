"""The command line starts quickly: nothing heavy is imported before a command needs it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

from click.testing import Result

HEAVY = ("numpy", "pyarrow", "numba", "pandas", "pyspark", "rich", "matplotlib")


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom whenabouts.cli import main\n"
        "main(['--help'], standalone_mode=False)\nmain(['join', '--help'], standalone_mode=False)\n"
        f"print('loaded:', [name for name in {HEAVY!r} if name in sys.modules])"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "loaded: []" in done.stdout
    assert all(command in done.stdout for command in ("join", "doctor", "demo"))


def test_version(cli: Callable[..., Result]) -> None:
    assert cli("--version").stdout.startswith("whenabouts")


def test_python_runs_it_as_a_module() -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "whenabouts", "join", "none.csv", "none.csv"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("Usage: python -m whenabouts join [OPTIONS] LEFT RIGHT\n")

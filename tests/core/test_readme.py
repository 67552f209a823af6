"""The code blocks of README.md and of the page on dataframes run, and print what they show."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def _blocks(page: str) -> list[str]:
    return BLOCK.findall((ROOT / page).read_text())


@pytest.mark.parametrize("page", ["README.md", "docs/dataframes.md"])
def test_the_first_block_prints_what_it_shows(page: str, tmp_path: Path) -> None:
    """As a user would run it: in a new process, in an empty folder."""
    code = _blocks(page)[0]
    (tmp_path / "example.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-W", "error", "example.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    shown = [line.removeprefix("# ").removeprefix("#") for line in code.splitlines() if line.startswith("#")]
    assert [line.rstrip() for line in done.stdout.splitlines()] == shown


def test_the_block_for_engines_is_the_last_one_and_takes_any_frames() -> None:
    """It runs on Spark in tests/spark/test_readme.py."""
    assert len(_blocks("README.md")) == 2

"""Three turns have all cases that only full runs have, each a third, and a third of the tests that have one case."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = """
import pytest

@pytest.mark.full
@pytest.mark.parametrize("case", range(5))
def test_full(case):
    pass

@pytest.mark.full
@pytest.mark.parametrize("case", range(4))
@pytest.mark.parametrize("engine", ["spark", "flink"])
def test_engines(engine, case):
    pass

@pytest.mark.full
def test_alone():
    pass

@pytest.mark.full
@pytest.mark.parametrize("case", range(1))
def test_one_case(case):
    pass

@pytest.mark.full
def test_alone_too():
    pass

@pytest.mark.parametrize("case", range(5))
def test_always(case):
    pass
"""
TURN = """
import turns_by_commit
turns_by_commit.turn_of = lambda commit: {turn}
"""

pytestmark = pytest.mark.slow


def chosen(folder: Path, turn: int) -> set[str]:
    """The tests of a run."""
    (folder / "test_some.py").write_text(TESTS)
    (folder / "conftest.py").write_text(TURN.format(turn=turn))
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = full\n")
    collect = ["pytest", "--collect-only", "-q", "-p", "turns_by_commit", "-p", "no:cacheprovider", "test_some.py"]
    path = os.pathsep.join([str(ROOT / ".ci"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", *collect], capture_output=True, text=True, cwd=folder, check=True, timeout=120,
        env=os.environ | {"PYTHONPATH": path},
    )  # fmt: skip
    return {line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line}


def test_three_turns_are_all(tmp_path: Path) -> None:
    turns = [chosen(tmp_path, turn) for turn in range(3)]
    always = {f"test_always[{case}]" for case in range(5)}
    alone = {"test_alone", "test_one_case[0]", "test_alone_too"}
    full = {f"test_full[{case}]" for case in range(5)}
    on_engines = {f"test_engines[{engine}-{case}]" for engine in ("spark", "flink") for case in range(4)}
    assert set.union(*turns) == always | alone | full | on_engines
    for one, other in combinations(turns, 2):
        assert one & other == always
    for turn in turns:
        assert len(turn & alone) == 1
        assert len(turn & full) in (1, 2)
        for engine in ("spark", "flink"):
            assert len({name for name in turn & on_engines if engine in name}) in (1, 2)

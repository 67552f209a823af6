"""A pytest plugin: of each test with several cases that only full runs have, a run takes a third of the cases.

Which third the commit decides, so that in time all run: `PYTHONPATH=.ci pytest -p turns_by_commit`.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

TURNS = 3
"""A case runs in one of so many commits, on average."""


def turn_of(commit: str) -> int:
    """Whose turn it is, 0 to `TURNS` - 1, from a commit's hash."""
    return int(commit, 16) % TURNS


def _group(item: pytest.Item) -> tuple[str, object]:
    """The cases that take turns: those of a test function, and on each engine for itself."""
    spec = getattr(item, "callspec", None)
    return item.nodeid.partition("[")[0], spec and spec.params.get("engine")


@pytest.hookimpl(trylast=True)  # when `-m` has chosen
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take every third case of a test; of two cases one in turn or none; a test with one case always runs."""
    root = Path(__file__).parent
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True).stdout
    turn, sizes, seen = turn_of(commit), Counter(map(_group, items)), Counter[tuple[str, object]]()
    chosen: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        group = _group(item)
        seen[group] += 1
        takes_turns = item.get_closest_marker("full") is not None and sizes[group] > 1
        (left_out if takes_turns and seen[group] % TURNS != turn else chosen).append(item)
    items[:] = chosen
    config.hook.pytest_deselected(items=left_out)

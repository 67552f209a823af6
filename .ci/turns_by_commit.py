"""A pytest plugin: of each test with several cases that only full runs have, a run takes a third of the cases, and of
those with one case a third of the tests.

Which third the commit decides, so that in time all run: `PYTHONPATH=.ci pytest -p turns_by_commit`.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

TURNS = 3
"""A case runs in one of so many commits, on average."""

Group = tuple[str, object]


def turn_of(commit: str) -> int:
    """Whose turn it is, 0 to `TURNS` - 1, from a commit's hash."""
    return int(commit, 16) % TURNS


def _groups(items: list[pytest.Item]) -> list[Group]:
    """Whose turns it takes: the cases of a test function, on each engine for itself, or all tests with one case."""
    specs = [getattr(item, "callspec", None) for item in items]
    groups = [
        (item.nodeid.partition("[")[0], spec and spec.params.get("engine"))
        for item, spec in zip(items, specs, strict=True)
    ]
    sizes = Counter(groups)
    return [group if sizes[group] > 1 else ("", None) for group in groups]


@pytest.hookimpl(trylast=True)  # when `-m` has chosen
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take every third case of a test; of two cases one in turn or none."""
    root = Path(__file__).parent
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True).stdout
    turn, seen = turn_of(commit), Counter[Group]()
    full = [item for item in items if item.get_closest_marker("full") is not None]
    left_out = []
    for item, group in zip(full, _groups(full), strict=True):
        seen[group] += 1
        if seen[group] % TURNS != turn:
            left_out.append(item)
    others = set(left_out)
    items[:] = [item for item in items if item not in others]
    config.hook.pytest_deselected(items=left_out)

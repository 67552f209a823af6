"""Numbers of `benchmarks/paced_rows.py` reach a job in order and by the clock."""

from __future__ import annotations

import importlib
from itertools import pairwise
from pathlib import Path

import pytest
from pyflink.common import Types

from whenabouts.flink_plugin.mini_cluster import THREAD, local_environment

SCRIPTS = Path(__file__).parents[2] / "benchmarks"


def test_numbers_pass_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    rows = importlib.import_module("paced_rows")
    env = local_environment(1, mode=THREAD)
    paced = rows.Paced([rows.Phase(500), rows.Phase(100, 400), rows.Phase(100, 200)])
    with paced.stream(env).map(lambda number: number, Types.LONG()).execute_and_collect() as found:
        assert list(found) == list(range(700))
    lasted = [after - before for before, after in pairwise(paced.begun())]
    assert len(lasted) == 3
    assert lasted[1] > 0.24  # no number comes before its time; a busy machine may be late
    assert lasted[2] > 0.49

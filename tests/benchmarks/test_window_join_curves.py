"""`benchmarks/window_join_curves.py` replays a stream from its first row on, and all of it."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest

pytest.importorskip("pyperf")


@pytest.fixture
def curves() -> ModuleType:
    return importlib.import_module("window_join_curves")


@pytest.mark.parametrize("strategy", ["backward", "forward"])
def test_a_stream_of_seconds_has_so_many_ticks(curves: ModuleType, strategy: str) -> None:
    tables = curves.streams(3, 200, 20, 1.0)  # ten seconds
    query = curves.uniform_clique(tables, curves.WIDTH, strategy=strategy)
    readers = query.operator([table.schema for table in tables.values()], streaming=True).readers
    ticks = list(curves.ticks(tables, readers, curves.SECOND, settle=False))
    assert len(ticks) in (9, 10)
    assert sum(arrival.block.num_rows for tick in ticks for arrival in tick.arrivals) > 0.8 * 600
    assert 0 < curves.pace(query, tables, curves.SECOND).waited < 3

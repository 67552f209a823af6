"""Forward evaluation under any watermarks: silent streams that are waited for in vain, and rows that left the state."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from infra.operators import OperatorDriver
from whenabouts.conformance.forward_evaluation_oracle import WindowJoinCounts
from whenabouts.conformance.window_join_case_tables import read
from whenabouts.conformance.window_join_oracle import Counting
from whenabouts.core import Point
from whenabouts.core.arrays.typing import BoolArray
from whenabouts.core.runtime.protocol import NO_WATERMARK, FlushMode
from whenabouts.core.window_join.query import WindowJoin

MS = 1_000
END, SEEDS = 600 * MS, 12
GRAPHS: dict[str, tuple[dict[tuple[str, str], Any], str]] = {
    "uniform clique": (dict.fromkeys((("a", "b"), ("a", "c"), ("b", "c")), 12 * MS), "none"),
    "path, global": ({("a", "b"): 6 * MS, ("b", "c"): (-3 * MS, 20 * MS)}, "gca"),
    "path, local": ({("a", "b"): 6 * MS, ("b", "c"): (-3 * MS, 20 * MS)}, "lca"),
}


def _streams(seed: int) -> dict[str, pa.Table]:
    """Bursts with long silences, of each stream at its own times; equal times too."""
    random = np.random.default_rng(seed)
    tables = {}
    for name in "abc":
        bursts = np.sort(random.integers(0, END, 9)).reshape(3, 3)[:, :2]
        t = np.concatenate(
            [np.sort(MS * random.integers(lo // MS, hi // MS + 1, random.integers(1, 40))) for lo, hi in bursts]
        )
        tables[name] = pa.table({"k": random.integers(0, 2, len(t)), "t": t})
    return tables


def _between(table: pa.Table, since: int, until: int) -> BoolArray:
    t = table.column("t").to_numpy()
    between: BoolArray = (t >= since) & (t < until)
    return between


def _counted(counts: WindowJoinCounts, found: Any) -> None:
    for each in fields(WindowJoinCounts):
        setattr(counts, each.name, getattr(counts, each.name) + found[each.name])


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("graph", GRAPHS)
def test_counts_do_not_depend_on_the_watermark(graph: str, seed: int) -> None:
    """Rows come in time order in steps of any length; the watermark follows them even where a stream is silent."""
    windows, conservative = GRAPHS[graph]
    query = WindowJoin(
        times=dict.fromkeys("abc", Point("t")), windows=windows, on="k", strategy="forward", conservative=conservative
    )
    tables, random = _streams(seed), np.random.default_rng(seed)
    expected = WindowJoinCounts()
    Counting(query, "forward", conservative).block(read(query, tables).events, expected)
    driver, counts, evicted = OperatorDriver(query, tables["a"].schema), WindowJoinCounts(), 0
    since, passed = NO_WATERMARK, NO_WATERMARK
    for until in [*np.sort(random.integers(0, END + 30 * MS, 25)).tolist(), END + 30 * MS]:
        arriving = {name: table.filter(pa.array(_between(table, since, until))) for name, table in tables.items()}
        batches = {name: table.combine_chunks().to_batches()[0] for name, table in arriving.items() if len(table)}
        steps = [driver.feed(batches, passed)]
        if random.random() < 0.7:
            passed = until
            steps.append(driver.feed({}, passed))
        for done in steps:
            _counted(counts, done.metrics)
            evicted += done.metrics["rows_evicted"]
        since = until
    _counted(counts, driver.feed({}, END + 30 * MS, FlushMode.END).metrics)
    assert counts == expected
    assert evicted > 0

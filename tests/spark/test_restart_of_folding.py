"""A join aggregate whose waiting rows hold what was folded into them: two lives, each a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import whenabouts as wa
from whenabouts.conformance import multiset

pytestmark = [pytest.mark.slow, pytest.mark.full]

PROGRAM = Path(__file__).with_name("folding_life.py")
START_US, MINUTE_US, WRITTEN_S = 1_600_000_000_000_000, 60_000_000, 1_700_000_000
AGGREGATES = {
    "n": "count", "total": "sum:amount", "least": "min:amount", "first": "first:amount", "expected": "expected_count",
    "paid": "expected_sum:amount",
}  # fmt: skip
LIVES, FILES = 2, 3
"""Each file holds the rows of a minute, so that a window of five minutes reaches over more than one life."""
UTC = pa.timestamp("us", "UTC")


def orders_of(minute: int) -> pa.Table:
    """Few beside the payments."""
    draw = np.random.default_rng([minute, 0])
    t = START_US + minute * MINUTE_US + draw.integers(0, MINUTE_US, 6)
    return pa.table({"account": draw.integers(0, 3, 6), "t": pa.array(t, UTC), "id": 100 * minute + np.arange(6)})


def payments_of(minute: int) -> pa.Table:
    draw = np.random.default_rng([minute, 1])
    t0 = START_US + minute * MINUTE_US + draw.integers(0, MINUTE_US, 200)
    t1 = t0 + draw.integers(0, 2_000_000, 200)
    columns = {"account": draw.integers(0, 3, 200), "t0": pa.array(t0, UTC), "t1": pa.array(t1, UTC)}
    return pa.table(columns | {"amount": draw.integers(1, 100, 200)})


def live(folder: Path, aggregates: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PROGRAM), str(folder), json.dumps(aggregates)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=folder, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip


def test_what_was_folded_survives_a_restart(tmp_path: Path) -> None:
    """The lives together write the bits of one batch, though orders of the first are answered in the second."""
    given: dict[str, list[pa.Table]] = {"orders": [], "payments": []}
    answered = []
    for life in range(LIVES):
        for minute in range(life * FILES, (life + 1) * FILES):
            last = minute == LIVES * FILES - 1
            tables = {"orders": orders_of(minute), "payments": payments_of(minute + 60 * last)}
            if minute >= FILES:  # one order a minute, of an account that nobody has
                alone = tables["orders"].slice(0, 1)
                tables["orders"] = alone.set_column(0, "account", pa.array([99])).set_column(
                    1, "t", pa.array([START_US + (minute + 60 * last) * MINUTE_US], UTC)
                )
            for side, table in tables.items():
                given[side].append(table)
                file = tmp_path / side / f"{minute}.parquet"
                file.parent.mkdir(exist_ok=True)
                pq.write_table(table, file)
                os.utime(file, times=(WRITTEN_S + minute,) * 2)  # the order in which Spark reads them
        if life == 1:
            # Other functions of the same columns are refused only where rows were folded: the checkpoint holds some.
            refused = live(tmp_path, AGGREGATES | {"least": "max:amount"})
            assert refused.returncode != 0
            assert "WA-3006" in refused.stderr
        done = live(tmp_path, AGGREGATES)
        assert done.returncode == 0, done.stderr[done.stderr.find("Traceback") :][:3000]
        answered.append(pq.read_table(tmp_path / "answers").num_rows)
    orders, payments = (pa.concat_tables(tables) for tables in given.values())
    batch = wa.join_aggregate(
        orders, payments, on="account", left_time=wa.Point("t"),
        right_time=wa.Interval("t0", "t1", max_uncertainty="2 s"),
        condition=wa.between("0 s", "5 minutes", confidence=0.9), aggregates=AGGREGATES,
    )  # fmt: skip
    assert answered[0] < 6 * FILES, "no order of the first life waits in the checkpoint"
    written = pq.read_table(tmp_path / "answers").select(batch.column_names).cast(batch.schema)
    known = batch.filter(pc.is_in(batch["id"], written["id"].combine_chunks()))
    assert known.num_rows >= 6 * FILES, "the second life answers all orders of the first"
    multiset.assert_same(multiset.rows(written), multiset.rows(known), "both lives against a batch")

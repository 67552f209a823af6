"""The stream of docs/asof-join.md: two processes, the second of which continues from the checkpoint of the first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import whenabouts as wa
from whenabouts.conformance import multiset

pytestmark = [pytest.mark.slow, pytest.mark.full]

PROGRAM = Path(__file__).with_name("asof_life.py")
START_US, LIFE_US, ROWS = 1_600_000_000_000_000, 30_000_000, 60
OLD = "quoted once"
WRITTEN_S = 1_700_000_000


def _side(life: int, seed: int, column: str) -> pa.Table:
    """The rows of a life, in order of time; the ids tell which life."""
    draw = np.random.default_rng(10 * life + seed)
    ts = np.sort(draw.integers(0, LIFE_US, ROWS)) + START_US + life * LIFE_US
    symbols = [f"S{n}" for n in draw.integers(0, 5, ROWS)]
    ids = 1000 * life + np.arange(ROWS)
    if column == "bid" and not life:
        symbols[0] = OLD
    if column == "id" and life:
        symbols[-1] = OLD
    return pa.table({"symbol": symbols, "ts": pa.array(ts, pa.timestamp("us", "UTC")), column: ids})


def _heartbeat(like: pa.Table, minutes: int) -> pa.Table:
    at = pa.array([START_US + minutes * 60_000_000], pa.timestamp("us", "UTC"))
    return pa.table([pa.array([None], pa.string()), at, pa.array([-minutes])], schema=like.schema)


def _live(folder: Path, life: int, tables: dict[str, list[pa.Table]]) -> None:
    for side, written in tables.items():
        for number, table in enumerate(written):
            (folder / side).mkdir(exist_ok=True)
            file = folder / side / f"{life}-{number}.parquet"
            pq.write_table(table, file)
            os.utime(file, times=(WRITTEN_S + 10 * life + number,) * 2)  # the order in which Spark reads them
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=folder, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[done.stderr.find("Traceback") :][:3000]


def test_the_documented_stream_continues_in_a_new_process(tmp_path: Path) -> None:
    """Both lives together write the rows of one batch, and trades of the second get quotes of the first."""
    columns = {"trades": (1, "id"), "quotes": (2, "bid")}
    lives = [{side: [_side(life, *of)] for side, of in columns.items()} for life in (0, 1)]
    for minutes in (5, 10):  # they move the watermark past all rows
        for tables in lives[1].values():
            tables.append(_heartbeat(tables[0], minutes))
    for life, tables in enumerate(lives):
        _live(tmp_path, life, tables)
        if not life:
            assert 0 < pq.read_table(tmp_path / "priced").num_rows < ROWS, "no trade waits in the checkpoint"
    trades, quotes = (pa.concat_tables([*lives[0][side], *lives[1][side]]) for side in columns)
    batch = wa.asof_join(
        trades, quotes, on="symbol", left_time=wa.Point("ts"), right_time=wa.from_granularity("ts", "1 ms"),
        confidence=0.9,
    )  # fmt: skip
    written = pq.read_table(tmp_path / "priced").select(batch.column_names).cast(batch.schema)
    multiset.assert_same(multiset.rows(written), multiset.rows(batch), "both lives against a batch")
    across = [row for row in batch.to_pylist() if row["id"] >= 1000 and row["bid"] is not None and row["bid"] < 1000]
    assert {OLD} < {row["symbol"] for row in across}

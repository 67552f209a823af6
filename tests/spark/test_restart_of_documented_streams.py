"""The streams of docs pages: two processes, the second of which continues from the checkpoint of the first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import whenabouts as wa
from whenabouts.conformance import multiset

pytestmark = [pytest.mark.slow, pytest.mark.full]

PROGRAM = Path(__file__).with_name("documented_life.py")
START_US, LIFE_US, ROWS = 1_600_000_000_000_000, 30_000_000, 60
OLD = "quoted once"
WRITTEN_S = 1_700_000_000
SECOND = 1_000_000
UTC = pa.timestamp("us", "UTC")

Lives = list[dict[str, list[pa.Table]]]


def _instants(
    life: int, seed: int, life_us: int, rows: int = ROWS
) -> tuple[np.random.Generator, np.ndarray[tuple[int], np.dtype]]:
    """Times of a life in order, and what draws its other values."""
    draw = np.random.default_rng(10 * life + seed)
    return draw, np.sort(draw.integers(0, life_us, rows)) + START_US + life * life_us


def _quoted(life: int, seed: int, column: str) -> pa.Table:
    """Trades or quotes of a life; the ids tell which life."""
    draw, ts = _instants(life, seed, LIFE_US)
    symbols = [f"S{n}" for n in draw.integers(0, 5, ROWS)]
    ids = 1000 * life + np.arange(ROWS)
    if column == "bid" and not life:
        symbols[0] = OLD
    if column == "id" and life:
        symbols[-1] = OLD
    return pa.table({"symbol": symbols, "ts": pa.array(ts, UTC), column: ids})


def _heartbeat(like: pa.Table, at_us: int) -> pa.Table:
    """A row without a key, which moves the watermark and meets nobody."""
    at = pa.array([at_us], UTC)
    columns = [at if field.type == UTC else pa.nulls(1, field.type) for field in like.schema]
    return pa.table(columns, schema=like.schema)


def _two_lives(sides: tuple[str, str], of: list[tuple[pa.Table, pa.Table]]) -> Lives:
    """The tables of both lives; heartbeats at the end move the watermark past all rows."""
    lives: Lives = [{side: [table] for side, table in zip(sides, tables, strict=True)} for tables in of]
    for hours in (1, 2):
        for tables in lives[1].values():
            tables.append(_heartbeat(tables[0], START_US + hours * 3600 * SECOND))
    return lives


def _run_lives(folder: Path, lives: Lives, page: str, after: str, schemas: dict[str, str]) -> int:
    """Run both lives; returns how many rows the first one wrote."""
    written = 0
    output = folder / {"trades": "priced", "orders": "per_order", "events": "alarms"}[next(iter(schemas))]
    for life, tables in enumerate(lives):
        for side, given in tables.items():
            (folder / side).mkdir(exist_ok=True)
            for number, table in enumerate(given):
                file = folder / side / f"{life}-{number}.parquet"
                pq.write_table(table, file)
                os.utime(file, times=(WRITTEN_S + 10 * life + number,) * 2)  # the order in which Spark reads them
        done = subprocess.run(
            [sys.executable, str(PROGRAM), str(folder), page, after, json.dumps(schemas)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            cwd=folder, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[done.stderr.find("Traceback") :][:3000]
        if not life:
            written = pq.read_table(output).num_rows
    return written


def _assert_same(folder: Path, batch: pa.Table) -> None:
    written = pq.read_table(folder).select(batch.column_names).cast(batch.schema)
    multiset.assert_same(multiset.rows(written), multiset.rows(batch), "both lives against a batch")


def test_the_stream_of_an_asof_join(tmp_path: Path) -> None:
    """Both lives together write the rows of one batch, and trades of the second get quotes of the first."""
    lives = _two_lives(("trades", "quotes"), [(_quoted(life, 1, "id"), _quoted(life, 2, "bid")) for life in (0, 1)])
    schemas = {
        side: f"symbol string, ts timestamp, {name} bigint" for side, name in (("trades", "id"), ("quotes", "bid"))
    }
    first = _run_lives(tmp_path, lives, "asof-join.md", "A program on Spark:", schemas)
    assert 0 < first < ROWS, "no trade waits in the checkpoint"
    trades, quotes = (pa.concat_tables([*lives[0][side], *lives[1][side]]) for side in schemas)
    batch = wa.asof_join(
        trades, quotes, on="symbol", left_time=wa.Point("ts"), right_time=wa.from_granularity("ts", "1 ms"),
        confidence=0.9,
    )  # fmt: skip
    _assert_same(tmp_path / "priced", batch)
    priced = [row for row in batch.to_pylist() if row["id"] is not None and row["bid"] is not None]
    across = [row for row in priced if row["bid"] < 1000 <= row["id"]]
    assert {OLD} < {row["symbol"] for row in across}


def test_the_stream_of_a_join_aggregate(tmp_path: Path) -> None:
    """Both lives together write the numbers of one batch, and orders count payments of both lives.

    The page's window reaches 5 minutes back, so that orders of the second life have payments of the first; those that
    wait in the checkpoint are answered by rows of the second life.
    """
    life_us = 120 * SECOND
    tables = []
    for life in (0, 1):
        draw, ts = _instants(life, 1, life_us)
        orders = pa.table(
            {"account": draw.integers(0, 5, ROWS), "t": pa.array(ts, UTC), "id": np.arange(ROWS) + 1000 * life}
        )
        draw, ts = _instants(life, 2, life_us)
        account = draw.integers(0, 5, ROWS)
        t1 = ts + draw.integers(0, 2 * SECOND, ROWS)
        tables.append((orders, pa.table({
            "account": account, "t0": pa.array(ts, UTC), "t1": pa.array(t1, UTC), "amount": draw.integers(1, 100, ROWS),
        })))  # fmt: skip
    lives = _two_lives(("orders", "payments"), tables)
    schemas = {
        "orders": "account bigint, t timestamp, id bigint",
        "payments": "account bigint, t0 timestamp, t1 timestamp, amount bigint",
    }
    first = _run_lives(tmp_path, lives, "join-aggregate.md", "On Spark and Flink it is the same call:", schemas)
    assert 0 < first < ROWS, "no order waits in the checkpoint"
    orders, payments = (pa.concat_tables([*lives[0][side], *lives[1][side]]) for side in schemas)
    batch = wa.join_aggregate(
        orders, payments, on="account", left_time=wa.Point("t"), right_time=wa.Interval("t0", "t1"),
        condition=wa.between("-5 minutes", "0 s", confidence=0.9),
        aggregates={"n": "count", "total": "sum:amount", "nobody": "p_none"},
    )  # fmt: skip
    _assert_same(tmp_path / "per_order", batch)
    alone = wa.join_aggregate(
        tables[1][0], tables[1][1], on="account", left_time=wa.Point("t"), right_time=wa.Interval("t0", "t1"),
        condition=wa.between("-5 minutes", "0 s", confidence=0.9), aggregates={"n": "count"},
    )  # fmt: skip
    whole = {row["id"]: row["n"] for row in batch.to_pylist()}
    assert any(whole[row["id"]] > row["n"] for row in alone.to_pylist())


def test_the_stream_of_a_watched_clock(tmp_path: Path) -> None:
    """Both lives together give the alarms of one batch; rows of both are needed to see the step at their border."""
    lives: Lives = []
    rows = 160
    for life in (0, 1):
        draw, arrived = _instants(life, 1, LIFE_US, rows)
        shown = arrived - draw.integers(0, 1000, rows) + 5 * SECOND * life
        columns = {"device": ["door"] * rows, "t": pa.array(shown, UTC), "arrived": pa.array(arrived, UTC)}
        lives.append({"events": [pa.table(columns)]})
    events = pa.concat_tables([lives[0]["events"][0], lives[1]["events"][0]])
    lives[1]["events"] += [_heartbeat(events, START_US + hours * 3600 * SECOND) for hours in (1, 2)]
    schemas = {"events": "device string, t timestamp, arrived timestamp"}
    assert _run_lives(tmp_path, lives, "clocks.md", "same alarms. A program on Spark:", schemas) == 0
    batch = wa.watch_clock(events, reading="t", against="arrived", group="device")
    assert batch["kind"].to_pylist() == ["step"]
    assert wa.watch_clock(lives[1]["events"][0], reading="t", against="arrived", group="device").num_rows == 0
    _assert_same(tmp_path / "alarms", batch)


DEVICES, AHEAD_US, LONGEST_US = ("front", "back", "new"), (0, 3 * SECOND, 0), 50_000


def _last_week() -> pa.Table:
    """An hour of the clocks of two devices, up to 50 ms late; a third one is not there yet."""
    rows = 1_000
    draw = np.random.default_rng(0)
    arrived = START_US - 3600 * SECOND + np.sort(draw.integers(0, 3600 * SECOND, (2, rows)))
    shown = arrived + np.array([AHEAD_US[:2]]).T + draw.integers(0, LONGEST_US, (2, rows))
    return pa.table({
        "device": np.repeat(DEVICES[:2], rows), "t": pa.array(shown.ravel(), UTC),
        "arrived": pa.array(arrived.ravel(), UTC),
    })  # fmt: skip


def _watched_rows(life: int, rows: int) -> pa.Table:
    """From the last 40 rows of the first life on, readings of the front door are among the later ones that were
    learned; the new device steps between both lives."""
    parts = []
    for seed, (device, ahead) in enumerate(zip(DEVICES, AHEAD_US, strict=True)):
        draw, arrived = _instants(life, seed, LIFE_US, rows)
        late = draw.integers(0, LONGEST_US, rows)
        if device == "front":
            from_row = 0 if life else rows - 40
            late[from_row:] = LONGEST_US * 3 // 5 + late[from_row:] * 2 // 5
        if device == "new":
            late += 5 * SECOND * life
        shown = arrived + ahead + late
        parts.append(
            pa.table({"device": [device] * rows, "t": pa.array(shown, UTC), "arrived": pa.array(arrived, UTC)})
        )
    return pa.concat_tables(parts)


def test_the_stream_of_watched_clocks_that_were_learned_by_key(tmp_path: Path) -> None:
    """Both lives together give the alarms of one batch. Evidence of the first life against a learned clock counts in
    the second; a device without a clock has its steps found."""
    rows = 160
    lives: Lives = [{"events": [_watched_rows(life, rows)]} for life in (0, 1)]
    events = pa.concat_tables([lives[0]["events"][0], lives[1]["events"][0]])
    for hours in (1, 2):  # of a device of their own: rows without a group are rejected, and move no watermark
        at = pa.array([START_US + hours * 3600 * SECOND], UTC)
        lives[1]["events"].append(pa.table({"device": ["none"], "t": at, "arrived": at}))
    past = _last_week()
    pq.write_table(past, tmp_path / "last-week.parquet")
    schemas = {"events": "device string, t timestamp, arrived timestamp"}
    assert _run_lives(tmp_path, lives, "clocks.md", "may be learned at every start:", schemas) == 0
    clocks = wa.learn_clock(
        past, past, left_time="arrived", right_time="t", on="device", per_key=True, max_offset="10 s"
    )
    assert sorted(clocks.found) == ["back", "front"]
    options: dict[str, Any] = {"reading": "t", "against": "arrived", "group": "device", "clock": clocks}
    batch = wa.watch_clock(events, **options)
    assert batch.num_rows == 2
    alarms = {row["device"]: row for row in batch.to_pylist()}
    assert {device: row["kind"] for device, row in alarms.items()} == {"front": "late", "new": "step"}
    (alone,) = wa.watch_clock(lives[1]["events"][0], **options).to_pylist()
    assert rows < alarms["front"]["row"] < rows + alone["row"]
    _assert_same(tmp_path / "alarms", batch)

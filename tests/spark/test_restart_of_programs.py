"""A program that is restarted: each run is a new process, or a new client of a new server.

Spark creates parts of a session when its first streaming query starts. Only a new process shows what is missing at a
restart.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.connect import PATIENCE_S, connect_server, needs_connect
from whenabouts.core import Interval, within
from whenabouts.core.local import run
from whenabouts.core.timing_join.query import TimingJoin

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parent / "one_life.py"
LIFE_US = 20_000_000
"""The events of the next run are this much later; those of one run spread over a minute."""


def events(life: int) -> pa.Table:
    """The events of a run; their ids tell which. The first event of each run ends before it begins."""
    draw = np.random.default_rng(life)
    t_max = draw.integers(0, 60_000_000, 40) + 1_600_000_000_000_000 + life * LIFE_US
    widths = draw.integers(0, 5_000_000, 40)
    widths[0] = -1
    return pa.table(
        {
            "t_min": pa.array(t_max - widths, pa.timestamp("us", "UTC")),
            "t_max": pa.array(t_max, pa.timestamp("us", "UTC")),
            "k": pa.array(draw.integers(0, 3, 40)),
            "id": pa.array(1000 * life + np.arange(40)),
        }
    )


@contextmanager
def spark_of(place: str, folder: Path) -> Iterator[str]:
    """The address of the program's Spark."""
    if place == "connect":
        with connect_server(folder) as address:
            yield address
    else:
        yield "local"


def live(spark: str, folder: Path, call: str) -> None:
    """One run from its start to its end."""
    life = subprocess.run(
        [sys.executable, str(PROGRAM), spark, str(folder), call],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert life.returncode == 0, life.stderr[life.stderr.find("Traceback") :][:3000]


def rows(table: pa.Table, schema: pa.Schema) -> Counter[str]:
    return Counter(map(repr, table.select(schema.names).cast(schema).to_pylist()))


def written(folders: Sequence[Path], schema: pa.Schema) -> Counter[str]:
    return sum((rows(pq.read_table(folder), schema) for folder in folders), Counter())


def lives(calls: Sequence[str], place: str, folder: Path) -> None:
    """One run for each call; together they write the rows of one batch over all events."""
    tables = [events(life) for life in range(len(calls))]
    (folder / "events").mkdir()
    for life, (table, call) in enumerate(zip(tables, calls, strict=True)):
        pq.write_table(table, folder / "events" / f"{life}.parquet")
        with spark_of(place, folder) as spark:
            live(spark, folder, call)
    times = Interval("t_min", "t_max", max_uncertainty="5 s")
    every = pa.concat_tables(tables)
    query = TimingJoin(left_time=times, right_time=times, condition=within("4 s", confidence=0.6), on="k")
    want = run(query, [every, every])
    pairs = want.output
    apart = np.abs(pairs["id_left"].to_numpy() - pairs["id_right"].to_numpy()) > 40
    assert apart.sum() > 10, "few rows have partners of another life"
    sinks = [folder / "sink"] if "write_stream" in calls else []
    assert written([*sinks, *folder.glob("rows/*")], pairs.schema) == rows(pairs, pairs.schema)
    told = [row for row in want.rejects.to_pylist() if calls[row["id"] // 1000] == "write_with_rejects"]
    assert bool(told) is ("write_with_rejects" in calls)
    assert written([*folder.glob("rejects/*")], want.rejects.schema) == Counter(map(repr, told))


PLACES = ["classic", pytest.param("connect", marks=needs_connect)]
BOTH = ["write_stream", "write_with_rejects"]


@pytest.mark.full
def test_three_lives_give_what_one_batch_gives(tmp_path: Path) -> None:
    """Either documented call finds a checkpoint as the first action of its process on streams."""
    lives(["write_stream", *BOTH], "classic", tmp_path)


@needs_connect
def test_a_client_of_a_new_server_continues(tmp_path: Path) -> None:
    lives(BOTH, "connect", tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("call", BOTH)
@pytest.mark.parametrize("place", PLACES)
def test_each_call_alone_for_three_lives(place: str, call: str, tmp_path: Path) -> None:
    lives([call] * 3, place, tmp_path)

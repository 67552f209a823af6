"""Laws of sources that fall silent, and of sources that deliver rows again."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from whenabouts.conformance import case_tables, expectations, multiset
from whenabouts.conformance.case_tables import SECOND, YEAR_2024, Files
from whenabouts.conformance.engine import Engine
from whenabouts.core import Interval, Lateness, within
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.harness import Variant
from whenabouts.core.local import run
from whenabouts.core.runtime.protocol import Query
from whenabouts.core.temporal_queries.aggregate_query import TemporalAggregate
from whenabouts.core.temporal_queries.join_query import TemporalJoin
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.window_join.query import WindowJoin
from whenabouts.core.wrappers.deduplication import deduplicated

FILES, FILE_S, ROWS_PER_SECOND, LATE_S = 8, 60, 2, 3
IDLE_S = 90
"""Longer than a file: an engine may read a minute of one side before it sees that minute of the other side."""
REPEATING = 4
"""Files whose rows come again."""
STREAM = Variant(streaming=True)

similar = pytest.mark.similar
pytestmark = pytest.mark.hosting


def _query(**options: str) -> TimingJoin:
    time = Interval("t_min", "t_max", max_uncertainty="4 s")
    late = f"{LATE_S} s"
    return TimingJoin(
        left_time=time, right_time=time, condition=within("6 s", confidence=0.5), on="k",
        lateness=Lateness(late, late, options.get("idle_after")),
    )  # fmt: skip


def _rows(side: str, file: int, *, seconds: int = FILE_S) -> pa.Table:
    """The first seconds of a file: rows in order of time, each with an id of its own."""
    random, n = case_tables.rng("sources", side, file), seconds * ROWS_PER_SECOND
    t_max = YEAR_2024 + file * FILE_S * SECOND + np.arange(n) * (SECOND // ROWS_PER_SECOND)
    ids = file * FILE_S * ROWS_PER_SECOND + np.arange(n)
    lengths = random.integers(0, 5, n) * SECOND
    return pa.table({"t_min": t_max - lengths, "t_max": t_max, "k": random.integers(0, 20, n), "id": ids})


@lru_cache
def _stalling() -> dict[str, Files]:
    """The right side falls silent after a minute, and continues with its delayed rows and with new ones.

    left   |0|1|2|3|4|5|6|7|    a file a minute
    right  |0|. . . . . . 1 7|  minute 1 comes with minute 7
    """
    left, nothing = tuple(_rows("left", n) for n in range(FILES)), _rows("right", 0).slice(0, 0)
    last = pa.concat_tables([_rows("right", 1), _rows("right", FILES - 1)])
    return {"left": left, "right": (_rows("right", 0), *[nothing] * (FILES - 2), last)}


@pytest.mark.parametrize("buckets", [3, pytest.param(1, marks=similar)])
def test_oracle_idle_side(engine: Engine, buckets: int) -> None:
    """A silent side does not hold the watermark back: state is dropped meanwhile, and its delayed rows are late."""
    files, variant = _stalling(), Variant(streaming=True, parallelism=buckets)
    query = _query(idle_after=f"{IDLE_S} s")
    outcome = engine.run(query, files, variant)
    tables = expectations.whole(files)
    late = multiset.rows(outcome.rejects.filter(pa.compute.equal(outcome.rejects["code"], "WA-1010")), ["id"])
    assert late == multiset.rows(_rows("right", 1), ["id"]), "all that was held back is late, and nothing else"
    tables["right"] = pa.concat_tables([_rows("right", 0), _rows("right", FILES - 1)])
    expected = expectations.answer(query, tables, expectations.read(query, tables).events)
    multiset.assert_same(expectations.join_rows(outcome), expected.rows, "pairs of the rows that were accepted")
    told = outcome.metrics
    assert told["rows_in"] == told["rows_processed"] + told["rows_rejected"]
    held = told["rows_stored"] - told["rows_evicted"]
    assert held <= 2 * ROWS_PER_SECOND * (33 + IDLE_S + 3 * FILE_S), f"{held} rows are held at the end"


@similar
def test_differential_idle_input_of_a_temporal_join(engine: Engine) -> None:
    """Coalesced tuples are joined without waiting for a silent input either: the result is that of the rows in time."""
    query = TemporalJoin(
        time="t_max", group="k", values="id", on="k", window="30 s", slide="15 s",
        lateness=f"{LATE_S} s", idle_after=f"{IDLE_S} s",
    )  # fmt: skip
    outcome = engine.run(query, _stalling(), Variant(streaming=True, parallelism=3, restart_after=4))
    assert multiset.rows(outcome.rejects, ["id"]) == multiset.rows(_rows("right", 1), ["id"])
    in_time = [_rows("right", 0), _rows("right", FILES - 1)]
    want = run(query, [pa.concat_tables(tables) for tables in (_stalling()["left"], in_time)]).output
    assert want.num_rows > 100
    multiset.assert_same(multiset.rows(outcome.output), multiset.rows(want), "pairs of the rows that were accepted")


@similar
def test_oracle_no_idle_side(engine: Engine) -> None:
    """Without `idle_after` a silent side is waited for: no row is late."""
    files, query = _stalling(), _query()
    outcome = engine.run(query, files, STREAM)
    tables = expectations.whole(files)
    expected = expectations.answer(query, tables, expectations.read(query, tables).events)
    multiset.assert_same(expectations.join_rows(outcome), expected.rows, "pairs of a side that was waited for")
    assert outcome.rejects.num_rows == 0


@lru_cache
def _repeating() -> dict[str, Files]:
    """Every file repeats a third of its rows and the last rows of the one before, as a source does after a failure."""
    files: dict[str, Files] = {}
    for side in expectations.SIDES:
        told: list[pa.Table] = []
        for number in range(REPEATING):
            rows = _rows(side, number)
            again = rows.take(pa.array(case_tables.rng("again", side, number).permutation(rows.num_rows)[::3]))
            before = [told[-1].slice(80, 20)] if told else []
            told.append(pa.concat_tables([rows, again, *before]))
        files[side] = tuple(told)
    return files


@pytest.mark.parametrize(
    "variant",
    [
        pytest.param(Variant(streaming=True, parallelism=3, restart_after=2), marks=similar),
        pytest.param(STREAM, marks=similar),
        pytest.param(Variant(), marks=similar),
    ],
    ids=["restart", "stream", "batch"],
)
def test_oracle_repeats(engine: Engine, variant: Variant) -> None:
    """Rows that are delivered again are processed once, also across a restart; every one of them is counted."""
    files = _repeating()
    if not variant.streaming:
        files = {side: (table,) for side, table in expectations.whole(files).items()}
    outcome = engine.run(deduplicated(_query(), "id"), files, variant)
    tables = {side: pa.concat_tables([_rows(side, n) for n in range(REPEATING)]) for side in expectations.SIDES}
    expected = expectations.answer(_query(), tables, expectations.read(_query(), tables).events)
    multiset.assert_same(expectations.join_rows(outcome), expected.rows, "pairs of the rows, each taken in once")
    told = outcome.metrics
    assert told["rows_in"] == told["rows_processed"] + told["rows_rejected"] + told["rows_replayed"]
    if variant.restart_after is None:
        assert told["rows_processed"] == sum(table.num_rows for table in tables.values())
    assert told["rows_replayed"] >= 2 * REPEATING * FILE_S * ROWS_PER_SECOND // 3, "repeats in one file are never late"


def test_oracle_repeats_that_differ(engine: Engine) -> None:
    """Of repeats that differ in other columns, the first by these stays, whatever the order in which they come."""
    random = case_tables.rng("repeats that differ")
    files, kept = {}, {}
    for side in expectations.SIDES:
        rows = _rows(side, 0)
        versions = [
            rows.append_column("version", pa.array(random.permutation(rows.num_rows) + rows.num_rows * number))
            for number in range(3)
        ]
        kept[side] = versions[0]
        files[side] = (pa.concat_tables(versions).take(pa.array(random.permutation(3 * rows.num_rows))),)
    outcome = engine.run(deduplicated(_query(), "id"), files)
    expected = expectations.answer(_query(), kept, expectations.read(_query(), kept).events)
    multiset.assert_same(expectations.join_rows(outcome), expected.rows, "pairs of the rows with the first versions")


_RUNS: dict[str, Any] = {"time": "t_max", "group": "k", "values": "id", "lateness": f"{LATE_S} s"}
_OTHERS: dict[str, Query] = {
    "window join": WindowJoin.of(
        expectations.SIDES,
        Interval("t_min", "t_max", max_uncertainty="4 s"),
        windows={expectations.SIDES: within("6 s", confidence=0.5)},
        on="k",
        lateness=f"{LATE_S} s",
    ),
    "coalesce": Coalesce(**_RUNS),
    "temporal aggregate": TemporalAggregate(**_RUNS, window="30 s", slide="15 s", aggregates={"n": "count"}),
    "temporal join": TemporalJoin(**_RUNS, on="k", window="30 s", slide="15 s"),
}


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=similar) for kind in _OTHERS])
def test_differential_repeats_of_other_queries(engine: Engine, kind: str) -> None:
    """Every kind of query processes repeats once, and gives the rows that it gives without them."""
    query, sides = _OTHERS[kind], dict(zip(_OTHERS[kind].inputs, expectations.SIDES, strict=False))
    files = {name: _repeating()[side] for name, side in sides.items()}
    outcome = engine.run(deduplicated(query, "id"), files, Variant(streaming=True, parallelism=3, restart_after=2))
    want = run(query, [pa.concat_tables([_rows(side, n) for n in range(REPEATING)]) for side in sides.values()])
    assert want.output.num_rows > 100
    multiset.assert_same(multiset.rows(outcome.output), multiset.rows(want.output), "rows, each taken in once")
    told = outcome.metrics
    assert told["rows_in"] == told["rows_processed"] + told["rows_rejected"] + told["rows_replayed"]
    assert told["rows_replayed"] >= len(sides) * REPEATING * FILE_S * ROWS_PER_SECOND // 3

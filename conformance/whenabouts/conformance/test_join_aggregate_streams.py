"""Laws of join aggregates on streams: the rows of finite input, each at the instant at which no partner can come."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from functools import lru_cache

import pyarrow as pa
import pytest

from whenabouts.conformance import case_tables, expectations, join_aggregate_rows, multiset
from whenabouts.conformance.case_tables import LATENESS, SECOND, YEAR_2024, Files
from whenabouts.conformance.engine import Engine
from whenabouts.conformance.multiset import Row
from whenabouts.conformance.slow_engine_cases import fewer_on_slow_engines
from whenabouts.conformance.test_join_aggregate import CHANCE, DECIDED, query_of, tables
from whenabouts.core import Lateness, Point, between, delay
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.harness import Variant
from whenabouts.core.join_aggregate.query import JoinAggregate

STREAM = Variant(streaming=True)
SHEETS = [
    "ties", "wide", "narrow", "certain", "points", "point and interval", "malformed", "histograms",
    "histogram and interval", "few lengths",
]  # fmt: skip


@lru_cache
def stream(dataset: str, files: tuple[int, int] = (4, 3), seed: int = 0) -> dict[str, Files]:
    """A dataset as files of a stream: rows out of order inside the lateness."""
    source, cuts = case_tables.dataset(dataset), {}
    for (side, table), n, late_us in zip(tables(dataset).items(), files, LATENESS.per_input_us, strict=True):
        arriving = case_tables.reordered(table, source.specs[side], late_us, dataset, side, seed)
        cuts[side] = case_tables.cut(arriving, n, dataset, side, seed)
    return cuts


@lru_cache
def _expected(dataset: str, how: str) -> Counter[Row]:
    return join_aggregate_rows.rows(query_of(dataset, DECIDED, how=how), tables(dataset), timed=True)


@pytest.mark.parametrize("dataset", fewer_on_slow_engines(SHEETS, ["ties"], canary="histograms"))
def test_oracle_aggregate_streams(engine: Engine, dataset: str) -> None:
    """A stream that loses a step gives the rows of brute force, each once, with the instant at which it is final."""
    query = query_of(dataset, DECIDED)
    variant = Variant(streaming=True, parallelism=2, restart_after=1)
    outcome = engine.run(query, stream(dataset), variant)
    multiset.assert_same(multiset.rows(outcome.output), _expected(dataset, "left_outer"), "rows", {"query": query})
    assert outcome.metrics["matched"] == outcome.output.num_rows
    assert outcome.metrics["rows_in"] == outcome.metrics["rows_processed"] + outcome.metrics["rows_rejected"]


@pytest.mark.parametrize("dataset", fewer_on_slow_engines(SHEETS, ["point and interval"]))
def test_differential_chance_streams(engine: Engine, dataset: str) -> None:
    """Chances of a stream are those of finite input, to the last bit, and wait until no partner is possible."""
    query = query_of(dataset, CHANCE)
    finite = engine.run(query, {side: (table,) for side, table in tables(dataset).items()})
    outcome = engine.run(query, stream(dataset, (3, 6), 1), Variant(streaming=True, parallelism=3))
    multiset.assert_same(
        multiset.rows(outcome.output, finite.output.column_names), multiset.rows(finite.output), "stream against batch"
    )
    events = join_aggregate_rows.read(query, tables(dataset))
    settled = Counter(join_aggregate_rows.settled_us(query, left) for left in events["left"])
    assert Counter(outcome.output["event_time"].cast(pa.int64()).to_pylist()) == settled


@pytest.mark.parametrize(
    ("files", "seed", "dataset"),
    fewer_on_slow_engines(
        [((1 + 3 * (n % 4), 1 + n % 5), n, dataset) for n, dataset in enumerate(SHEETS, 1)], [((7, 3), 2, "wide")]
    ),
)
def test_differential_aggregate_arrival_orders(engine: Engine, files: tuple[int, int], seed: int, dataset: str) -> None:
    """Another order of arrival, in other files and over more buckets, gives the same rows at the same instants."""
    query = query_of(dataset, DECIDED | {"none": "p_none", "sum": "expected_sum:amount"}, how="inner")
    usual = engine.run(query, stream(dataset), STREAM)
    other = engine.run(query, stream(dataset, files, seed), Variant(streaming=True, parallelism=4))
    multiset.assert_same(multiset.rows(other.output), multiset.rows(usual.output), f"files {files}, order {seed}")


@pytest.mark.parametrize("dataset", fewer_on_slow_engines(["ties", "points", "histograms"], ["points"]))
def test_differential_aggregate_streams_in_time_slots(engine: Engine, dataset: str) -> None:
    """Spread over four buckets by time, a stream gives the same rows at the same instants; rows count once."""
    query = query_of(dataset, DECIDED | {"none": "p_none"})
    usual = engine.run(query, stream(dataset), STREAM)
    outcome = engine.run(
        replace(query, time_slots="4 s"), stream(dataset), Variant(streaming=True, parallelism=4, restart_after=2)
    )
    multiset.assert_same(multiset.rows(outcome.output), multiset.rows(usual.output), "rows in slots")
    assert outcome.metrics["rows_in"] == sum(len(table) for table in tables(dataset).values())
    assert outcome.metrics["rows_in"] == outcome.metrics["rows_processed"] + outcome.metrics["rows_rejected"]


@pytest.mark.parametrize("lo", fewer_on_slow_engines(["-30 s", "-4 s", "6 s"], ["-30 s"]))
def test_oracle_aggregates_of_rows_before_and_after(engine: Engine, lo: str) -> None:
    """Windows that lie before, around and after a left row: with all partners before it, it is final as it comes."""
    condition = between(lo, f"{int(lo.split()[0]) + 11} s", confidence=0.3180339887)
    query = query_of("ties", {"n": "count", "last": "last:note"}, condition=condition)
    outcome = engine.run(query, stream("ties", (5, 4), 3), Variant(streaming=True, parallelism=2, restart_after=2))
    expected = join_aggregate_rows.rows(query, tables("ties"), timed=True)
    multiset.assert_same(multiset.rows(outcome.output), expected, "rows", {"query": query})


@pytest.mark.hosting
@pytest.mark.parametrize("dataset", fewer_on_slow_engines(["ties", "points"], kept=()))
def test_oracle_aggregate_late_rows(engine: Engine, dataset: str) -> None:
    """Late rows of either side are rejected and in no number; the answers are those of the other rows."""
    query = query_of(dataset, {"n": "count", "small": "sum:small"}, lateness=Lateness(left=0, right=0))
    files = case_tables.late_stream(dataset)
    outcome = engine.run(query, files, STREAM)
    whole = expectations.whole(files)
    kept = expectations.accepted(outcome, whole, join_aggregate_rows.read(query, whole))
    expected = join_aggregate_rows.rows_of(query, whole["right"].column_names, kept)
    names = [name for name in outcome.output.column_names if name != "event_time"]
    multiset.assert_same(multiset.rows(outcome.output, names), expected, "rows", {"query": query})


def test_oracle_aggregate_state_is_bounded(engine: Engine) -> None:
    """Left rows wait until they are final, right rows as long as one of them can be met: both leave the state."""
    steps, per_step = 24, 10

    def at(step: int, offset: int) -> pa.Array:
        return pa.array([YEAR_2024 + (10 * step + n) * SECOND + offset for n in range(per_step)])

    files = {
        "left": tuple(pa.table({"t": at(step, 0)}) for step in range(steps)),
        "right": tuple(pa.table({"t": at(step, 1), "v": range(per_step)}) for step in range(steps)),
    }
    query = JoinAggregate(
        left_time=Point("t"), right_time=Point("t"), condition=between("-4 s", "5 s", confidence=1), lateness="1 s",
        aggregates={"n": "count", "total": "sum:v"},
    )  # fmt: skip
    outcome = engine.run(query, files, STREAM)
    counts = outcome.metrics
    assert counts["rows_stored"] - counts["rows_evicted"] <= 60  # of 480: the last steps, and slots that are cut
    assert Counter(outcome.output["n"].to_pylist()) == Counter({9: 232, 5: 2, 6: 2, 7: 2, 8: 2})


FOLDED = {
    name: asked for name, asked in DECIDED.items() if not str(asked).startswith(("collect", "count_distinct"))
} | {"expected": "expected_count", "expected_amount": "expected_sum:amount"}  # fmt: skip
"""Every function whose partners can be folded."""


@pytest.mark.parametrize(
    "dataset", fewer_on_slow_engines(["ties", "points", "histograms", "point and interval"], ["ties"])
)
def test_differential_folding(engine: Engine, dataset: str) -> None:
    """Folding on and off: the same bits at the same instants, however streams are cut and where they restart."""
    lo_us = case_tables.dataset(dataset).query.condition.lo_us
    condition = replace(case_tables.dataset(dataset).query.condition, hi_us=lo_us + 8 * SECOND)
    query = query_of(dataset, FOLDED, condition=condition, folding="always")
    variant = Variant(streaming=True, parallelism=2, restart_after=2)
    folded = engine.run(query, stream(dataset, (5, 5), 4), variant)
    usual = engine.run(replace(query, folding="never"), stream(dataset, (3, 4)), STREAM)
    multiset.assert_same(multiset.rows(folded.output), multiset.rows(usual.output), "rows", {"query": query})


def test_oracle_folded_state_is_bounded(engine: Engine) -> None:
    """Dense right rows beside sparse left ones are held for the join's own bound, not until a left row is final."""
    steps, per_step = 24, 10
    starts = [YEAR_2024 + per_step * step * SECOND for step in range(steps)]
    value = [0.1 * n for n in range(per_step)]
    files = {
        "left": tuple(pa.table({"t": [start]}) for start in starts),
        "right": tuple(
            pa.table({"t": [start + n * SECOND + 1 for n in range(per_step)], "v": value}) for start in starts
        ),
    }
    query = JoinAggregate(
        left_time=Point("t"), right_time=Point("t"), condition=between(0, "1000 s", confidence=1), lateness="1 s",
        aggregates={"n": "count", "total": "sum:v", "first": "first:v", "greatest": "max:v"}, folding="always",
    )  # fmt: skip
    outcome = engine.run(query, files, Variant(streaming=True, restart_after=12))
    counts = outcome.metrics
    assert counts["rows_stored"] - counts["rows_evicted"] <= steps + 50  # of 264: all left rows are open to the end
    expected = [(n, math.fsum(value * (n // per_step)), value[0], value[-1]) for n in range(240, 0, -per_step)]
    found = outcome.output.sort_by("t").select(["n", "total", "first", "greatest"]).to_pylist()
    assert [tuple(row.values()) for row in found] == expected


def test_oracle_aggregate_streams_without_a_bound_are_refused(engine: Engine) -> None:
    """With one end of the condition open, every row would be kept: refused before the run."""
    query = query_of("ties", {"n": "count"}, condition=delay("1 s", confidence=0.5))
    with pytest.raises(QueryError) as raised:
        engine.run(query, stream("ties"), STREAM)
    assert raised.value.code is Code.ONE_SIDED_ON_STREAM

"""Laws of times that are derived from a reading: truncated clocks, polls, latencies, wrong clocks."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from whenabouts.conformance import case_tables, expectations, multiset
from whenabouts.conformance.engine import Engine
from whenabouts.conformance.slow_engine_cases import fewer_on_slow_engines
from whenabouts.core import (
    Learned,
    Point,
    between,
    from_clock,
    from_granularity,
    from_latency,
    from_polling,
    uniform,
    within,
)
from whenabouts.core.asof_join.query import AsofJoin
from whenabouts.core.harness import Variant
from whenabouts.core.join_aggregate.query import JoinAggregate
from whenabouts.core.times.time_specs import TimeSpec
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.window_join.query import WindowJoin

READINGS = "points"
"""The dataset whose rows have one column of times each."""

LATENCY = from_latency("t", quantiles={0: "1 s", 0.25: "2 s", 0.75: "3 s", 1: "7 s"})

DERIVED: dict[str, tuple[TimeSpec, TimeSpec]] = {
    "a truncated clock and polls": (from_granularity("t", "4 s"), from_polling("t", "3 s")),
    "latencies and a truncated clock": (LATENCY, from_granularity("t", "2 s", rounding="nearest")),
    "two clocks": (
        from_clock("t", offset="2 s", jitter="1 s", domain="a"),
        from_clock("t", offset="1 s", jitter="3 s", domain="b"),
    ),
    "a learned clock that drifts": (
        from_granularity("t", "2 s"),
        Learned("t", 1_300_000, -40_000_000, case_tables.YEAR_2024 + 20_000_000, uniform("-3 s", "1 s")),
    ),
    "one clock": (
        from_clock("t", offset="9 s", jitter="1 s", domain="a"),
        from_clock("t", offset="9 s", jitter="2 s", domain="a"),
    ),
}


@pytest.mark.parametrize(
    ("name", "streaming"),
    [
        ("a truncated clock and polls", True),
        ("two clocks", False),
        ("a learned clock that drifts", True),
        *(
            pytest.param(name, streaming, marks=pytest.mark.similar)
            for name, streaming in [
                ("a truncated clock and polls", False), ("two clocks", True), ("one clock", False), ("one clock", True),
                ("a learned clock that drifts", False),
                ("latencies and a truncated clock", False), ("latencies and a truncated clock", True),
            ]
        ),
    ],
)  # fmt: skip
def test_oracle_derived_times(engine: Engine, name: str, streaming: bool) -> None:
    """Readings become the times that their specification says, and the pairs are those of brute force."""
    source = case_tables.dataset(READINGS)
    left, right = DERIVED[name]
    query = replace(source.query, left_time=left, right_time=right, condition=within("4 s", confidence=0.6180339887))
    inputs = case_tables.stream(READINGS) if streaming else case_tables.finite(READINGS)
    outcome = engine.run(query, inputs, Variant(streaming=streaming))
    events = expectations.read(query, source.tables).events
    answer = expectations.answer(query, source.tables, events)
    assert answer.rows, "no pair matches"
    multiset.assert_same(expectations.join_rows(outcome), answer.rows, name, {"query": query})
    assert outcome.rejects.num_rows == 0


DRIFTS = (77_777_777, -3_000_017, 1, -99_999_999, 20_000)
OFFSET_US, REFERENCE_US = 83_000_123, case_tables.YEAR_1900 + 987_654_321
EXACTLY = between(0, 1, confidence=1)
"""The learned time lies within the microsecond from u on, the other one at v + 1: sure if and only if u = v."""


@lru_cache
def _readings(drift_ppb: int, rows: int) -> dict[str, tuple[pa.Table]]:
    """Readings from 1900 to 2200, and the time after the corrected one by rational arithmetic."""
    readings = case_tables.rng("learned", drift_ppb).integers(case_tables.YEAR_1900, case_tables.YEAR_2200, rows)
    rate = 10**9 + drift_ppb  # floor(a / (1 + b / 10^9)) = floor(a 10^9 / (10^9 + b)), for integers of any size
    expected = [REFERENCE_US + (t - REFERENCE_US - OFFSET_US) * 10**9 // rate + 1 for t in readings.tolist()]
    number = np.arange(rows)
    right = pa.table({"v": pa.array(expected, pa.int64()), "id": number})
    return {"left": (pa.table({"t": readings, "id": number}),), "right": (right,)}


def _exact_joins(drift_ppb: int) -> dict[str, Any]:
    learned, point = Learned("t", OFFSET_US, drift_ppb, REFERENCE_US, uniform(0, 1)), Point("v")
    sides: dict[str, Any] = {"left_time": learned, "right_time": point, "on": "id"}
    return {
        "timing": TimingJoin(**sides, condition=EXACTLY),
        "window": WindowJoin(times={"left": learned, "right": point}, windows={("left", "right"): EXACTLY}, on="id"),
        "aggregate": JoinAggregate(**sides, condition=EXACTLY, how="inner", aggregates={"n": "count"}),
        "as-of": AsofJoin(**sides, direction="forward", tolerance=1, confidence=1, how="inner"),
    }


@pytest.mark.parametrize(
    ("join", "rows", "drift_ppb"),
    fewer_on_slow_engines(
        [("timing", 100_000, 77_777_777), *(("timing", 5_000, drift) for drift in DRIFTS)]
        + [(join, 5_000, -3_000_017) for join in ("window", "aggregate", "as-of")],
        kept=[("timing", 5_000, 77_777_777)],
    ),
)
def test_oracle_learned_times(engine: Engine, join: str, rows: int, drift_ppb: int) -> None:
    """Learned times equal rational arithmetic to the microsecond, for drifts of either sign, in every join."""
    query, inputs = _exact_joins(drift_ppb)[join], _readings(drift_ppb, rows)
    outcome = engine.run(query, inputs, Variant(parallelism=2))
    assert outcome.output.num_rows == rows
    if rows > 5_000:
        return
    (right,) = inputs["right"]
    later = right.set_column(0, "v", pa.array(right["v"].to_numpy() + 1))
    off = engine.run(query, {**inputs, "right": (later,)}, Variant(parallelism=2), remember=False)
    assert off.output.num_rows == 0, "times a microsecond off match nothing"

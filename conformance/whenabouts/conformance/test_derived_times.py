"""Laws of times that are derived from a reading: truncated clocks, polls, latencies, wrong clocks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from whenabouts.conformance import case_tables, expectations, multiset
from whenabouts.conformance.engine import Engine
from whenabouts.core import Learned, from_clock, from_granularity, from_latency, from_polling, uniform, within
from whenabouts.core.harness import Variant
from whenabouts.core.times.time_specs import TimeSpec

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

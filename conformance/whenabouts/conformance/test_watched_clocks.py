"""Laws of watched clocks: steps, and learned clocks that no longer fit."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from whenabouts.conformance import multiset
from whenabouts.conformance.case_tables import YEAR_2024
from whenabouts.conformance.engine import Engine
from whenabouts.conformance.slow_engine_cases import fewer_on_slow_engines
from whenabouts.core import Learned, uniform
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.clocks.watching.query import ClockOfKey, WatchClock
from whenabouts.core.harness import Variant

ROWS = 900
STEP_AT = 500
"""The row of group 1 from which on its clock is 40 ms ahead."""

LATE_FROM = 300
"""The row from which on the delays of group 0 are among the longer ones that were learned, and half of those of group 2
are as long as the longest."""

CLOCK = Learned("t", 5_000_000, 20_000, YEAR_2024, uniform("-10 ms", 0))
"""Readings are 5 s ahead, gain 20 ppm, and are up to 10 ms late."""

ALARMS = WatchClock(reading="t", against="seen", group="k", clock=CLOCK, error=0.02, every=10_000, lateness="30 s")
STEPS = WatchClock(reading="t", against="seen", group="k", lateness="30 s")
SLOWER = replace(CLOCK, templates=uniform("-20 ms", 0))
"""As if delays were twice as long: those of group 2 then lie early."""

BY_KEY = replace(ALARMS, clock=(ClockOfKey((0,), CLOCK, 0.02), ClockOfKey((2,), SLOWER, 0.02)), error=None)
"""The clocks of two groups; of the third no clock is known."""

QUERIES = {"steps": STEPS, "a learned clock": ALARMS, "clocks of keys": BY_KEY}
LEARNED = {"steps": {}, "a learned clock": dict.fromkeys(range(3), 10_000), "clocks of keys": {0: 10_000, 2: 20_000}}
"""The longest delay of the learned clock of each group, in microseconds."""

VARIANTS = {"batch": Variant(parallelism=2), "stream": Variant(streaming=True, parallelism=2, restart_after=2)}


@lru_cache
def _rows() -> pa.Table:
    """Rows of three clocks, out of order by up to 20 s; a reading is null, and one lies outside the calendar."""
    random = np.random.default_rng(26)
    seen = YEAR_2024 + np.sort(random.integers(0, ROWS * 1_000_000, (3, ROWS)), axis=1)
    delay = random.integers(0, 10_000, (3, ROWS))
    delay[1, STEP_AT:] += 40_000
    delay[0, LATE_FROM:] = 6_000 + delay[0, LATE_FROM:] * 3 // 8
    delay[2, LATE_FROM:] = np.maximum(delay[2, LATE_FROM:], random.choice([0, 9_950], ROWS - LATE_FROM))
    t = seen + 5_000_000 + (seen - YEAR_2024) // 50_000 + delay
    readings = t.ravel().tolist()
    readings[7], readings[11] = None, 2**62
    table = pa.table({"k": np.repeat([0, 1, 2], ROWS), "seen": seen.ravel(), "t": pa.array(readings, pa.int64())})
    return table.take(pa.array(np.argsort(seen.ravel() + random.integers(0, 20_000_000, 3 * ROWS))))


@lru_cache
def _files(streaming: bool) -> dict[str, tuple[pa.Table, ...]]:
    rows = _rows()
    size = rows.num_rows // 6 + 1
    return {"rows": tuple(rows.slice(at, size) for at in range(0, rows.num_rows, size)) if streaming else (rows,)}


def _places(seen: IntArray, t: IntArray, longest: int) -> Iterator[float]:
    """Where each delay lies in the uniform distribution, by exact arithmetic."""
    for reference, reading in zip(seen.tolist(), t.tolist(), strict=True):
        since = reading - CLOCK.t_ref_us - CLOCK.offset_us
        late = CLOCK.t_ref_us + since * 10**9 // (10**9 + CLOCK.drift_ppb) - reference
        yield (min(max(late, 0), longest) + min(max(late - 1, 0), longest)) / (2 * longest)


def _misfits(places: list[float]) -> Iterator[tuple[int, str]]:
    """The rows with alarms, one row after the other: the definition of the test."""
    ends = 2 * 0.01 + 2 * 0.02
    capital, quiet = [0, 0, 0], 0
    for row, place in enumerate(places):
        if quiet:
            quiet -= 1
            continue
        at_end = place < 0.01 or place > 0.99
        factors = [1 + place - 0.52, 1 + 0.48 - place, 1 + 0.25 / ends * (at_end - ends)]
        capital = [max(0, log) + round(math.log(factor) * 2**32) for log, factor in zip(capital, factors, strict=True)]
        over = [log >= math.log(3 * 10_000) * 2**32 for log in capital]
        if any(over):
            yield row + 1, ("late", "early", "scatter")[over.index(True)]
            capital, quiet = [0, 0, 0], 1_000


def _expected(query: str) -> Counter[tuple[Any, ...]]:
    """The group and kind of each alarm, and its row; of a step, whether it is near the one that was made."""
    found: Counter[tuple[Any, ...]] = Counter({(1, "step", True): 1})
    for group, longest in LEARNED[query].items():
        rows = _rows().filter(pa.compute.equal(_rows()["k"], group)).drop_null().sort_by([("seen", "ascending")])
        rows = rows.filter(pa.compute.less(rows["t"], 2**61))
        places = list(_places(rows["seen"].to_numpy(), rows["t"].to_numpy(), longest))
        found += Counter((group, kind, row) for row, kind in _misfits(places))
    return found


@pytest.mark.parametrize(
    ("query", "variant"),
    fewer_on_slow_engines(
        [(query, variant) for query in QUERIES for variant in VARIANTS], (), canary=("a learned clock", "stream")
    ),
)
def test_oracle_watched_clocks(engine: Engine, query: str, variant: str) -> None:
    """A clock's step is found where it was made, and alarms of a learned clock are those of its test row by row."""
    how = VARIANTS[variant]
    outcome = engine.run(QUERIES[query], _files(how.streaming), how)
    found = Counter(
        (row["k"], row["kind"], abs(row["row"] - STEP_AT) <= 3 if row["kind"] == "step" else row["row"])
        for row in outcome.output.to_pylist()
    )
    expected = _expected(query)
    wanted = {
        "steps": {"step"},
        "a learned clock": {"step", "late", "scatter"},
        "clocks of keys": {"step", "late", "early"},
    }
    assert {kind for _, kind, _ in expected} >= wanted[query]
    multiset.assert_same(found, expected, "alarms", {"query": QUERIES[query]})
    assert sorted(outcome.rejects.column("code").to_pylist()) == ["WA-1003", "WA-1007"]
    by_us = [row["by_us"] for row in outcome.output.to_pylist() if row["kind"] == "step"]
    assert [abs(by - 40_000) < 10_000 for by in by_us] == [True]

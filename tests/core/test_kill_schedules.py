"""Random queries and inputs on simulated engines that are killed, restored and rescaled give the rows of a batch run.

A failure names its seed; `python -m whenabouts.conformance.kill_schedules SEED 1` runs it again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import pytest

from whenabouts.conformance.kill_schedules import check, scenario

pytestmark = pytest.mark.slow

EVERY_RUN, FULL, EXHAUSTIVE, TOGETHER = 300, 1_500, 10_000, 50

STARTS = [
    *range(0, EVERY_RUN, TOGETHER),
    *(pytest.param(start, marks=pytest.mark.full) for start in range(EVERY_RUN, FULL, TOGETHER)),
    *(pytest.param(start, marks=pytest.mark.exhaustive) for start in range(FULL, EXHAUSTIVE, TOGETHER)),
]


@pytest.mark.parametrize("first", STARTS)
def test_killed_engines_give_the_rows_of_a_batch(first: int, record_property: Callable[[str, object], None]) -> None:
    began = time.perf_counter()
    for seed in range(first, first + TOGETHER):
        check(scenario(seed))
    record_property("schedules per second", round(TOGETHER / (time.perf_counter() - began), 1))


@pytest.mark.filterwarnings("ignore::whenabouts.core.errors.SingleBucketWarning")
def test_a_seed_repeats_its_run() -> None:
    """The same query, inputs and failures, and the same rows in the same order."""
    for seed in range(10):
        one, other = scenario(seed), scenario(seed)
        assert repr(one) == repr(other)
        first, second = one.start(), other.start()
        assert first.collect().output.equals(second.collect().output)
        assert first.fate.log == second.fate.log


@pytest.mark.full
def test_scenarios_are_of_every_kind_and_most_of_them_are_killed() -> None:
    """They cover kinds of query, engines, wrappers, and the points of failure of both engines."""
    drawn = [scenario(seed) for seed in range(EVERY_RUN)]
    kinds = Counter(type(query).__name__ for given in drawn for query in (given.query, given.plain))
    assert {
        "TimingJoin", "WindowJoin", "Coalesce", "TemporalJoin", "TemporalAggregate", "SharedCoalescing",
        "SelectProject", "Deduplicated", "Decoded",
    } <= set(kinds)  # fmt: skip
    assert {given.spark for given in drawn} == {given.late for given in drawn} == {True, False}
    assert any(given.limit for given in drawn)
    points: Counter[str] = Counter()
    for given in drawn[:60]:
        points.update(set(check(given).fate.log))
    assert points.total() > 40
    assert len(points) > 8

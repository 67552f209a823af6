"""Every strategy of the timing join counts what its paper says, on streams that come in blocks of many rows.

The laws on engines pin the counts with steps of one side, since each engine cuts its own blocks. Here the steps are
given: rows of both sides in a step, and lazy strategies that wait over several steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from infra.operators import OperatorDriver
from whenabouts.conformance import expectations, operation_counts
from whenabouts.conformance.oracle import Event
from whenabouts.core import Interval, Lateness, between, within
from whenabouts.core.runtime.protocol import NO_WATERMARK, FlushMode
from whenabouts.core.times.conditions import Condition
from whenabouts.core.timing_join.query import TimingJoin

SECOND = 1_000_000
STRATEGIES = ("simple", "ssort", "eager", "lazy", "lazy_lookup")
CONDITIONS = {
    "wide": within("12 s", confidence=0.75),
    "certain": between("-16 s", "9 s", confidence=1.0),
    "narrow": within("3 s", confidence=0.25),
}
NAMES = ("probed", "sure", "lookup_hits", "matched", "correlations")
STEPS = 9

Steps = Sequence[dict[str, pa.Table]]


def _query(condition: Condition, strategy: str, block_size: int) -> TimingJoin:
    return TimingJoin(
        left_time=Interval("t_min", "t_max", max_uncertainty="8 s", min_uncertainty="1 s"),
        right_time=Interval("t_min", "t_max", max_uncertainty="4 s"),
        condition=condition, on="k", strategy=strategy, block_size=block_size, lateness=Lateness("1 day", "1 day"),
    )  # fmt: skip


def _steps(seed: int) -> Steps:
    """Rows of both sides, of one, or of none; no two rows of a side end at the same time."""
    random = np.random.default_rng(seed)
    ends = {side: SECOND * random.permutation(400) + 1000 * place for place, side in enumerate(("left", "right"))}
    steps = []
    for step in range(STEPS):
        tables = {}
        for side, lengths in (("left", (1, 8)), ("right", (0, 4))):
            n = int(random.integers(0, 30)) if random.random() < 0.8 else 0
            t_max = ends[side][40 * step : 40 * step + n] // 8
            length = SECOND * random.integers(lengths[0], lengths[1] + 1, n)
            tables[side] = pa.table({"k": random.integers(0, 3, n), "t_min": t_max - length, "t_max": t_max})
        steps.append(tables)
    return steps


def _counted(query: TimingJoin, steps: Steps) -> operation_counts.TimingJoinCounts:
    driver, total = OperatorDriver(query, steps[0]["left"].schema), operation_counts.TimingJoinCounts()
    for tables in [*steps, None]:
        if tables is None:
            done = driver.operator.step(driver.store, [], NO_WATERMARK, FlushMode.FLUSH)
        else:
            done = driver.feed({side: t.to_batches()[0] for side, t in tables.items() if len(t)})
        operation_counts.add(total, operation_counts.TimingJoinCounts(**{name: done.metrics[name] for name in NAMES}))
    return total


def _events(query: TimingJoin, steps: Steps) -> list[dict[str, Sequence[Event]]]:
    return [dict(expectations.read(query, tables).events) for tables in steps]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_counts_are_those_of_the_paper(strategy: str, condition: str, seed: int) -> None:
    query, steps = _query(CONDITIONS[condition], strategy, block_size=50), _steps(seed)
    expected = operation_counts.in_steps(query, _events(query, steps))
    assert _counted(query, steps) == expected
    assert expected.matched > 10


@pytest.mark.parametrize("seed", range(4))
def test_lazy_strategies_wait(seed: int) -> None:
    """A block of more rows is correlated less often; the pairs are the same."""
    steps, runs = _steps(seed), {}
    for strategy, block_size in (("eager", 1), ("lazy", 1), ("lazy", 50), ("lazy", 120)):
        runs[strategy, block_size] = _counted(_query(CONDITIONS["wide"], strategy, block_size), steps)
    correlations = [counts.correlations for counts in runs.values()]
    assert correlations[0] >= correlations[1] > correlations[2] > correlations[3]
    assert len({counts.matched for counts in runs.values()}) == 1

"""Laws of the operation counters: five names are five strategies, each doing what its paper says."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pytest

from whenabouts.conformance import case_tables, expectations, operation_counts
from whenabouts.conformance.case_tables import SECOND, YEAR_2024
from whenabouts.conformance.engine import Engine
from whenabouts.conformance.operation_counts import TimingJoinCounts
from whenabouts.conformance.slow_engine_cases import fewer_on_slow_engines
from whenabouts.core import Condition, Interval, Lateness, Point, between, within
from whenabouts.core.harness import Variant
from whenabouts.core.local import Outcome
from whenabouts.core.timing_join.query import TimingJoin

NAMED = ("simple", "ssort", "eager", "lazy", "lazy_lookup")
CONDITIONS = {
    "wide": within("12 s", confidence=0.75),
    "wide and certain": between("-16 s", "9 s", confidence=1.0),
    "narrow": within("3 s", confidence=0.25),
}
FILES, PER_FILE, KEYS = 4, 40, 3

EACH_CONDITION = pytest.mark.parametrize("condition", CONDITIONS)
EACH_NAME = pytest.mark.parametrize("strategy", NAMED)


def _query(condition: Condition, strategy: str) -> TimingJoin:
    """Waits for nothing, and drops nothing: the watermark is a day behind."""
    return TimingJoin(
        left_time=Interval("t_min", "t_max", max_uncertainty="8 s", min_uncertainty="1 s"),
        right_time=Interval("t_min", "t_max", max_uncertainty="4 s"),
        condition=condition, on="k", strategy=strategy, block_size=1, lateness=Lateness(left="1 day", right="1 day"),
    )  # fmt: skip


@lru_cache
def _files() -> dict[str, tuple[pa.Table, ...]]:
    """Files with rows on one side only, left and right in turn; no two rows of a side end at the same time.

    left   aaaa      cccc      eeee
    right       bbbb      dddd      ffff   --> steps
    """
    files: dict[str, list[pa.Table]] = {"left": [], "right": []}
    for number in range(FILES):
        for side, lengths in (("left", (1, 8)), ("right", (0, 4))):
            random = case_tables.rng("counters", side, number)
            n = PER_FILE if (number % 2 == 0) == (side == "left") else 0
            t_max = YEAR_2024 + number * (9 * SECOND + 1000) + SECOND * random.permutation(PER_FILE)[:n]
            length = SECOND * random.integers(lengths[0], lengths[1] + 1, n)
            columns = {"k": random.integers(0, KEYS, n), "t_min": t_max - length, "t_max": t_max}
            files[side].append(pa.table({name: pa.array(values.astype(np.int64)) for name, values in columns.items()}))
    return {side: tuple(tables) for side, tables in files.items()}


@lru_cache
def _whole() -> dict[str, tuple[pa.Table, ...]]:
    return {side: (pa.concat_tables(tables),) for side, tables in _files().items()}


def _counted(outcome: Outcome) -> TimingJoinCounts:
    names = ("probed", "sure", "lookup_hits", "matched", "correlations")
    return TimingJoinCounts(**{name: outcome.metrics[name] for name in names})


def _expected_of_stream(query: TimingJoin) -> TimingJoinCounts:
    steps = []
    for tables in zip(_files()["left"], _files()["right"], strict=True):
        events = expectations.read(query, dict(zip(("left", "right"), tables, strict=True))).events
        steps += [(side, rows) for side, rows in events.items() if rows]
    return operation_counts.alternating(query, steps)


def _expected_of_block(query: TimingJoin) -> TimingJoinCounts:
    return operation_counts.block(query, *expectations.read(query, expectations.whole(_whole())).events.values())


@pytest.mark.parametrize(
    ("condition", "strategy"),
    fewer_on_slow_engines(
        [
            *(("wide", name) for name in NAMED),
            *((c, n) for c in ("wide and certain", "narrow") for n in ("eager", "lazy_lookup")),
        ],
        kept=[("wide", "simple"), ("wide", "lazy_lookup"), ("narrow", "eager")],
    ),
)
def test_oracle_counters_on_streams(engine: Engine, condition: str, strategy: str) -> None:
    """On a stream each strategy probes exactly the pairs that its paper says, and accepts the others unprobed."""
    query = _query(CONDITIONS[condition], strategy)
    outcome = engine.run(query, _files(), Variant(streaming=True))
    assert _counted(outcome) == _expected_of_stream(query)


@pytest.mark.parametrize("strategy", ["lazy", "lazy_lookup"])
@pytest.mark.parametrize("block_size", fewer_on_slow_engines([90, 130, 10**6], kept=[90]))
def test_oracle_blocks_on_streams(engine: Engine, block_size: int, strategy: str) -> None:
    """Rows wait over the steps of the engine until a block is full: as many correlations as blocks need, fewer than
    eager ones, and the same pairs."""
    waiting = replace(_query(CONDITIONS["wide"], strategy), block_size=block_size)
    lazy = _counted(engine.run(waiting, _files(), Variant(streaming=True)))
    eager = _counted(engine.run(_query(CONDITIONS["wide"], "eager"), _files(), Variant(streaming=True)))
    assert lazy.matched == eager.matched
    assert lazy.correlations == operation_counts.correlations_of_blocks(_sizes(), block_size)
    assert eager.correlations == operation_counts.correlations_of_blocks(_sizes(), 1)
    assert lazy.correlations < eager.correlations


def _sizes() -> list[tuple[int, int]]:
    """The rows of both inputs in each step."""
    return [(left.num_rows, right.num_rows) for left, right in zip(*_files().values(), strict=True)]


def test_oracle_counters_of_every_strategy(engine: Engine) -> None:
    """On a stream in steps of many rows, blocks of lazy strategies longer than a step, each of the five strategies
    probes, accepts, looks up, matches and correlates as often as its paper's algorithm, counted pair by pair."""
    found, expected = {}, {}
    for strategy in NAMED:
        query = _query(CONDITIONS["wide"], strategy)
        query = replace(query, block_size=90) if strategy.startswith("lazy") else query
        found[strategy] = _counted(engine.run(query, _files(), Variant(streaming=True)))
        steps = [
            expectations.read(query, dict(zip(("left", "right"), tables, strict=True))).events
            for tables in zip(*_files().values(), strict=True)
        ]
        expected[strategy] = operation_counts.in_steps(query, steps)
    assert found == expected
    assert found["lazy"].correlations < found["eager"].correlations
    assert found["lazy_lookup"].lookup_hits > 0


@pytest.mark.parametrize(
    ("max_latency", "held"), fewer_on_slow_engines([("8 s", False), ("1 day", True)], kept=[("1 day", True)])
)
def test_oracle_time_ends_a_block(engine: Engine, max_latency: str, held: bool) -> None:
    """Rows wait no longer than `max_latency` of event time, even if the block is never full."""
    no_row_is_late = Lateness("22 s", "22 s")
    query = replace(
        _query(CONDITIONS["wide"], "lazy"), block_size=10**6, max_latency=max_latency, lateness=no_row_is_late
    )
    found = _counted(engine.run(query, _files(), Variant(streaming=True)))
    eager = _counted(engine.run(replace(query, strategy="eager"), _files(), Variant(streaming=True)))
    assert found.matched == eager.matched
    assert (found.correlations == 2) is held  # one block at the end: its left rows, and its right ones


@EACH_NAME
@EACH_CONDITION
def test_oracle_counters(engine: Engine, condition: str, strategy: str) -> None:
    """On finite input, one block, each strategy probes exactly the pairs that its paper says."""
    query = _query(CONDITIONS[condition], strategy)
    assert _counted(engine.run(query, _whole())) == _expected_of_block(query)


@pytest.mark.hosting
@pytest.mark.similar
@pytest.mark.filterwarnings("ignore::whenabouts.core.errors.DoubtfulTimesWarning")
def test_oracle_doubtful_times(engine: Engine) -> None:
    """Integer times that look like seconds are counted, row by row, wherever rows are read; others are not."""
    seconds = [1_700_000_000 + n for n in range(20)]
    files = {
        "left": [pa.table({"t": seconds[:10]}), pa.table({"t": [*seconds[10:], 0]})],
        "right": [pa.table({"t": [SECOND * n for n in seconds]})] * 2,
    }
    query = TimingJoin(
        left_time=Point("t"), right_time=Point("t"), condition=within(0, confidence=1), lateness=Lateness("1 d", "1 d")
    )
    outcome = engine.run(query, files, Variant(streaming=True, parallelism=2))
    assert outcome.metrics["rows_doubtful_unit"] == len(seconds)


def test_oracle_five_strategies(engine: Engine) -> None:
    """Five names are five strategies: bounds avoid probes, blocks change the base side, the look-up has hits."""
    found = {name: _counted(engine.run(_query(CONDITIONS["wide"], name), _whole())) for name in NAMED}
    keys = [table.column("k").to_pylist() for (table,) in _whole().values()]
    buffered = sum(keys[0].count(key) for key in keys[1])
    assert found["simple"].probed == found["ssort"].probed == buffered
    assert found["simple"].sure == found["ssort"].sure == 0
    assert found["eager"].probed < buffered / 2
    assert found["eager"].sure > 0
    assert (found["lazy"].probed, found["lazy"].sure) != (found["eager"].probed, found["eager"].sure)
    assert found["lazy_lookup"].lookup_hits > 0
    assert found["lazy_lookup"].probed + found["lazy_lookup"].lookup_hits == found["lazy"].probed
    assert found["lazy_lookup"].sure == found["lazy"].sure
    assert len({count.matched for count in found.values()}) == 1


@EACH_NAME
def test_differential_counters_of_parallelism(engine: Engine, strategy: str) -> None:
    """Rows of different keys never meet, so that three buckets probe, accept and match as much as one."""
    query = _query(CONDITIONS["wide"], strategy)
    one, many = (_counted(engine.run(query, _whole(), Variant(parallelism=n))) for n in (1, 3))
    one.correlations = many.correlations = 0  # one per bucket
    assert many == one

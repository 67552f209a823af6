"""Laws of right rows that one clock stamped: its unknown offset is common to them, so they are not independent."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from whenabouts.conformance import join_aggregate_oracle, multiset, oracle
from whenabouts.conformance.case_tables import SECOND, YEAR_2024, Files, cut, rng
from whenabouts.conformance.engine import Engine
from whenabouts.conformance.oracle import Time
from whenabouts.conformance.slow_engine_cases import fewer_on_slow_engines
from whenabouts.core import Histogram, Interval, Point, between, from_clock
from whenabouts.core.durations import parse_duration
from whenabouts.core.harness import Variant
from whenabouts.core.join_aggregate.query import JoinAggregate
from whenabouts.core.times.clock_errors import Clock

GATEWAY = from_clock("t", offset="3 s", jitter="1 s", domain="gateway")
HOSTS = from_clock("t", offset="3 s", jitter="1 s", domain_column="host")
LEFT_TIMES = {
    "points": Point("t"),
    "intervals": Interval("t", "u", max_uncertainty="4 s"),
    "histograms": Histogram("t", templates={"late": [("-2 s", "0 s", "0.25"), ("0 s", "1 s", "0.75")]}),
    "another clock": from_clock("t", offset="2 s", jitter="500 ms", domain="badges"),
}
ASKED = {
    "expected": "expected_count", "variance": "count_variance", "sum_variance": "sum_variance:v", "none": "p_none",
    "any": "p_any", "p1": "p_at_least:1", "p2": "p_at_least:2", "p3": "p_at_least:3", "at_half": "count_at:0.5",
}  # fmt: skip
KEYS = 5


def query_of(left: str, **more: Any) -> JoinAggregate:
    """All chance functions of the gateway's readings, for left rows of some kind of time."""
    condition = between("-1 s", "4 s", confidence=0.3)
    asked: dict[str, Any] = {"left_time": LEFT_TIMES[left], "right_time": GATEWAY, "condition": condition}
    return JoinAggregate(**(asked | {"aggregates": ASKED, "on": "k"} | more))


@lru_cache
def tables(left: str) -> dict[str, pa.Table]:
    """A few keys, each with a left row and up to three right ones."""
    random = rng("shared clocks", left)
    k = np.arange(KEYS)
    t = YEAR_2024 + SECOND * random.integers(0, 5, KEYS)
    right_k = np.repeat(k, random.integers(1, 4, KEYS))
    right_t = t[right_k] + SECOND * random.integers(-4, 9, len(right_k)) // 2
    v = random.integers(-3, 4, len(right_k))
    host = np.array(["a", "b"])[random.integers(0, 2, len(right_k))]
    return {
        "left": pa.table({"k": k, "t": t, "u": t + SECOND * random.integers(0, 5, KEYS)}),
        "right": pa.table({"k": right_k, "t": right_t, "v": v, "host": host}),
    }


@lru_cache
def files_of(left: str, files: int = 1) -> dict[str, Files]:
    """These tables as files."""
    return {side: cut(table, files, "shared clocks", side) for side, table in tables(left).items()}


def _own(spec: Any, time: Time) -> Time:
    """A reading with its own error alone."""
    reading = (time.t_min + time.t_max) // 2
    return Time(reading - spec.own_us, reading + spec.own_us) if isinstance(spec, Clock) else time


@lru_cache
def _exact(left: str) -> dict[Any, join_aggregate_oracle.Chances]:
    query, given = query_of(left), tables(left)
    lefts, _ = oracle.read(given["left"], query.left_time, ("k",))
    rights, _ = oracle.read(given["right"], query.right_time, ("k",))
    clocks = [spec for spec in (query.left_time, query.right_time) if isinstance(spec, Clock)]
    offsets = [parse_duration(clock.offset or 0) for clock in clocks]
    found: dict[Any, join_aggregate_oracle.Chances] = {}
    window = query.condition.lo_us, query.condition.hi_us
    for row in lefts:
        near = [right for right in rights if right.key == row.key]
        found[row.values[0]] = join_aggregate_oracle.chances_of_clock(
            _own(query.left_time, row.time), [_own(GATEWAY, right.time) for right in near],
            *window, offsets, [Fraction(str(right.values[2])) for right in near],
        )  # fmt: skip
    return found


@lru_cache
def _exact_by_host(left: str) -> dict[Any, join_aggregate_oracle.Chances]:
    query, given = query_of(left, right_time=HOSTS), tables(left)
    lefts, _ = oracle.read(given["left"], query.left_time, ("k",))
    rights, _ = oracle.read(given["right"], query.right_time, ("k",))
    of_left = query.left_time.offset if isinstance(query.left_time, Clock) else 0
    found: dict[Any, join_aggregate_oracle.Chances] = {}
    for row in lefts:
        near = [right for right in rights if right.key == row.key]
        found[row.values[0]] = join_aggregate_oracle.chances_of_clocks(
            _own(query.left_time, row.time), [_own(HOSTS, right.time) for right in near],
            [ord(str(right.values[3])) for right in near], query.condition.lo_us, query.condition.hi_us,
            parse_duration(HOSTS.offset or 0), parse_duration(of_left or 0),
            [Fraction(str(right.values[2])) for right in near],
        )  # fmt: skip
    return found


@pytest.mark.parametrize("left", fewer_on_slow_engines(list(LEFT_TIMES), ["another clock"]))
def test_oracle_chance_of_one_clock(engine: Engine, left: str) -> None:
    """Chance functions of one clock's readings are within 1e-12 of the mixture over its offset by exact rationals."""
    _assert_near(engine.run(query_of(left), files_of(left)).output, _exact(left))


@pytest.mark.parametrize("left", fewer_on_slow_engines(list(LEFT_TIMES), ["another clock"]))
def test_oracle_chance_of_several_clocks(engine: Engine, left: str) -> None:
    """Chance functions of the readings of several clocks are within 1e-12 of the mixture over all offsets by exact
    rationals; a pair's own probability does not depend on how many clocks there are."""
    output = engine.run(query_of(left, right_time=HOSTS), files_of(left)).output
    truths = _exact_by_host(left)
    _assert_near(output, truths)
    one = engine.run(query_of(left), files_of(left)).output
    multiset.assert_same(multiset.rows(output, ["k", "expected"]), multiset.rows(one, ["k", "expected"]), "expected")
    assert any(truths[k].none != truth.none for k, truth in _exact(left).items())


def _assert_near(output: pa.Table, truths: dict[Any, join_aggregate_oracle.Chances]) -> None:
    between_0_and_1 = 0
    for row in output.to_pylist():
        truth = truths[row["k"]]
        at_least = (*truth.at_least, *[Fraction(0)] * 3)
        exact = {"none": truth.none, "any": 1 - truth.none, **{f"p{k}": at_least[k] for k in (1, 2, 3)}}
        for name, p in exact.items():
            assert abs(Fraction(row[name]) - p) <= 1e-12, (row["k"], name)
            assert [row[name] == 0.0, row[name] == 1.0] == [p == 0, p == 1], (row["k"], name)
        between_0_and_1 += 0 < truth.none < 1
        assert abs(Fraction(row["variance"]) - truth.count_variance) <= 1e-12 * 16
        assert abs(Fraction(row["sum_variance"]) - truth.sum_variance) <= 1e-11 * 16
        assert abs(Fraction(row["expected"]) - truth.expected_count) <= 3 * GATEWAY.tolerance
        half = Fraction(1, 2)
        assert at_least[row["at_half"]] >= half - Fraction(1, 10**12)
        assert at_least[row["at_half"] + 1] < half + Fraction(1, 10**12)
    assert between_0_and_1 > 1


@pytest.mark.parametrize("left", fewer_on_slow_engines(["intervals", "another clock"], ["another clock"]))
def test_differential_clock_offset(engine: Engine, left: str) -> None:
    """An offset changes no decided function and no expected count, be it asked together with a chance or not; within
    one domain it changes nothing at all."""
    decided = {"n": "count", "sum": "sum:v", "expected": "expected_count"}
    mixed = engine.run(query_of(left, aggregates=decided | {"none": "p_none"}), files_of(left)).output
    alone = engine.run(query_of(left, aggregates=decided), files_of(left)).output
    multiset.assert_same(multiset.rows(mixed, alone.column_names), multiset.rows(alone), "without a chance")
    pair = (from_clock("t", jitter="1 s", domain="d", offset=offset) for offset in ("3 s", None))
    found = [engine.run(query_of(left, left_time=clock, right_time=clock), files_of(left)).output for clock in pair]
    multiset.assert_same(multiset.rows(found[0]), multiset.rows(found[1]), "one domain")


@pytest.mark.parametrize("left", fewer_on_slow_engines(["histograms", "another clock"], ["another clock"]))
def test_differential_shared_clock_in_buckets_and_streams(engine: Engine, left: str) -> None:
    """The rows are those of one bucket in four of them, by key and by time, in any files, and on a stream with a
    restart; of one clock, and of several."""
    clock = HOSTS if left == "another clock" else GATEWAY
    output = engine.run(query_of(left, right_time=clock), files_of(left)).output
    expected = multiset.rows(output)
    for width, files in ((None, 3), ("5 s", 2)):
        query = query_of(left, right_time=clock, time_slots=width)
        found = engine.run(query, files_of(left, files), Variant(parallelism=4)).output
        multiset.assert_same(multiset.rows(found), expected, "rows", {"query": query})
    late = query_of(left, right_time=clock, lateness="1 hour")
    found = engine.run(late, files_of(left, 4), Variant(streaming=True, parallelism=2, restart_after=1)).output
    multiset.assert_same(multiset.rows(found, output.column_names), expected, "rows of a stream")


def test_oracle_worked_numbers_of_one_clock(engine: Engine) -> None:
    """Five readings of a gateway whose clock may be off by a second: P(none) is 0.400, and not 0.237."""
    times = pa.table({"t": [200_000, 210_000, 400_000, 700_000, 900_000]})
    query = JoinAggregate(
        left_time=Point("t"), right_time=from_clock("t", offset="1 s", jitter="10 ms"),
        condition=("0 s", "500 ms"), aggregates={"n": "expected_count", "none": "p_none", "var": "count_variance"},
    )  # fmt: skip
    files = {"left": (pa.table({"t": [0]}),), "right": (times,)}
    found = engine.run(query, files).output.to_pylist()[0]
    assert found["n"] == pytest.approx(5 / 4, abs=5e-3)  # the sum of the pairs' own probabilities, to the tolerance
    truth = {"none": Fraction(1919, 4800), "var": Fraction(1043, 800)}
    for name, exact in truth.items():
        assert found[name] == pytest.approx(float(exact), rel=1e-12), name

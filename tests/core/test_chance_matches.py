"""Chance matches: both estimates agree with independent streams, and fall short of related ones."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whenabouts.conformance import oracle
from whenabouts.core import (
    ChanceMatches,
    Condition,
    Histogram,
    Interval,
    Point,
    QueryError,
    Template,
    between,
    chance_matches,
    delay,
    within,
)
from whenabouts.core.local import run
from whenabouts.core.timing_join.query import TimingJoin

SECOND = 1_000_000
HOUR = 3600 * SECOND
SPECS: dict[str, Any] = {"left_time": Interval("a", "b"), "right_time": Interval("a", "b")}


def query(condition: Condition, **changes: Any) -> TimingJoin:
    return TimingJoin(**({**SPECS, "condition": condition} | changes))


def stream(seed: int, rows: float, span_us: int, lengths: list[int], keys: int = 1) -> pa.Table:
    """A Poisson process; lengths and keys are drawn at random."""
    random = np.random.default_rng(seed)
    n = random.poisson(rows)
    ends = random.integers(0, span_us, n)
    return pa.table({"a": ends - random.choice(lengths, n), "b": ends, "k": random.integers(0, keys, n)})


def observed(left: pa.Table, right: pa.Table, asked: TimingJoin) -> int:
    return run(replace(asked, probability=False), [left, right]).output.num_rows


@st.composite
def _shapes(draw: st.DrawFn) -> tuple[int, int, Condition]:
    lo = draw(st.integers(-30, 30))
    hi = lo + draw(st.integers(0, 40))
    confidence = draw(st.sampled_from([1.0, 0.5, 0.25, 0.75, 0.1, 2.0**-20, 1 / 3, 0.9]))
    return draw(st.integers(0, 25)), draw(st.integers(0, 25)), Condition(lo, hi, confidence)


@given(_shapes())
@settings(deadline=None, max_examples=100, derandomize=True)
def test_the_window_of_two_shapes_is_exact(shapes: tuple[int, int, Condition]) -> None:
    """Its width in microseconds is the number of anchor differences at which the oracle finds a match."""
    left_length, right_length, condition = shapes
    sides = [
        pa.table({"a": pa.array([t - length for t in ends], pa.int64()), "b": ends})
        for length, ends in ((left_length, [0, 1, 9000]), (right_length, [0, 1, 9000]))
    ]
    found = chance_matches(*sides, query=query(condition), slides=0)
    expected = sum(
        oracle.is_match(
            oracle.probability((-left_length, 0), (x - right_length, x), condition.lo_us, condition.hi_us),
            condition.confidence,
        )
        for x in range(-200, 200)
    )
    assert found.window_us == expected


CASES = {
    "points": (within("1s", confidence=1), [0], [0], 1),
    "intervals": (within("3s", confidence=0.8), [SECOND], [SECOND, 2 * SECOND], 5),
    "low confidence": (within("1s", confidence=0.1), [SECOND, 3 * SECOND], [0, 2 * SECOND], 3),
    "narrow window": (between("1s", "1500ms", confidence=0.2), [2 * SECOND], [SECOND, 2 * SECOND], 3),
    "certainty": (within("5s", confidence=1), [0, 3 * SECOND], [2 * SECOND], 40),
    "later only": (between("10s", "20s", confidence=0.5), [7 * SECOND], [0, SECOND], 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("case", CASES)
def test_independent_streams_give_what_is_expected(case: str, seed: int) -> None:
    condition, left_lengths, right_lengths, keys = CASES[case]
    left = stream(10 * seed, 10_000, 4 * HOUR, left_lengths, keys)
    right = stream(10 * seed + 1, 8_000, 4 * HOUR, right_lengths, keys)
    asked = query(condition, on="k")
    found = chance_matches(left, right, query=asked, slides=20)
    count = observed(left, right, asked)
    assert found.background_mean is not None
    assert found.background_std is not None
    assert len(found.slides_us) == 20
    noise = np.sqrt(found.expected)
    assert abs(count - found.expected) < 4 * noise
    assert abs(count - found.background_mean) < 4 * noise
    assert abs(found.background_mean - found.expected) < 4 * noise
    assert 0.4 * noise < found.background_std < 2.5 * noise
    assert "which chance explains" in replace(found, observed=count).sentence


def test_sides_that_cover_different_stretches_meet_less_often() -> None:
    left = stream(1, 5_000, HOUR, [0])
    later = stream(2, 5_000, HOUR, [0])
    moved = pa.table(
        {"a": pa.array(later["a"].to_numpy() + HOUR // 2), "b": pa.array(later["b"].to_numpy() + HOUR // 2)}
    )
    asked = query(within("1s", confidence=1))
    found = chance_matches(left, moved, query=asked)
    assert abs(observed(left, moved, asked) - found.expected) < 4 * np.sqrt(found.expected)
    assert found.expected < 0.6 * chance_matches(left, later, query=asked).expected


def test_related_streams_give_more_than_chance_does() -> None:
    left = stream(1, 2_000, 4 * HOUR, [SECOND])
    random = np.random.default_rng(2)
    ends = left["b"].to_numpy() + random.integers(0, SECOND, left.num_rows)
    right = pa.table({"a": pa.array(ends - SECOND), "b": pa.array(ends)})
    asked = query(within("2s", confidence=0.6))
    count = observed(left, right, asked)
    found = chance_matches(left, right, query=asked, observed=count)
    assert found.background_mean is not None
    assert found.background_std is not None
    assert count > found.background_mean + 5 * found.background_std
    assert count - found.background_mean == pytest.approx(left.num_rows, rel=0.1)
    assert found.observed == count
    assert f"Observed are {count:,}: about 3" in found.sentence


def test_a_slide_tears_every_true_pair_apart() -> None:
    """Partners at the ends of the window, far from all others: no slide may bring any of them together again."""
    ends = np.arange(300, dtype=np.int64) * 1000
    left = pa.table({"a": ends - 3, "b": ends})
    right = pa.table({"a": np.concatenate([ends - 22, ends + 19]), "b": np.concatenate([ends - 20, ends + 21])})
    asked = query(within(20, confidence=2.0**-30))
    assert observed(left, right, asked) == 600
    found = chance_matches(left, right, query=asked, slides=12)
    assert (found.background_mean, found.background_std, len(found.slides_us)) == (0.0, 0.0, 12)


def test_clocks_of_whole_seconds_meet_on_their_ticks() -> None:
    """Within 2 s are 5 whole seconds, not 4: a continuous window would be a fifth too small."""
    sides = []
    for seed in (1, 2):
        seconds = np.random.default_rng(seed).integers(0, 20_000, 5_000) * SECOND
        sides.append(pa.table({"a": seconds, "b": seconds}))
    asked = query(within("2s", confidence=1))
    found = chance_matches(*sides, query=asked)
    count = observed(*sides, asked)
    assert found.window_us == 5 * SECOND
    assert all(shift % SECOND == 0 for shift in found.slides_us)
    assert abs(count - found.expected) < 4 * np.sqrt(found.expected)
    assert found.background_mean is not None
    assert abs(count - found.background_mean) < 4 * np.sqrt(found.expected)


def test_where_rates_vary_the_slides_are_right() -> None:
    """Both streams are ten times busier in every second hour."""
    sides = []
    for seed in (1, 2):
        busy, calm = stream(seed, 20_000, 12 * HOUR, [0]), stream(seed + 10, 4_000, 12 * HOUR, [0])
        inside = (busy["b"].to_numpy() // HOUR) % 2 == 0
        sides.append(pa.concat_tables([busy.filter(pa.array(inside)), calm]))
    asked = query(within("1s", confidence=1))
    found = chance_matches(*sides, query=asked)
    count = observed(*sides, asked)
    assert found.background_mean is not None
    assert abs(count - found.background_mean) < 4 * np.sqrt(count)
    assert count > found.expected + 10 * np.sqrt(count)
    assert "believe the slides" in found.sentence


def test_large_data_are_sampled() -> None:
    left, right = stream(1, 40_000, 10 * HOUR, [SECOND]), stream(2, 40_000, 10 * HOUR, [SECOND])
    asked = query(within("2s", confidence=0.5))
    whole = chance_matches(left, right, query=asked)
    part = chance_matches(left, right, query=asked, max_rows=8_000)
    assert (whole.sampled, round(part.sampled, 2)) == (1.0, 0.1)
    assert part.expected == whole.expected
    assert part.background_mean is not None
    assert whole.background_mean is not None
    assert part.background_std is not None
    assert part.background_mean == pytest.approx(whole.background_mean, rel=0.05)
    assert 0.3 < part.background_std / np.sqrt(whole.expected) < 3
    tiny = chance_matches(left, right, query=asked, max_rows=1)
    assert tiny.sampled == 1 / left.num_rows


def test_a_sample_meets_all_partners_of_its_rows() -> None:
    """Left rows far apart, right rows at every microsecond: each left row has as many partners as another."""
    ends = np.arange(100, dtype=np.int64) * 1000 + 500
    everywhere = np.arange(100_000, dtype=np.int64)
    left = pa.table({"a": ends - 30, "b": ends})
    right = pa.table({"a": everywhere - 7, "b": everywhere})
    for condition in (between(-40, 20, confidence=2.0**-30), between(5, 9, confidence=0.1)):
        whole = chance_matches(left, right, query=query(condition), slides=3)
        part = chance_matches(left, right, query=query(condition), slides=3, max_rows=16_016)
        assert (whole.sampled, part.sampled) == (1.0, 0.16)
        assert whole.background_mean == part.background_mean
        assert (whole.background_std, part.background_std) == (0.0, 0.0)


def test_a_join_that_is_nearly_a_cross_product_is_sampled_too() -> None:
    left, right = stream(1, 5_000, HOUR, [0]), stream(2, 5_000, HOUR, [0])
    found = chance_matches(left, right, query=query(within("10min", confidence=1)))
    assert found.sampled == pytest.approx(2_000_000 / found.expected, rel=0.02)
    assert found.background_mean is not None
    assert found.background_mean == pytest.approx(found.expected, rel=0.2)


@pytest.mark.parametrize(
    "condition", [delay("1min", confidence=0.5), within("1h", confidence=0.5), between("-2h", "-1h", confidence=1)]
)
def test_without_room_for_a_slide_the_rates_are_left(condition: Condition) -> None:
    left, right = stream(1, 500, HOUR, [SECOND]), stream(2, 500, HOUR, [SECOND])
    found = chance_matches(left, right, query=query(condition))
    assert (found.background_mean, found.background_std, found.slides_us) == (None, None, ())
    assert found.expected == pytest.approx(observed(left, right, query(condition)), rel=0.06, abs=1)
    assert "There are no time slides" in found.sentence


def test_keys_that_differ_or_are_null_never_meet() -> None:
    left = pa.table({"a": [1, 2, 3], "b": [1, 2, 3], "k": pa.array([1, None, 2])})
    right = pa.table({"a": [1, 2, 3], "b": [1, 2, 3], "k": pa.array([None, 7, 8])})
    asked = query(within(5, confidence=1), on="k")
    assert chance_matches(left, right, query=asked).expected == 0.0
    shared = chance_matches(left, right.set_column(2, "k", pa.array([None, 1, 8])), query=asked)
    assert 0.0 < shared.expected <= 1.0


def test_rows_that_the_join_rejects_do_not_count() -> None:
    good = stream(1, 1_000, HOUR, [SECOND])
    nulls = pa.nulls(500, pa.int64())
    bad = pa.concat_tables([good, pa.table({"a": nulls, "b": nulls, "k": nulls})])
    asked = query(within("1s", confidence=0.5))
    assert chance_matches(bad, bad, query=asked) == chance_matches(good, good, query=asked)


def test_tables_without_rows_give_none() -> None:
    none = pa.table({"a": pa.array([], pa.int64()), "b": pa.array([], pa.int64())})
    one = pa.table({"a": [1], "b": [3]})
    for left, right in ((none, none), (none, one), (one, none)):
        found = chance_matches(left, right, query=query(within(5, confidence=1)))
        assert found == ChanceMatches(0.0, None, None, (), 1.0, 0.0, left.num_rows)
        assert found.sentence
    assert chance_matches(one, one, query=query(within(5, confidence=1))).expected == 1.0


def test_the_answer_does_not_change_from_call_to_call_and_options_are_checked() -> None:
    left, right = stream(1, 1_000, HOUR, [0, 1, 7, SECOND]), stream(2, 1_000, HOUR, list(range(5_000)))
    asked = query(within("1s", confidence=0.5), left_time=Interval("a", "b"), right_time=Point("b"))
    assert chance_matches(left, right, query=asked) == chance_matches(left, right, query=asked)
    assert chance_matches(left, right, query=asked, slides=0).background_mean is None
    one = chance_matches(left, right, query=asked, slides=1)
    assert one.background_mean is not None
    assert one.background_std == pytest.approx(np.sqrt(one.background_mean))
    for wrong in ({"slides": -1}, {"max_rows": 0}):
        with pytest.raises(QueryError, match="WA-2006"):
            chance_matches(left, right, query=asked, **wrong)


@st.composite
def _templates(draw: st.DrawFn) -> Template:
    widths = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    weights = draw(st.lists(st.integers(0, 4), min_size=len(widths), max_size=len(widths)).filter(any))
    edges = np.cumsum([0, *widths]).tolist()
    total = sum(weights)
    buckets = zip(edges[:-1], edges[1:], weights, strict=True)
    return Template(tuple((lo, hi, Fraction(weight, total)) for lo, hi, weight in buckets))


@given(_templates(), _templates(), st.integers(-30, 30), st.integers(0, 40), st.sampled_from([1.0, 0.7, 0.31, 0.0123]))
@settings(deadline=None, max_examples=75, derandomize=True)
def test_the_window_of_two_templates_is_exact(
    left_template: Template, right_template: Template, lo: int, width: int, confidence: float
) -> None:
    """Narrow windows included, where what matches can fall into several pieces."""
    condition = Condition(lo, lo + width, confidence)
    asked = TimingJoin(
        left_time=Histogram("t", templates=left_template),
        right_time=Histogram("t", templates=right_template),
        condition=condition,
    )
    table = pa.table({"t": [0, 1, 9000]})
    expected = 0
    for x in range(-150, 150):
        p = sum(
            p1 * p2 * oracle.probability((lo1, hi1), (x + lo2, x + hi2), condition.lo_us, condition.hi_us).exact
            for lo1, hi1, p1 in left_template.exact
            for lo2, hi2, p2 in right_template.exact
        )
        expected += p >= Fraction(confidence)
    assert chance_matches(table, table, query=asked, slides=0).window_us == expected


def test_independent_streams_of_templates_give_what_is_expected() -> None:
    spec = Histogram("b", template="k", templates={"0": [(0, "1s", 0.9), ("1s", "5s", 0.1)], "1": [(0, "10ms", 1)]})
    left, right = stream(1, 8_000, 4 * HOUR, [0], keys=2), stream(2, 8_000, 4 * HOUR, [0], keys=2)
    asked = TimingJoin(left_time=spec, right_time=spec, condition=within("2s", confidence=0.7))
    found = chance_matches(left, right, query=asked)
    count = observed(left, right, asked)
    assert found.background_mean is not None
    assert abs(count - found.expected) < 4 * np.sqrt(count)
    assert abs(count - found.background_mean) < 4 * np.sqrt(count)

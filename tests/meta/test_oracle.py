"""Tests of the oracle: worked examples, symmetries, and a sum over a fine grid that shares no formula with it."""

from __future__ import annotations

from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whenabouts.conformance import operation_counts, oracle
from whenabouts.conformance.oracle import AmbiguousPairError, Event, Ratio, Time
from whenabouts.core import Interval, Point, between

intervals = st.tuples(st.integers(-12, 12), st.integers(0, 9)).map(lambda at: (at[0], at[0] + at[1]))
bounds = st.tuples(st.integers(-15, 10), st.integers(0, 20)).map(lambda at: (at[0], at[0] + at[1]))


@pytest.mark.parametrize(
    ("left", "right", "window", "exact"),
    [
        ((0, 10), (5, 15), (-5, 5), Fraction(1, 2)),  # half of a triangle
        ((0, 10), (12, 20), (-15, 15), Fraction(27, 32)),  # one corner of 5 x 5 / 2 cut off from 10 x 8
        ((0, 0), (3, 3), (3, 3), Fraction(1)),  # points on the bound
        ((0, 0), (3, 3), (-2, 2), Fraction(0)),
        ((0, 0), (1, 5), (-1, 1), Fraction(0)),  # touches the window in one instant
        ((0, 0), (-1, 5), (-1, 1), Fraction(1, 3)),  # the spec's narrow window: target t_max 5, length 6
        ((0, 0), (-5, 5), (-1, 1), Fraction(1, 5)),  # ... length 10: less again
        ((0, 4), (0, 4), (0, 2**62), Fraction(1, 2)),  # which of two equals comes first
    ],
)
def test_worked_probabilities(
    left: tuple[int, int], right: tuple[int, int], window: tuple[int, int], exact: Fraction
) -> None:
    assert oracle.probability(left, right, *window).exact == exact


@settings(deadline=None)
@given(intervals, intervals, bounds)
def test_the_probability_is_the_share_of_a_fine_grid(
    left: tuple[int, int], right: tuple[int, int], window: tuple[int, int]
) -> None:
    """Cells of a grid that lie wholly inside the window bound P from below, cells that meet it from above."""
    n = 12
    lengths = [Fraction(end - start, n) for start, end in (left, right)]
    inside = meeting = 0
    for i in range(n):
        for j in range(n):
            least = right[0] + j * lengths[1] - (left[0] + (i + 1) * lengths[0])
            most = right[0] + (j + 1) * lengths[1] - (left[0] + i * lengths[0])
            inside += window[0] <= least and most <= window[1]
            meeting += least <= window[1] and most >= window[0]
    assert Fraction(inside, n * n) <= oracle.probability(left, right, *window).exact <= Fraction(meeting, n * n)


@settings(deadline=None)
@given(intervals, intervals, bounds, st.integers(-(10**15), 10**15), st.integers(1, 10**7))
def test_the_probability_does_not_depend_on_origin_unit_or_side(
    left: tuple[int, int], right: tuple[int, int], window: tuple[int, int], origin: int, unit: int
) -> None:
    p = oracle.probability(left, right, *window).exact
    moved = [(origin + unit * start, origin + unit * end) for start, end in (left, right)]
    assert oracle.probability(*moved, unit * window[0], unit * window[1]).exact == p
    assert oracle.probability(right, left, -window[1], -window[0]).exact == p


def test_ties_match_and_certain_means_certain() -> None:
    assert oracle.is_match(Ratio(4, 5), 0.8)
    assert oracle.is_match(Ratio(1, 3), 1 / 3)
    assert not oracle.is_match(Ratio(4, 5), 0.8000000000000002)
    assert not oracle.is_match(Ratio(2**52 - 1, 2**52), 1.0)
    assert not oracle.is_match(Ratio(0, 7), 2.0**-60)
    with pytest.raises(AmbiguousPairError):
        oracle.is_match(Ratio(2**60 + 1, 2**61), 0.5)


def test_keys_meet_as_in_sql_and_pandas() -> None:
    nan = float("nan")
    assert oracle.key_of([1, None]) is None
    assert oracle.key_of([nan, "a"]) == oracle.key_of([nan, "a"])
    assert oracle.key_of([-0.0]) == oracle.key_of([0.0])
    assert oracle.key_of([""]) is not None
    assert oracle.key_of([]) == ()


def test_every_fault_has_its_code() -> None:
    spec = Interval("a", "b", max_uncertainty=10, min_uncertainty=2)
    types = {"a": pa.int64(), "b": pa.int64()}
    rows = [(None, 5), (0, 10**18), (5, 4), (0, 11), (0, 1), (0, 2)]
    told = [oracle.read_time(spec, {"a": a, "b": b}, types) for a, b in rows]
    codes = [code if isinstance(code, Time) else code.code for code in told]
    assert codes == ["WA-1003", "WA-1007", "WA-1004", "WA-1005", "WA-1006", Time(0, 2)]
    assert oracle.read_time(Point("a"), {"a": 7}, {"a": pa.timestamp("ms")}) == Time(7000, 7000)


def test_pairs_count_rows_not_values() -> None:
    events = [Event(0, 0, (1,), ("same",)), Event(0, 0, (1,), ("same",)), Event(0, 0, None, ("no key",))]
    assert len(oracle.pairs(events, events, between(0, 0, confidence=1))) == 4


def test_regions_of_a_worked_case() -> None:
    """Base [100, 110], |D| <= 50, targets of 0 to 20 us, confidence 1: LH 60, LL 80, RL = RH = 150."""
    g = operation_counts.Geometry(lo=-50, hi=50, confidence=1.0, base_longest=10, shortest=0, longest=20)
    base = Event(100, 110, (), ())
    where = {x: operation_counts.region(base, Event(x, x, (), ()), g) for x in (59, 60, 79, 80, 150, 151)}
    assert where == {59: None, 60: "left probe", 79: "left probe", 80: "sure", 150: "sure", 151: None}


def test_counts_tell_the_strategies_apart() -> None:
    g = operation_counts.Geometry(lo=-50, hi=50, confidence=1.0, base_longest=10, shortest=0, longest=20)
    base = [Event(100, 110, (), ()), Event(99, 109, (), ())]
    target = [Event(70, 75, (), ()), Event(100, 101, (), ()), Event(400, 401, (), ())]
    assert operation_counts.correlation("simple", base, target, g) == operation_counts.TimingJoinCounts(6, 0, 0, 4, 1)
    assert operation_counts.correlation("eager", base, target, g) == operation_counts.TimingJoinCounts(2, 2, 0, 4, 1)
    # 110 is walked before 109, which starts earlier and is therefore proven by it
    assert operation_counts.correlation("lazy_lookup", base, target, g) == operation_counts.TimingJoinCounts(
        1, 2, 1, 4, 1
    )

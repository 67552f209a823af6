"""The functions that make conditions, and the values that they refuse."""

import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whenabouts.core import (
    Condition,
    Interval,
    Lateness,
    Point,
    QueryError,
    between,
    deadline,
    delay,
    overlaps,
    possibly,
    within,
)
from whenabouts.core.durations import MAX_DURATION_US
from whenabouts.core.probability.satisfaction_probability import pair_probability
from whenabouts.core.times.limits import UNBOUNDED_US
from whenabouts.core.timing_join.query import TimingJoin


def test_words() -> None:
    assert within("2s", confidence=0.6) == Condition(-2_000_000, 2_000_000, 0.6)
    assert between("-1s", 5, confidence=1) == Condition(-1_000_000, 5, 1.0)
    assert deadline("5s", confidence=0.5) == Condition(-UNBOUNDED_US, 5_000_000, 0.5)
    assert deadline("5s", since="-1s", confidence=0.5) == Condition(-1_000_000, 5_000_000, 0.5)
    assert delay("5s", confidence=0.5) == Condition(5_000_000, UNBOUNDED_US, 0.5)
    assert delay("5s", until="6s", confidence=0.5) == Condition(5_000_000, 6_000_000, 0.5)


@pytest.mark.parametrize("confidence", [0, 0.0, -0.1, 1.0000001, math.nan, math.inf, "high", None])
def test_confidence_outside_its_range(confidence: object) -> None:
    with pytest.raises(QueryError, match="WA-2001"):
        within("1s", confidence=confidence)  # type: ignore[arg-type]


def test_bounds_the_wrong_way_round() -> None:
    with pytest.raises(QueryError, match="WA-2005"):
        between("5s", "1s", confidence=0.5)


@pytest.mark.parametrize("bounds", [(2**62, 2**62), (-(2**63), -(2**62))])
def test_missing_bounds_on_the_wrong_side_admit_nothing(bounds: tuple[int, int]) -> None:
    with pytest.raises(QueryError, match=r"WA-2005.*admits no difference"):
        Condition(*bounds, 0.5)


@pytest.mark.parametrize("bounds", [(-(2**61), 5), (0, 2**62 - 1), (0, MAX_DURATION_US + 2), (0, 2**63)])
def test_bounds_are_no_longer_than_durations_but_for_those_that_bound_nothing(bounds: tuple[int, int]) -> None:
    """A stream would reckon with them beyond int64."""
    with pytest.raises(QueryError, match="WA-2002"):
        Condition(*bounds, 1.0)
    assert possibly(between(0, MAX_DURATION_US)).decided_by(instants=False).hi_us == MAX_DURATION_US + 1
    assert Condition(-(2**62), 2**62, 1.0).one_sided


def test_possible_conditions_are_the_same_whatever_their_confidence() -> None:
    assert possibly(within("2s")) == possibly(within("2s", confidence=0.6)) == possibly(possibly(within("2s")))
    assert overlaps() == possibly(between(0, 0))
    assert possibly(within("2s")) != Condition(-2_000_000, 2_000_000, 1e-300)
    copied = pickle.loads(pickle.dumps(possibly(deadline("5s"))))
    assert copied.possible
    assert copied.one_sided
    assert not within("1s", confidence=1).possible
    assert repr(overlaps()) == "Condition(lo_us=0, hi_us=0, confidence=POSSIBLE)"


def test_a_join_needs_a_confidence_or_possibly() -> None:
    for condition in (within("1s"), between(0, 1), deadline("1s"), delay("1s")):
        with pytest.raises(QueryError, match="WA-2001: condition has no confidence"):
            TimingJoin(left_time=Point("t"), right_time=Point("t"), condition=condition)
    for wrong in ("2 s", None, 5):
        with pytest.raises(QueryError, match="WA-2006: possibly is given"):
            possibly(wrong)  # type: ignore[arg-type]


@given(st.lists(st.integers(-5, 5), min_size=4, max_size=4), st.integers(-4, 4), st.integers(0, 3))
def test_a_possible_condition_is_decided_by_a_probability(ends: list[int], lo: int, width: int) -> None:
    """Whatever the two intervals: they admit the window if and only if the other condition holds, or is certain."""
    (a, b), (c, d) = sorted(ends[:2]), sorted(ends[2:])
    asked = possibly(between(lo, lo + width)).decided_by(instants=a == b and c == d)
    p = pair_probability(a, b, c, d, asked.lo_us, asked.hi_us)
    assert (p >= asked.confidence) == any(lo <= y - x <= lo + width for x in range(a, b + 1) for y in range(c, d + 1))


def test_negative_within() -> None:
    with pytest.raises(QueryError, match="WA-2003"):
        within("-5s", confidence=0.5)


@pytest.mark.parametrize(
    ("condition", "argument"),
    [(deadline("5s", confidence=1), "since="), (delay("5s", confidence=1), "until=")],
)
def test_one_sided_on_a_stream_says_what_to_add(condition: Condition, argument: str) -> None:
    with pytest.raises(QueryError, match=f"WA-2004.*{argument}"):
        condition.require_two_sided()


def test_two_sided_passes() -> None:
    within("1s", confidence=1).require_two_sided()


def test_uncertainties() -> None:
    assert Interval("a", "b", max_uncertainty="1s", min_uncertainty="1ms").min_uncertainty_us == 1_000
    assert Point("t").max_uncertainty_us == 0
    assert Interval("a", "b").max_uncertainty_us is None
    with pytest.raises(QueryError, match="WA-2003"):
        Interval("a", "b", max_uncertainty="-1s")
    with pytest.raises(QueryError, match="WA-2006"):
        Interval("a", "b", max_uncertainty="1s", min_uncertainty="2s")


def test_lateness() -> None:
    assert Lateness(left="5 s").per_input_us == (5_000_000, 0)
    with pytest.raises(QueryError, match="WA-2003: lateness of the right side"):
        Lateness(right="-5 s")

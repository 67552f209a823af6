"""The oracle of prevailing rows: against counting, against simulated worlds, and its own sums."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from whenabouts.conformance.oracle import Time
from whenabouts.conformance.prevailing_oracle import Rules, by_orders, prevailing

HISTOGRAM = ((-6, -4, Fraction(1, 4)), (-4, -3, Fraction(0)), (-3, 0, Fraction(3, 4)))


def random_time(draw: random.Random) -> Time:
    start = draw.randint(0, 8)
    if draw.random() < 0.3:
        return Time(0, start + 4, HISTOGRAM)
    return Time(start, start + draw.choice([0, 0, 1, 2, 5]))


def test_worked_examples() -> None:
    three = [Time(0, 10), Time(20, 30), Time(25, 25)]
    answer = prevailing(Time(20, 30), three, Rules())
    assert answer.rows == (Fraction(3, 8), Fraction(1, 4), Fraction(3, 8))
    assert prevailing(Time(20, 30), three, Rules("forward")).rows == (0, Fraction(1, 4), Fraction(3, 8))
    assert prevailing(Time(5, 5), [Time(3, 3), Time(7, 7)], Rules("nearest")).rows == (1, 0)
    assert prevailing(Time(5, 5), [Time(5, 5)], Rules(exact_matches=False)).none == 1


def test_integrals_agree_with_counting() -> None:
    draw = random.Random(1)
    for _ in range(150):
        left, right = random_time(draw), [random_time(draw) for _ in range(draw.randint(0, 4))]
        assert prevailing(left, right, Rules()) == by_orders(left, right)


@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
def test_answers_sum_to_one(direction: str) -> None:
    draw = random.Random(2)
    for _ in range(150):
        left, right = random_time(draw), [random_time(draw) for _ in range(draw.randint(0, 4))]
        rules = Rules(direction, draw.choice([None, 0, 1, 3]), draw.random() < 0.5)  # type: ignore[arg-type]
        answer = prevailing(left, right, rules)
        assert sum(answer.rows) + answer.none == 1
        assert min([*answer.rows, answer.none]) >= 0


def simulated(time: Time, worlds: int, random_: np.random.Generator) -> np.ndarray:
    chosen = random_.choice(len(time.buckets), worlds, p=[float(p) for *_, p in time.buckets])
    starts, ends = (np.array([bucket[i] for bucket in time.buckets])[chosen] for i in (0, 1))
    return time.t_max + starts + (ends - starts) * random_.random(worlds)


def share_of_worlds(left: Time, right: Sequence[Time], rules: Rules, worlds: int) -> list[float]:
    """How often each right row, and none, is the answer of a world."""
    random_ = np.random.default_rng(4)
    y = simulated(left, worlds, random_)
    distance = np.array([y - simulated(time, worlds, random_) for time in right])
    eligible = np.ones(distance.shape, bool)
    if rules.direction == "backward":
        eligible = distance >= 0
    elif rules.direction == "forward":
        eligible = distance <= 0
    far = np.where(eligible, np.abs(distance), np.inf)
    if rules.tolerance_us is not None:
        far[far > rules.tolerance_us] = np.inf
    nearest = np.where(np.isfinite(far.min(axis=0)), far.argmin(axis=0), len(right))
    return [float(np.mean(nearest == k)) for k in range(len(right) + 1)]


@pytest.mark.parametrize("rules", [Rules("nearest"), Rules("nearest", 2), Rules("backward", 2), Rules("forward", 3)])
def test_probabilities_are_shares_of_worlds(rules: Rules) -> None:
    """Within four standard deviations; points at different instants, so that ties do not occur."""
    right = [Time(0, 5), Time(3, 3), Time(2, 9), Time(0, 10, HISTOGRAM), Time(8, 8)]
    for left in (Time(1, 7), Time(0, 9, HISTOGRAM), Time(4, 4)):
        answer = prevailing(left, right, rules)
        shares = share_of_worlds(left, right, rules, 100_000)
        for share, exact in zip(shares, [*answer.rows, answer.none], strict=True):
            assert abs(share - float(exact)) < 4 * (float(exact * (1 - exact)) / 100_000) ** 0.5 + 1e-9

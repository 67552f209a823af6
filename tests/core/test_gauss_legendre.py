"""The literal nodes and weights against Newton's method in 60 digits."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from whenabouts.core.probability.gauss_legendre import COMPLEMENTS, MOST_NODES, NODES, START, WEIGHTS


def legendre(n: int, x: Decimal) -> tuple[Decimal, Decimal]:
    """P_n(x) and its derivative."""
    before, value = Decimal(1), x
    for k in range(2, n + 1):
        before, value = value, ((2 * k - 1) * x * value - (k - 1) * before) / k
    return value, n * (x * value - before) / (x * x - 1)


def rule(n: int) -> list[tuple[float, float]]:
    """(node, weight) on [0, 1] up to the middle, each the nearest double."""
    found = []
    with localcontext(prec=60):
        for i in range((n + 1) // 2):
            z = Decimal(math.cos(math.pi * (i + 0.75) / (n + 0.5)))
            for _ in range(8):
                value, slope = legendre(n, z)
                z -= value / slope
            slope = legendre(n, z)[1]
            found.append((float((1 - z) / 2), float(1 / ((1 - z * z) * slope * slope))))
    return found


@pytest.mark.parametrize("n", range(1, MOST_NODES + 1))
def test_every_literal_is_the_nearest_double(n: int) -> None:
    entries = slice(START[n], START[n] + (n + 1) // 2)
    assert list(zip(NODES[entries].tolist(), WEIGHTS[entries].tolist(), strict=True)) == rule(n)


@pytest.mark.parametrize("n", range(1, MOST_NODES + 1))
def test_the_upper_half_mirrors_the_lower_one(n: int) -> None:
    entries = slice(START[n], START[n + 1])
    assert np.array_equal(NODES[entries], COMPLEMENTS[entries][::-1])
    assert np.array_equal(WEIGHTS[entries], WEIGHTS[entries][::-1])
    assert (np.abs(NODES[entries] + COMPLEMENTS[entries] - 1) <= 2**-53).all()
    assert (np.diff(NODES[entries]) > 0).all()


@pytest.mark.parametrize("n", range(1, MOST_NODES + 1))
def test_polynomials_up_to_degree_2n_minus_1_are_integrated_exactly(n: int) -> None:
    entries = range(START[n], START[n + 1])
    for degree in range(2 * n):
        value = sum(Fraction(WEIGHTS[i]) * Fraction(NODES[i]) ** degree for i in entries)
        assert abs(value - Fraction(1, degree + 1)) < Fraction(1, 2**52)

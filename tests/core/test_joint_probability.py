"""The joint probability of windows against closed forms, exact rationals and simulation."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from whenabouts.conformance.oracle import Event
from whenabouts.conformance.window_join_oracle import joint_probability
from whenabouts.core import QueryError
from whenabouts.core.probability.joint_probability import Densities, both_directions, check_joint, joint_probabilities
from whenabouts.core.probability.satisfaction_probability import pair_probability
from whenabouts.core.window_join.graph import Edge

Window = tuple[int, int, float, float]


def _uniform(*ends: tuple[float, float]) -> list[Densities]:
    return [Densities(np.array([end], float), np.ones((1, 1))) for end in ends]


def _joint(densities: list[Densities], windows: list[Window]) -> float:
    return float(joint_probabilities(densities, both_directions(windows))[0])


def _clique(k: int, width: float) -> list[Window]:
    return [(i, j, -width, width) for i, j in itertools.combinations(range(k), 2)]


@pytest.mark.parametrize("k", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("width", [0.1, 0.37, 0.9])
def test_range_of_equal_uniforms(k: int, width: float) -> None:
    """P(max - min <= w) of k uniforms on [0, 1] is k w^(k-1) - (k-1) w^k."""
    expected = k * width ** (k - 1) - (k - 1) * width**k
    assert abs(_joint(_uniform(*[(0, 1)] * k), _clique(k, width)) - expected) < 1e-12


@pytest.mark.parametrize("width", [0.2, 0.5, 0.8])
def test_general_integral_agrees_with_the_clique_formula(width: float) -> None:
    """The nested integral, forced by a fourth window that is hardly wider, against the formula in the limit."""
    densities = _uniform((0, 1), (0.2, 0.9), (-0.5, 1.5))
    nearly = _clique(3, width)
    nearly[0] = (0, 1, -width, width * (1 + 1e-13))
    assert abs(_joint(densities, nearly) - _joint(densities, _clique(3, width))) < 1e-11


def test_a_chain_of_before() -> None:
    """P(X0 < X1 < ... < Xk-1) of k equal uniforms is 1 / k!, by symmetry; cut at half, all are in order and near."""
    for k in (2, 3, 4, 5):
        windows: list[Window] = [(i, i + 1, 0.0, np.inf) for i in range(k - 1)]
        assert abs(_joint(_uniform(*[(0, 1)] * k), windows) - 1 / np.prod(np.arange(1, k + 1))) < 1e-12


def test_windows_of_one_event_are_not_independent() -> None:
    """|X1 - X0| <= w and |X2 - X0| <= w: given X0 they are independent, so P is the integral of the square.

    With w = 1/2 and uniforms on [0, 1] the inner mass is 1/2 + min(x, 1 - x), and twice the integral of its square over
    the first half is 7/12.
    """
    star: list[Window] = [(0, 1, -0.5, 0.5), (0, 2, -0.5, 0.5)]
    joint = _joint(_uniform(*[(0, 1)] * 3), star)
    assert abs(joint - 7 / 12) < 1e-12
    assert joint > 0.75**2 + 0.02  # the result of multiplication


def test_one_window_is_the_pair_s_own_probability() -> None:
    random = np.random.default_rng(1)
    for _ in range(200):
        starts, lengths = random.integers(-50, 50, 2), random.integers(0, 40, 2)
        lo = int(random.integers(-60, 40))
        hi = lo + int(random.integers(0, 60))
        ends = [(int(s), int(s + n)) for s, n in zip(starts, lengths, strict=True)]
        expected = pair_probability(*ends[0], *ends[1], lo, hi)
        assert abs(_joint(_uniform(*ends), [(0, 1, lo, hi)]) - expected) < 1e-12


GRAPHS: dict[str, tuple[int, list[Window]]] = {
    "path": (4, [(0, 1, -6, 6), (1, 2, -3, 9), (3, 2, -8, 2)]),
    "star": (4, [(0, 1, -6, 6), (0, 2, -3, 9), (3, 0, -8, 2)]),
    "clique": (3, [(0, 1, -6, 6), (1, 2, -3, 9), (0, 2, -4, 7)]),
    "ring": (4, [(0, 1, -6, 6), (1, 2, -3, 9), (2, 3, -7, 4), (3, 0, -5, 5)]),
    "both ways": (2, [(0, 1, 0, 6), (1, 0, -4, 2)]),
    "two parts": (4, [(0, 1, -2, 3), (2, 3, -4, 1)]),
}


def _random_spread(random: np.random.Generator, n: int) -> Densities:
    """Rows of one to three buckets, holes among them, and points."""
    buckets = int(random.integers(1, 4))
    widths = random.integers(1, 6, (n, buckets)).astype(float)
    start = random.integers(-6, 6, n).astype(float)
    edges = np.concatenate([start[:, None], start[:, None] + np.cumsum(widths, axis=1)], axis=1)
    mass = random.random((n, buckets)) * (random.random((n, buckets)) < 0.8) + 1e-3
    edges[random.random(n) < 0.2] = 1.0
    return Densities(edges, mass / mass.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("name", GRAPHS)
def test_simulation(name: str) -> None:
    """Two hundred thousand draws for each of some combinations: within five standard errors."""
    k, windows = GRAPHS[name]
    random = np.random.default_rng(sum(map(ord, name)))
    n, draws = 5, 200_000
    densities = [_random_spread(random, n) for _ in range(k)]
    found = joint_probabilities(densities, both_directions(windows))
    for row in range(n):
        x = np.stack([_draw(random, density.edges[row], density.mass[row], draws) for density in densities])
        hold = np.ones(draws, bool)
        for i, j, lo, hi in windows:
            hold &= (x[j] - x[i] >= lo) & (x[j] - x[i] <= hi)
        p = hold.mean()
        assert abs(found[row] - p) <= 5 * np.sqrt(max(p * (1 - p), 1e-6) / draws), (row, found[row], p)


def _draw(random: np.random.Generator, edges: np.ndarray, mass: np.ndarray, n: int) -> np.ndarray:
    bucket = random.choice(len(mass), n, p=mass)
    return edges[bucket] + random.random(n) * (edges[bucket + 1] - edges[bucket])


@pytest.mark.parametrize("name", GRAPHS)
def test_exact_cells(name: str) -> None:
    """Times and windows of whole numbers against exact rationals, cell by cell (the conformance suite's oracle)."""
    k, windows = GRAPHS[name]
    random = np.random.default_rng(sum(map(ord, name)))
    edges = [Edge(str(i), str(j), int(lo), int(hi), 0.5) for i, j, lo, hi in windows]
    seen = set()
    for _ in range(12 if k < 4 else 8):
        starts, lengths = random.integers(-4, 4, k), random.integers(0, 7, k)
        ends = [(int(s), int(s + n)) for s, n in zip(starts, lengths, strict=True)]
        exact = joint_probability(edges, {str(i): Event(*end, (), ()) for i, end in enumerate(ends)}, 1)
        seen.add(exact)
        assert abs(_joint(_uniform(*ends), windows) - float(exact)) < 1e-12, ends
    assert len(seen - {Fraction(0), Fraction(1)}) > 1


@pytest.mark.parametrize("name", ["clique", "both ways"])
def test_exact_histograms(name: str) -> None:
    """Histograms of two buckets, a point among them, are mixtures: against exact rationals, box by box."""
    k, windows = GRAPHS[name]
    random = np.random.default_rng(len(name))
    edges = [Edge(str(i), str(j), int(lo), int(hi), 0.5) for i, j, lo, hi in windows]
    for _ in range(4):
        bounds = np.cumsum(random.integers(1, 5, (k, 3)), axis=1) + random.integers(-6, 3, (k, 1))
        bounds[0] = bounds[0, 0] if random.random() < 0.3 else bounds[0]
        eighths = random.integers(1, 8, k)
        masses = np.stack([eighths, 8 - eighths], axis=1)
        exact = Fraction(0)
        for chosen in itertools.product(range(2), repeat=k):
            box = {str(i): Event(int(bounds[i, b]), int(bounds[i, b + 1]), (), ()) for i, b in enumerate(chosen)}
            share = Fraction(int(np.prod([masses[i, b] for i, b in enumerate(chosen)])), 8**k)
            exact += share * joint_probability(edges, box, 1)
        densities = [Densities(bounds[i : i + 1].astype(float), masses[i : i + 1] / 8) for i in range(k)]
        assert abs(_joint(densities, windows) - float(exact)) < 1e-12


def test_exact_values_of_small_boxes() -> None:
    """Hand-made: X0 = 0, X1 uniform on [0, 2], X2 uniform on [0, 2]; X1 <= 1 and X1 <= X2: 1/2 - 1/8 = 3/8."""
    windows: list[Window] = [(0, 1, 0, 1), (1, 2, 0, np.inf)]
    assert abs(_joint(_uniform((0, 0), (0, 2), (0, 2)), windows) - float(Fraction(3, 8))) < 1e-13


def test_graphs_that_would_take_too_long_are_refused() -> None:
    check_joint(both_directions(_clique(8, 3)), 8, [1] * 8)
    uneven = [(i, j, -3.0 - i, 3.0 + j) for i, j in itertools.combinations(range(6), 2)]
    with pytest.raises(QueryError, match="WA-2007"):
        check_joint(both_directions(uneven), 6, [1] * 6)
    check_joint(both_directions(uneven[:5]), 6, [1] * 6)

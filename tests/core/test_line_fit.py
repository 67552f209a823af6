"""From a line that is known to within a cell to offset, drift and jitter, on simulated streams."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.clocks import line_fit
from whenabouts.core.clocks.line_fit import FittedLine, Strip, fit, weighted_pairs

DAY = 86_400_000_000
CELL = 4_000_000


def linked(
    seed: int, n: int, share: float, jitter: float, bursts: bool = False
) -> tuple[IntArray, IntArray, float, float]:
    """Two streams of n rows, of which a share of the left ones has a partner on the right; offset and drift."""
    rng = np.random.default_rng(seed)
    offset, drift = rng.uniform(-3e9, 3e9), rng.uniform(-2.5e-3, 2.5e-3)

    def stream(rows: int) -> IntArray:
        if not bursts:
            return rng.integers(0, DAY, rows)
        centres = np.repeat(rng.integers(0, DAY, rows // 10 + 1), 10)[:rows]
        return np.clip(centres + rng.exponential(3e7, rows).astype(np.int64), 0, DAY - 1)

    left = np.sort(stream(n))
    partners = left[rng.random(n) < share]
    moved = partners + offset + drift * (partners - DAY / 2) + rng.normal(0, jitter, len(partners))
    return left, np.sort(np.concatenate([moved.astype(np.int64), stream(n - len(partners))])), offset, drift


def fitted(left: IntArray, right: IntArray, offset: float, drift: float, seed: int = 0) -> FittedLine:
    """From a start that is off by as much as a search may be."""
    rng = np.random.default_rng(seed)
    start = offset + rng.uniform(-1, 1) * CELL, drift + rng.uniform(-1, 1) * CELL / DAY
    return fit([(left, right)], DAY, *start, CELL)


def errors(found: FittedLine) -> tuple[float, float]:
    return found.covariance[0][0] ** 0.5, found.covariance[1][1] ** 0.5


@pytest.mark.parametrize(("seed", "at_once"), [(0, 1 << 17), (1, 7), (2, 1)])
def test_pairs_of_a_strip_equal_brute_force(seed: int, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_fit, "PAIRS_AT_ONCE", at_once)
    left, right, offset, drift = linked(seed, 300, 0.5, 5e6)
    strip = Strip(offset, drift, 3e8, 1e6)
    parts = list(weighted_pairs(left, right, DAY, strip))
    assert (len(parts) == 1) == (at_once > len(left))
    rows, distance, weight = map(np.concatenate, zip(*parts, strict=True))
    near = {}
    for (i, a), (j, b) in itertools.product(enumerate(left.tolist()), enumerate(right.tolist())):
        expected = a + strip.offset_us + strip.drift * (a - DAY / 2)
        if -strip.half_us <= b - expected < strip.half_us:
            near[i, j] = b - expected
    of_left = np.bincount([i for i, _ in near], minlength=len(left))
    of_right = np.bincount([j for _, j in near], minlength=len(right))
    assert rows.tolist() == [i for i, _ in near]
    assert distance.tolist() == pytest.approx(list(near.values()))
    assert weight.tolist() == pytest.approx([1 / max(of_left[i], of_right[j]) for i, j in near])


@pytest.mark.parametrize(
    ("n", "share", "jitter", "bursts"),
    [
        (20_000, 0.3, 200_000, False),
        (2_000, 0.3, 500_000, False),
        (1_000, 0.05, 50_000, False),
        (5_000, 0.3, 200_000, True),
    ],
)
def test_lines_are_found_within_their_errors(n: int, share: float, jitter: float, bursts: bool) -> None:
    left, right, offset, drift = linked(1, n, share, jitter, bursts)
    found = fitted(left, right, offset, drift)
    of_offset, of_drift = errors(found)
    assert abs(found.offset_us - offset) < 4 * of_offset < jitter
    assert abs(found.drift - drift) < 4 * of_drift < 5 * jitter / DAY
    assert 0.8 < found.jitter_us / jitter < 1.3


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("n", "share", "jitter", "bursts"),
    [(20_000, 0.3, 200_000, False), (2_000, 0.3, 500_000, False), (20_000, 0.3, 200_000, True)],
)
def test_errors_divided_by_their_estimates_have_deviation_one(
    n: int, share: float, jitter: float, bursts: bool
) -> None:
    pulls = []
    for seed in range(100):
        left, right, offset, drift = linked(seed, n, share, jitter, bursts)
        found = fitted(left, right, offset, drift, seed)
        of_offset, of_drift = errors(found)
        pulls.append(((found.offset_us - offset) / of_offset, (found.drift - drift) / of_drift))
    assert all(0.8 <= deviation <= 1.25 for deviation in np.std(pulls, axis=0))
    assert all(0.88 <= share <= 0.99 for share in np.mean(np.abs(pulls) < 1.96, axis=0))


def test_a_constant_moves_the_offset_by_it() -> None:
    left, right, offset, drift = linked(2, 2_000, 0.3, 200_000)
    one, two = fitted(left, right, offset, drift), fitted(left, right + 12_345_678, offset + 12_345_678, drift)
    assert two.offset_us - one.offset_us == pytest.approx(12_345_678, abs=1)
    assert (two.drift, two.jitter_us) == pytest.approx((one.drift, one.jitter_us), rel=1e-3)


def test_swapping_the_sides_turns_the_line_round() -> None:
    left, right, offset, drift = linked(3, 5_000, 0.3, 200_000)
    forth = fitted(left, right, offset, drift)
    back = fit([(right, left)], DAY, -offset + offset * drift, -drift / (1 + drift), CELL)
    of_offset, of_drift = errors(forth)
    assert abs(back.drift + forth.drift / (1 + forth.drift)) < 2 * of_drift
    # `back` is at the middle of right times, which left ones reach `offset` earlier
    earlier = forth.offset_us - forth.drift / (1 + forth.drift) * forth.offset_us
    assert abs(back.offset_us + earlier) < 2 * of_offset


def test_half_of_the_rows_give_the_same_line() -> None:
    left, right, offset, drift = linked(4, 10_000, 0.4, 200_000)
    rng = np.random.default_rng(0)
    whole = fitted(left, right, offset, drift)
    half = fitted(left[rng.random(len(left)) < 0.5], right[rng.random(len(right)) < 0.5], offset, drift)
    assert abs(whole.offset_us - half.offset_us) < 4 * errors(half)[0]
    assert errors(half)[0] > errors(whole)[0]


def test_a_dense_background_hides_neither_line_nor_jitter() -> None:
    """Two accidental pairs and more in the width of the jitter for each third of a true one."""
    left, right, offset, drift = linked(5, 60_000, 0.3, 1_500_000)
    found = fitted(left, right, offset, drift)
    assert abs(found.offset_us - offset) < 4 * errors(found)[0] < 400_000
    assert 0.7 < found.jitter_us / 1_500_000 < 1.4


def test_an_empty_window_is_refused() -> None:
    with pytest.raises(ValueError, match="no pair"):
        fit([(np.array([0, DAY - 1]), np.array([DAY // 2]))], DAY, 0.0, 0.0, CELL)

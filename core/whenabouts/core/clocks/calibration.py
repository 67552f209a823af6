"""Does a learned delay hold for rows that it was not learned from? Held out by contiguous stretches of time.

Each stretch is judged by the template of all others. The place of a delay within that distribution (the probability
integral transform) is uniform if the template is right. Contiguous stretches matter: rows picked in turn would have
neighbours on both sides in the sample, so that a clock that wanders would pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whenabouts.core.arrays.typing import FloatArray, IntArray
from whenabouts.core.clocks.robust_lines import blocks_of
from whenabouts.core.times.empirical_distributions import MOST_BUCKETS, equal_mass
from whenabouts.core.times.templates import Template

DKW = math.sqrt(math.log(2 / 0.05) / 2)
"""The band that holds a distribution function with 95 % (Dvoretzky, Kiefer and Wolfowitz 1956, Massart 1990)."""

CENTRAL = (0.5, 0.9, 0.99)
BLOCKS = 40
ROWS_PER_BLOCK = 25
UNEVEN_BELOW = 1e-4
"""The p-value under which blocks of time are called different."""
UNEVEN_ABOVE = 0.13
"""How much they must differ besides: the means of their places by 0.13, about half a standard deviation of the delay.
Real delays always differ a little from one minute to the next; a template for all of them holds nevertheless."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """How held-out delays lie within the learned distribution.

    `verdict`: `calibrated`; `drifts` (the delays of some stretches lie higher than those of others); `spread changes`
    (some stretches scatter more); `heavy tail` (too many beyond the central 99 %); `other shape`. `distance`: the
    greatest distance of the distribution function of their places to the uniform one, `allowed`: the bound that 95 % of
    right templates keep, for `effective` independent rows. `uneven`: how much the mean places of stretches of time
    differ, as a standard deviation beyond chance, `uneven_spread` the same for their distance from the centre.
    `coverage`: the shares inside the central 50, 90 and 99 %.
    """

    verdict: str
    distance: float
    allowed: float
    effective: float
    uneven: float
    uneven_spread: float
    coverage: tuple[float, float, float]

    @property
    def sentence(self) -> str:
        """The verdict with its numbers."""
        shares = ", ".join(f"{share:.1%}" for share in self.coverage)
        return (
            f"Held out by stretches of time: {self.verdict} (distance {self.distance:.3f}, allowed {self.allowed:.3f}; "
            f"unevenness {max(self.uneven, self.uneven_spread):.3f}, allowed {UNEVEN_ABOVE}; "
            f"inside the central 50, 90, 99 %: {shares})."
        )


def held_out(delays: IntArray, kinds: IntArray, folds: int, seed: int, **ends: int | None) -> Calibration:
    """Judge templates of `delays`, in order of time, by kind; `ends` are those of `equal_mass`. O(folds n log n).

    A delay of k microseconds lies anywhere in [k, k + 1], where `seed` draws its place.

    >>> good = np.random.default_rng(1).integers(0, 1000, 2000)
    >>> held_out(good, np.zeros(2000, int), 5, 0).verdict
    'calibrated'
    >>> held_out(good + np.arange(2000) // 1600 * 300, np.zeros(2000, int), 5, 0).verdict  # a step
    'drifts'
    """
    fold = blocks_of(len(delays), folds)
    places = np.empty(len(delays))
    draws = np.random.default_rng(seed).random(len(delays))
    for number in range(min(folds, len(delays))):
        for kind in np.unique(kinds[fold == number]):
            rows = np.flatnonzero((fold == number) & (kinds == kind))
            others = delays[(fold != number) & (kinds == kind)]
            if not len(others):
                places[rows] = draws[rows]  # nothing is known of this kind elsewhere: no evidence either way
                continue
            template = equal_mass(others, shortest=ends.get("shortest"), longest=ends.get("longest"))
            below, above = (distribution_function(template, delays[rows] + more) for more in (0, 1))
            places[rows] = below + draws[rows] * (above - below)
    return judge(places)


def error_of(rows: float) -> float:
    """The bound of the error of a distribution function that so many independent rows give: the band of Dvoretzky,
    Kiefer and Wolfowitz, and no less than the mass of a bucket, inside which a template is straight.

    >>> round(error_of(100), 3), error_of(10**6)
    (0.136, 0.005)
    """
    return max(DKW / math.sqrt(rows), 1 / MOST_BUCKETS)


def judge(places: FloatArray) -> Calibration:
    """The verdict about places in order of time, which should be uniform in [0, 1]."""
    n = len(places)
    ordered = np.sort(places)
    steps = np.arange(n + 1) / n
    distance = float(max(np.max(steps[1:] - ordered), np.max(ordered - steps[:-1])))
    uneven, effective = _unevenness(places)
    uneven_spread, _ = _unevenness(np.abs(2 * places - 1))  # uniform, too
    allowed = error_of(effective)
    coverage = [float(np.mean(np.abs(places - 0.5) <= share / 2)) for share in CENTRAL]
    room = 3 * math.sqrt(0.99 * 0.01 / effective) + 2.5 / n  # of n delays the next exceeds all with 1 / (n + 1)
    if uneven > UNEVEN_ABOVE:
        verdict = "drifts"
    elif uneven_spread > UNEVEN_ABOVE:
        verdict = "spread changes"
    elif coverage[-1] < 0.99 - room:
        verdict = "heavy tail"
    else:
        verdict = "calibrated" if distance <= allowed else "other shape"
    shares = coverage[0], coverage[1], coverage[2]
    return Calibration(verdict, distance, allowed, effective, uneven, uneven_spread, shares)


def _unevenness(places: FloatArray) -> tuple[float, float]:
    """The standard deviation of the means of blocks of time beyond chance, 0 where chance explains it, and the number
    of independent rows.

    Correlation counts within blocks only: what is slower than a block is what the test looks for.
    """
    block = blocks_of(len(places), min(BLOCKS, max(len(places) // ROWS_PER_BLOCK, 5)))
    sizes = np.bincount(block)
    means = np.bincount(block, places) / sizes
    excess = max(_autocorrelation_sum(places - means[block], int(sizes.min()) // 2), 1.0)
    # Templates come from the other stretches, so that means differ by more than their own noise: 1 / (1 - 1/5).
    noise = excess / 12 * 1.25
    squares = sizes * (means - np.mean(places)) ** 2
    effective = len(places) / excess
    if chi_square_tail(float(np.sum(squares)) / noise, len(means) - 1) >= UNEVEN_BELOW:
        return 0.0, effective
    return math.sqrt(max(float(np.sum(squares)) - noise * (len(means) - 1), 0.0) / len(places)), effective


def distribution_function(template: Template, at: IntArray | FloatArray) -> FloatArray:
    """P(phi <= at) of a template, whose offsets are absolute."""
    edges = np.array(template.edges, float) + template.end_us
    return np.asarray(np.interp(at, edges, np.concatenate([[0.0], np.cumsum(template.masses)])))


def quantiles(template: Template, shares: Sequence[float]) -> FloatArray:
    """The offsets below which a template has these shares.

    >>> quantiles(Template(((-10, 0, .5), (0, 30, .5))), [0.25, 0.75]).tolist()
    [-5.0, 15.0]
    """
    edges = np.array(template.edges, float) + template.end_us
    return np.asarray(np.interp(shares, np.concatenate([[0.0], np.cumsum(template.masses)]), edges))


def chi_square_tail(value: float, freedom: int) -> float:
    """P(chi-square > value), by the cube root of Wilson and Hilferty (1931): within 1e-3 for 3 degrees or more.

    >>> round(chi_square_tail(18.307, 10), 3)  # 0.05
    0.05
    """
    if value <= 0:
        return 1.0
    spread = 2 / (9 * freedom)
    return 0.5 * math.erfc((math.cbrt(value / freedom) - 1 + spread) / math.sqrt(2 * spread))


def _autocorrelation_sum(noise: FloatArray, most: int) -> float:
    """1 + 2 sum of autocorrelations, as long as sums of two neighbouring lags are positive (Geyer 1992)."""
    variance = float(np.mean(noise**2))
    total = 1.0
    if variance == 0:
        return total
    for lag in range(1, most, 2):
        pair = sum(float(np.mean(noise[:-each] * noise[each:])) / variance for each in (lag, lag + 1))
        if pair <= 0:
            break
        total += 2 * pair
    return total

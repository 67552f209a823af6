"""How right - left is distributed about the line of two clocks, without knowing which pairs are true.

The pairs about the line are counted by their distance from it. A true pair (i, j) also brings the pairs of j with the
neighbours of i, so that bursts put the line on a broad pedestal. The counts for each left row are

    counts = f (delta + h) * u * g + b,

with the share f of left rows that have a partner, the distribution g that is sought, the density h of further left rows
about a left row (their own pair differences, above what is even), the granularity u of the left times, and what is
even, b. Solved by expectation maximisation for Poisson counts (Richardson 1972, Lucy 1974, Shepp and Vardi 1982), from
the normal distribution of the fit, or from a sum of normal distributions, fitted in the same way, if that predicts
other stretches of time clearly better. It ends at the step where these, which were held out, are predicted best.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from whenabouts.core.arrays.typing import FloatArray, IntArray
from whenabouts.core.clocks.line_fit import PAIRS_AT_ONCE
from whenabouts.core.clocks.pair_images import Streams, in_pieces

CELLS = 161
REACH = 15.0
"""Deviations to either side of the line."""

SUPPORT = 0.6
"""The part of the window outside which no delay lies."""

STRETCHES = 64
"""Stretches of time; odd and even ones predict each other."""

ROUNDS = 200
WINGS = 0.2
"""The part of the window, half on either side, from which what is even is taken at first."""

HUMPS = ((0.5, 4), (1.0, 3), (2.0, 3), (4.0, 2))
"""Widths of the normal distributions of the first fit, in deviations, and how many widths to either side they lie."""

EVEN_PART = 0.01
"""The even part with which each fit to cells begins, so that anything can grow."""

CLEARLY = 6.0
"""By how much the sum of normal distributions must predict better than a single one."""


@dataclass(frozen=True, slots=True)
class DelayShape:
    """The distribution of the delays: its `masses` between `edges`, microseconds from the line, with sum 1.

    `pairs`: how many true pairs there are; `share`: of left rows, with its standard error; `chance`: pairs by chance
    for each microsecond of difference at the line, pedestal included; `effective`: the number of pairs without any
    chance that would tell as much.
    """

    edges: FloatArray
    masses: FloatArray
    pairs: float
    share: float
    share_error: float
    chance: float
    effective: float

    def quantile(self, shares: FloatArray) -> FloatArray:
        """The distances below which these shares lie."""
        below = np.concatenate([[0.0], np.cumsum(self.masses)])
        return np.asarray(np.interp(np.asarray(shares) * below[-1], below, self.edges))


def differences(
    left: FloatArray | IntArray, right: FloatArray | IntArray, low: float, high: float
) -> Iterator[tuple[IntArray, Any]]:
    """All differences right - left from `low` to below `high` of two sorted arrays, with the number of the left row,
    some hundred thousand at once.

    >>> near = differences(np.array([0, 10]), np.array([3, 11]), 0, 10)
    >>> [[part.tolist() for part in each] for each in near]
    [[[0, 1], [3, 1]]]
    """
    first = np.searchsorted(right, left + low)
    many = np.searchsorted(right, left + high) - first
    for some, partner in in_pieces(first, many, PAIRS_AT_ONCE):
        rows = np.repeat(np.arange(some.start, some.stop), many[some])
        yield rows, right[partner] - left[rows]


def delay_shape(
    streams: Streams, span_us: int, offset_us: float, drift: float, jitter_us: float, left_tick_us: int = 1
) -> DelayShape:
    """The distribution about a fitted line; times are sorted microseconds since the first left row.

    `offset_us` holds in the middle of the span; `jitter_us` is the deviation of the fit, `left_tick_us` the granularity
    to which left times were cut, 1 if it is fine. Cost: the pairs within 15 deviations, and some 1,200 products with a
    matrix of 161 x 98.
    """
    half = REACH * max(jitter_us, left_tick_us / 2, 1.0)
    cell = 2 * half / CELLS
    straight = [(left + offset_us + drift * (left - span_us / 2), right) for left, right in streams]
    counts = np.zeros((STRETCHES, CELLS))
    own = np.zeros(2 * CELLS + 1)
    rows = 0
    for (moved, right), (left, _) in zip(straight, streams, strict=True):
        stretch = np.clip(left * STRETCHES // max(span_us, 1), 0, STRETCHES - 1).astype(np.int64)
        for at, distance in differences(moved, right, -half, half):
            column = np.clip(((distance + half) / cell).astype(np.int64), 0, CELLS - 1)
            counts += np.bincount(stretch[at] * CELLS + column, minlength=counts.size).reshape(counts.shape)
        for _, near in differences(moved, moved, -(CELLS + 0.5) * cell, (CELLS + 0.5) * cell):
            lag = np.clip(np.floor(near / cell + CELLS + 0.5).astype(np.int64), 0, 2 * CELLS)
            own += np.bincount(lag, minlength=len(own))
        rows += len(left)
    own[CELLS] = max(own[CELLS] - rows, 0.0)
    around = (own + own[::-1]) / 2 / max(rows, 1)
    wing = round(WINGS * len(around) / 2)
    around = np.maximum(around - (around[:wing].mean() + around[-wing:].mean()) / 2, 0.0)
    around[CELLS] += 1.0
    kernel = _cut_to(left_tick_us / cell, around)
    inner = round((1 - SUPPORT) / 2 * CELLS)
    causes = np.arange(inner, CELLS - inner)
    design = np.empty((CELLS, len(causes) + 1))
    design[:, :-1] = kernel[np.arange(CELLS)[:, None] - causes[None, :] + CELLS]
    design[:, -1] = 1.0
    middles = (causes + 0.5) * cell - half
    humps = _humps(middles, jitter_us)
    smooth = np.column_stack([design[:, :-1] @ humps, design[:, -1]])
    first = np.where(np.arange(humps.shape[1]) == 0, 0.5, 0.5 / (humps.shape[1] - 1))
    normal = humps[:, 0]
    fits = []
    for start in (normal, humps @ _best(counts, smooth, first)[1][:-1]):
        start = (1 - EVEN_PART) * start / max(float(start.sum()), 1e-300) + EVEN_PART / len(start)
        fits.append(_best(counts, design, start))
    weights = fits[int(fits[1][0] < fits[0][0] - CLEARLY)][1]
    found = weights[:-1]
    pairs = float(found.sum())
    predicted = design @ weights
    supported = predicted[inner : CELLS - inner]
    middle = predicted[CELLS // 2 - 8 : CELLS // 2 + 9] - found[CELLS // 2 - inner - 8 : CELLS // 2 - inner + 9]
    chance_in_support = max(float(supported.sum()) - pairs, 0.0)
    return DelayShape(
        edges=np.append(causes, causes[-1] + 1) * cell - half,
        masses=found / max(pairs, 1e-300),
        pairs=pairs,
        share=pairs / max(rows, 1),
        share_error=_share_error(counts, design, weights) / max(rows, 1),
        chance=max(float(middle.mean()), 0.0) / cell,
        effective=pairs**2 / max(pairs + chance_in_support, 1e-300),
    )


def _cut_to(cells: float, around: FloatArray) -> FloatArray:
    """The kernel blurred by left times that were cut to so many cells, right - left then being too great by a part of
    them."""
    if cells < 1:
        return around
    ends = np.arange(math.ceil(cells) + 1)
    part = np.diff(np.minimum(ends, cells)) / cells
    return np.convolve(around, part)[: len(around)]


def _steps(counts: FloatArray, design: FloatArray, start: FloatArray, rounds: int) -> list[FloatArray]:
    """The weights after each round; the last one is that of what is even."""
    total = float(counts.sum())
    edge = max(round(WINGS / 2 * len(counts)), 1)
    even = float(counts[:edge].mean() + counts[-edge:].mean()) / 2
    first = max(total - even * len(counts), 0.01 * total, 1e-9)
    weights = np.append(start * first, max(even, 1e-9))
    norm = design.sum(axis=0)
    found = []
    for _ in range(rounds):
        ratio = counts / np.maximum(design @ weights, 1e-300)
        weights = weights * (design.T @ ratio) / norm
        found.append(weights)
    return found


def _best(counts: FloatArray, design: FloatArray, start: FloatArray) -> tuple[float, FloatArray]:
    """The weights after that number of rounds after which odd stretches of time predict even ones best, and these
    those; before them, how well they do (minus the log likelihood)."""
    deviance = np.zeros(ROUNDS)
    halves = counts[0::2].sum(axis=0), counts[1::2].sum(axis=0)
    for seen, other in (halves, halves[::-1]):
        scale = float(other.sum()) / max(float(seen.sum()), 1.0)
        for number, weights in enumerate(_steps(seen, design, start, ROUNDS)):
            expected = np.maximum(design @ weights * scale, 1e-300)
            deviance[number] += float((expected - other * np.log(expected)).sum())
    rounds = int(np.argmin(deviance)) + 1
    return float(deviance.min()), _steps(counts.sum(axis=0), design, start, rounds)[-1]


def _humps(middles: FloatArray, jitter_us: float) -> FloatArray:
    """Normal distributions of several widths and places, the one of the fit first: smooth delays are sums of these."""
    places = [(1.0, 0.0)] + [
        (width, place * width)
        for width, most in HUMPS
        for place in range(-most, most + 1)
        if (width, place) != (1.0, 0)
    ]
    rest = np.array([(middles / jitter_us - place) / width for width, place in places])
    found = np.exp(-0.5 * rest**2)
    return np.asarray((found / np.maximum(found.sum(axis=1, keepdims=True), 1e-300)).T)


def _share_error(counts: FloatArray, design: FloatArray, weights: FloatArray) -> float:
    """The standard error of the number of pairs, its shape held: by the sandwich over stretches of time."""
    shape = design[:, :-1] @ weights[:-1]
    pairs = float(weights[:-1].sum())
    both = np.stack([shape / max(pairs, 1e-300), design[:, -1]], axis=1)
    expected = np.maximum(design @ weights, 1e-300)
    whole = counts.sum(axis=0)
    bread = (both * (whole / expected**2)[:, None]).T @ both
    by_stretch = counts.sum(axis=1, keepdims=True) / max(float(whole.sum()), 1.0)
    pull = ((counts - expected * by_stretch) / expected) @ both
    free = (whole / expected).sum()
    inverse = np.linalg.pinv(bread)
    found = inverse @ (pull.T @ pull) @ inverse
    return math.sqrt(max(float(found[0, 0]) + pairs * (free >= 0), 0.0))

"""How right - left is distributed about the line of two clocks, without knowing which pairs are true.

The pairs about the line are counted by their distance from it. A true pair (i, j) also brings the pairs of j with the
neighbours of i, so that bursts put the line on a broad pedestal. The counts for each left row are

    counts = f (delta + h) * g + b,

with the share f of left rows that have a partner, the distribution g that is sought, the density h of further left rows
about a left row (their own pair differences, above what is even), and what is even, b. Solved by expectation
maximisation for Poisson counts (Richardson 1972, Lucy 1974, Shepp and Vardi 1982), from the normal distribution of the
fit, or from a sum of normal distributions, fitted in the same way, if that predicts other stretches of time clearly
better. It ends at the step where these, which were held out, are predicted best. That blurs sharp edges; so blocks of
constant rate (`delay_blocks`) are mixed with it, again as held-out stretches are predicted best, and what is left of
the start in the lowest moments is taken out (`delay_tilt`).

Weights are never below zero, so that the fit takes pairs by chance for rare long delays wherever it may. It is repeated
within the part of the window in which pairs show in blocks.

Times are those that are read: where they were cut, g holds the granularities of both sides. To take them out would
say nothing more of a pair, since its probability depends on the sum of all that is uncertain, and blurs g.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from whenabouts.core.arrays.typing import FloatArray, IntArray
from whenabouts.core.clocks.delay_blocks import excess_in_blocks, share_of_second
from whenabouts.core.clocks.delay_tilt import tilted
from whenabouts.core.clocks.line_fit import PAIRS_AT_ONCE
from whenabouts.core.clocks.pair_images import Streams, in_pieces

CELLS = 161
REACH = 15.0
"""Deviations to either side of the line."""

SUPPORT = 0.6
"""The part of the window outside which no delay lies."""

FINE = 8
"""Fine cells in a cell. Smooth parts are fitted to cells, sharp ones to fine cells."""

MOST_WINDOWS, WIDER, SURELY = 4, 1.6, 12.0
"""The window is widened while there are pairs beyond those expected outside the support."""

MARGIN, MARGIN_OF_FEW = 0.25, 10.0
"""What is added on either side of the stretch in which pairs show in blocks, as a part of it: at least `MARGIN`, and
`MARGIN_OF_FEW / sqrt(effective pairs)`, since the ends of few pairs make no block."""

STRETCHES = 64
"""Stretches of time; odd and even ones predict each other."""

ROUNDS = 200
WINGS = 0.2
"""The part of the window, half on either side, from which what is even is taken at first."""

HUMPS = ((0.25, 6), (0.5, 4), (1.0, 3), (2.0, 2), (4.0, 0))
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


def delay_shape(streams: Streams, span_us: int, offset_us: float, drift: float, jitter_us: float) -> DelayShape:
    """The distribution about a fitted line; times are sorted microseconds since the first left row.

    `offset_us` holds in the middle of the span; `jitter_us` is the deviation of the fit. Cost: the pairs within 15
    deviations (up to 60, if there are more than even ones so far away), and some 1,200 products with a matrix of
    161 x 98.
    """
    half = REACH * max(jitter_us, 1.0)
    for _ in range(MOST_WINDOWS):
        near = _Near.of(streams, span_us, offset_us, drift, half)
        widest = round((1 - SUPPORT) / 2 * CELLS)
        first = _solved(near, jitter_us, slice(widest, CELLS - widest))
        if not first.outside:
            break
        half *= WIDER
    support = first.narrower()
    return first.shape if support is None else _solved(near, jitter_us, support).shape


@dataclass(frozen=True, slots=True)
class _Near:
    """Pairs within `half` microseconds of the line, by stretch of time and fine cell, and how many further left rows
    there are about a left row, beyond what is even, by coarse cell; `rows` on the left."""

    half: float
    counts: FloatArray
    around: FloatArray
    rows: int

    @staticmethod
    def of(streams: Streams, span_us: int, offset_us: float, drift: float, half: float) -> _Near:
        cell = 2 * half / CELLS
        fine = CELLS * FINE
        counts = np.zeros((STRETCHES, fine))
        own = np.zeros(2 * CELLS + 1)
        rows = 0
        for left, right in streams:
            moved = left + offset_us + drift * (left - span_us / 2)
            stretch = np.clip(left * STRETCHES // max(span_us, 1), 0, STRETCHES - 1).astype(np.int64)
            for at, distance in differences(moved, right, -half, half):
                column = np.clip(((distance + half) / cell * FINE).astype(np.int64), 0, fine - 1)
                counts += np.bincount(stretch[at] * fine + column, minlength=counts.size).reshape(counts.shape)
            for _, near in differences(moved, moved, -(CELLS + 0.5) * cell, (CELLS + 0.5) * cell):
                lag = np.clip(np.floor(near / cell + CELLS + 0.5).astype(np.int64), 0, 2 * CELLS)
                own += np.bincount(lag, minlength=len(own))
            rows += len(left)
        own[CELLS] = max(own[CELLS] - rows, 0.0)
        around = (own + own[::-1]) / 2 / max(rows, 1)
        wing = round(WINGS * len(around) / 2)
        around = np.maximum(around - (around[:wing].mean() + around[-wing:].mean()) / 2, 0.0)
        around[CELLS] += 1.0
        return _Near(half, counts, around, rows)


@dataclass(frozen=True, slots=True)
class _Solved:
    """The shape of delays within a `support` of cells; whether there are more pairs `outside` it than expected, and the
    excess in blocks of constant rate in its fine cells."""

    shape: DelayShape
    outside: bool
    support: slice
    blocks: FloatArray

    def narrower(self) -> slice | None:
        """The support that blocks of pairs show, with a margin; None if they show no other."""
        found = np.flatnonzero(self.blocks)
        if not len(found):
            return None
        first, last = found[0] // FINE, found[-1] // FINE + 1
        part = max(MARGIN, MARGIN_OF_FEW / math.sqrt(max(self.shape.effective, 1.0)))
        margin = math.ceil(part * (last - first))
        start, stop = self.support.start, self.support.stop
        narrow = slice(max(start, start + int(first) - margin), min(stop, start + int(last) + margin))
        return None if narrow == self.support else narrow


def _solved(near: _Near, jitter_us: float, support: slice) -> _Solved:
    half, rows = near.half, near.rows
    cell = 2 * half / CELLS
    counts = near.counts.reshape(STRETCHES, CELLS, FINE).sum(axis=2)
    causes = np.arange(support.start, support.stop)
    design = np.empty((CELLS, len(causes) + 1))
    design[:, :-1] = near.around[np.arange(CELLS)[:, None] - causes[None, :] + CELLS]
    design[:, -1] = 1.0
    middles = (causes + 0.5) * cell - half
    humps = _humps(middles, jitter_us)
    smooth = np.column_stack([design[:, :-1] @ humps, design[:, -1]])
    first = np.where(np.arange(humps.shape[1]) == 0, 0.5, 0.5 / (humps.shape[1] - 1))
    normal = humps[:, 0]
    fits = []
    for start in (normal, humps @ _best(counts, smooth, first).weights[:-1]):
        start = (1 - EVEN_PART) * start / max(float(start.sum()), 1e-300) + EVEN_PART / len(start)
        fits.append(_best(counts, design, start))
    fit = fits[int(fits[1].deviance < fits[0].deviance - CLEARLY)]
    weights = fit.weights
    found = weights[:-1]
    pairs = float(found.sum())
    predicted = design @ weights
    beside = predicted.copy()
    beside[support] -= found
    middle = beside[CELLS // 2 - 8 : CELLS // 2 + 9]
    chance_in_support = float(beside[support].sum())
    whole = counts.sum(axis=0)
    beyond = slice(0, support.start), slice(support.stop, CELLS)
    masses, blocks = _sharpened(near.counts, beside, fit, support)
    outside = any(excess_in_blocks(whole[part], predicted[part], SURELY).any() for part in beyond)
    shape = DelayShape(
        edges=np.linspace(support.start, support.stop, len(causes) * FINE + 1) * cell - half,
        masses=masses,
        pairs=pairs,
        share=min(pairs / max(rows, 1), 1.0),
        share_error=_share_error(counts, design, weights) / max(rows, 1),
        chance=max(float(middle.mean()), 0.0) / cell,
        effective=pairs**2 / max(pairs + chance_in_support, 1e-300),
    )
    return _Solved(shape, outside, support, blocks)


def _sharpened(counts: FloatArray, beside: FloatArray, fit: _Fit, support: slice) -> tuple[FloatArray, FloatArray]:
    """The masses in fine cells: the smooth fit, and blocks above what is `beside` the delay, as they predict best. And
    these blocks."""
    at = (np.arange(CELLS * FINE) + 0.5) / FINE - 0.5
    fine = slice(support.start * FINE, support.stop * FINE)
    even = np.maximum(np.interp(at, np.arange(CELLS), beside) / FINE, 1e-9)[fine]
    seen = [counts[start::2, fine].sum(axis=0) for start in (0, 1)]
    smooth = [np.repeat(weights[:-1], FINE) / FINE for weights in (*fit.halves, fit.weights)]
    blocks = [excess_in_blocks(part, even / 2) for part in seen]
    halves = list(zip(smooth, blocks, strict=False))
    share = share_of_second(halves, seen[::-1], even)
    both = [smooth[-1], excess_in_blocks(seen[0] + seen[1], even)]
    masses = [each / max(float(each.sum()), 1e-300) for each in both]
    found = (1 - share) * masses[0] + share * masses[1]
    found = np.asarray(found / max(float(found.sum()), 1e-300))
    return tilted(found, seen[0] + seen[1], even, float(fit.weights[:-1].sum())), both[1]


@dataclass(frozen=True, slots=True)
class _Fit:
    """Weights of a fit to all, and to odd and even stretches of time; how well these predict each other (minus the log
    likelihood)."""

    deviance: float
    weights: FloatArray
    halves: tuple[FloatArray, FloatArray]


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


def _best(counts: FloatArray, design: FloatArray, start: FloatArray) -> _Fit:
    """The weights after that number of rounds after which odd stretches of time predict even ones best, and these
    those."""
    deviance = np.zeros(ROUNDS)
    halves = counts[0::2].sum(axis=0), counts[1::2].sum(axis=0)
    steps = []
    for seen, other in (halves, halves[::-1]):
        scale = float(other.sum()) / max(float(seen.sum()), 1.0)
        steps.append(_steps(seen, design, start, ROUNDS))
        for number, weights in enumerate(steps[-1]):
            expected = np.maximum(design @ weights * scale, 1e-300)
            deviance[number] += float((expected - other * np.log(expected)).sum())
    best = int(np.argmin(deviance))
    whole = _steps(counts.sum(axis=0), design, start, best + 1)[-1]
    return _Fit(float(deviance.min()), whole, (steps[0][best], steps[1][best]))


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
    if weights[-1] * CELLS < 1:  # less than a pair by chance: at the bound of zero, and as good as known
        both = both[:, :1]
    expected = np.maximum(design @ weights, 1e-300)
    whole = counts.sum(axis=0)
    score = both / expected[:, None]
    bread = (score * whole[:, None]).T @ score
    by_stretch = counts.sum(axis=1, keepdims=True) / max(float(whole.sum()), 1.0)
    pull = (counts - expected * by_stretch) @ score
    free = (whole / expected).sum()
    inverse = np.linalg.pinv(bread)
    found = inverse @ (pull.T @ pull) @ inverse
    return math.sqrt(max(float(found[0, 0]) + pairs * (free >= 0), 0.0))

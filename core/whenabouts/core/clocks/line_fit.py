"""From a line that is known to within a cell to offset, drift and jitter with standard errors.

**Zoom.** In a window about the line each pair weighs 1 / max(k, l), where k and l are the candidates of its left and of
its right event: a burst of k x l pairs has no more weight than its events. Among all lines and all widths of a box the
one is taken that exceeds its flanks most; only lines whose flanks lie inside the window count, or its edges would win.
The window shrinks until the box fills a good part of it.

**Fit.** A normal distribution about a line upon an even background, by expectation maximisation (Dempster, Laird and
Rubin 1977) on the weighted image, twice: the second time in a window by the first one's deviation. Standard errors are
those of the sandwich over rows of time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from whenabouts.core.arrays.typing import FloatArray, IntArray
from whenabouts.core.clocks.line_sums import line_sums
from whenabouts.core.clocks.pair_images import Streams, in_pieces

ROWS = 64
ZOOM_CELLS, FIT_CELLS = 512, 768
BOXES = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
WIDE_ENOUGH = 12
HALF_WINDOW_CELLS = 8
"""Half the first window, in cells of the search."""
WINDOW_BOXES = 4
WINDOW_DEVIATIONS = 12.0
BOX_DEVIATIONS = 2.8
"""The width of the box that stands out most from an even background, in standard deviations."""
MOST_PEAKS = 4
PEAK_GAIN = 20.0
PEAK_NARROWER = 5.0
PEAK_SHARE = 0.2
"""A peak on a hill must raise the log likelihood by 20, be five times narrower, and hold a fifth of both."""

PAIRS_AT_ONCE = 1 << 17
"""So many pairs stay in the cache of a core while they are weighed."""

ROUNDS = 500
STILL = 1e-5
"""Rounds end when nothing moves by more than this share of the deviation."""


@dataclass(frozen=True, slots=True)
class Strip:
    """A window of `half_us` to either side of the line `right - left = offset + drift (left - middle)`, and about how
    much pairs deviate from it."""

    offset_us: float
    drift: float
    half_us: float
    deviation_us: float


@dataclass(frozen=True, slots=True)
class FittedLine:
    """Offset in the middle of the left span, drift (dimensionless), the deviation of single pairs, and `pairs`, the
    weight of those beyond the background. `covariance`: of offset and drift."""

    offset_us: float
    drift: float
    jitter_us: float
    pairs: float
    covariance: tuple[tuple[float, float], tuple[float, float]]


@dataclass(frozen=True, slots=True)
class _Image:
    """Weights by row of time and distance from the line; the middles of rows (from -0.5 to 0.5) and of cells."""

    weights: FloatArray
    at: FloatArray
    distance: FloatArray


def fit(streams: Streams, span_us: int, offset_us: float, drift: float, cell_us: float) -> FittedLine:
    """Refine a line of the search; times are sorted microseconds since the first left row.

    Raises ValueError where no weight is left in the window, which a line of the search never leaves empty. Cost: the
    pairs within 8 cells of the line, three to eight times.
    """
    strip = zoom(streams, span_us, Strip(offset_us, drift, HALF_WINDOW_CELLS * cell_us, cell_us))
    for _ in range(MOST_PEAKS):
        first = _expectation_maximisation(_image(streams, span_us, strip, FIT_CELLS), strip, span_us)
        half = min(WINDOW_DEVIATIONS * first.jitter_us, strip.half_us * 2)
        strip = Strip(first.offset_us, first.drift, max(half, FIT_CELLS / 16), first.jitter_us)
        image = _image(streams, span_us, strip, FIT_CELLS)
        peak = narrow_peak(image.weights.sum(axis=0), image.distance, first.jitter_us)
        if peak is None:
            break
        middle, deviation = peak
        half = max(WINDOW_DEVIATIONS * deviation, FIT_CELLS / 16)
        strip = Strip(strip.offset_us + middle, strip.drift, half, deviation)
    return _expectation_maximisation(_image(streams, span_us, strip, FIT_CELLS), strip, span_us)


def narrow_peak(weights: FloatArray, distance: FloatArray, deviation: float) -> tuple[float, float] | None:
    """The middle and the deviation of a peak on a broad hill, None if one normal distribution fits as well.

    Neighbours of partners in bursts, or a second kind of partners some time later, make such hills: the clock is the
    peak. Two normal distributions and what is even are fitted by expectation maximisation and compared with one.

    >>> x = np.arange(-500.0, 500.0)
    >>> hill = np.exp(-0.5 * ((x - 80) / 100) ** 2)
    >>> peak = narrow_peak(5 * hill + 20 * np.exp(-0.5 * (x / 8) ** 2), x, 100.0)
    >>> [round(value) for value in peak], narrow_peak(5 * hill, x, 100.0)
    ([0, 8], None)
    """
    cell = float(distance[1] - distance[0])
    width = max(round(deviation / (2 * PEAK_NARROWER) / cell), 1)
    top = float(distance[int(np.argmax(np.convolve(weights, np.ones(2 * width + 1), "same")))])
    one, _ = _normals(weights, distance, [(0.0, deviation)])
    two, parts = _normals(weights, distance, [(top, deviation / (2 * PEAK_NARROWER)), (0.0, deviation)])
    (middle, narrow, mass), (_, broad, hill) = parts
    if two - one < PEAK_GAIN or narrow * PEAK_NARROWER > min(deviation, broad) or mass < PEAK_SHARE * (mass + hill):
        return None
    return middle, max(narrow, cell / 2)


def _normals(
    weights: FloatArray, distance: FloatArray, starts: list[tuple[float, float]]
) -> tuple[float, list[tuple[float, float, float]]]:
    """The log likelihood of normal distributions upon what is even, and middle, deviation and mass of each."""
    cell = float(distance[1] - distance[0])
    width = cell * len(distance)
    total = float(weights.sum())
    middles, deviations = (np.array(part, float)[:, None] for part in zip(*starts, strict=True))
    shares = np.full((len(starts), 1), 0.6 / len(starts))
    likelihood = -math.inf
    for _ in range(ROUNDS):
        rest = (distance - middles) / deviations
        density = shares * np.exp(-0.5 * rest**2) / (deviations * math.sqrt(2 * math.pi))
        whole = density.sum(axis=0) + (1 - float(shares.sum())) / width
        before, likelihood = likelihood, float((weights * np.log(whole)).sum())
        if likelihood - before < STILL:
            break
        own = weights * density / whole
        mass = np.maximum(own.sum(axis=1, keepdims=True), 1e-12)
        middles = (own * distance).sum(axis=1, keepdims=True) / mass
        spread = (own * (distance - middles) ** 2).sum(axis=1, keepdims=True) / mass - cell**2 / 12
        deviations = np.sqrt(np.maximum(spread, (cell / 4) ** 2))
        shares = mass / total * (1 - 1e-6)
    found = np.concatenate([middles, deviations, shares * total], axis=1)
    return likelihood, [(float(a), float(b), float(c)) for a, b, c in found]


def zoom(streams: Streams, span_us: int, strip: Strip) -> Strip:
    """A window about the best line whose box is a good part of it."""
    while True:
        image = _image(streams, span_us, strip, ZOOM_CELLS)
        first, last, box = _best_box(image.weights)
        cell = 2 * strip.half_us / ZOOM_CELLS
        middle = (first + last) / 2 + 0.5 - ZOOM_CELLS / 2
        rise = (last - first) / (ROWS - 1) * ROWS * cell / span_us
        half = max(WINDOW_BOXES * box * cell, ZOOM_CELLS / 16)
        done = box >= WIDE_ENOUGH or half >= strip.half_us
        offset, drift = strip.offset_us + middle * cell, strip.drift + rise
        strip = Strip(offset, drift, min(half, strip.half_us), box * cell / BOX_DEVIATIONS)
        if done:
            return strip


def weighted_pairs(
    left: IntArray, right: IntArray, span_us: int, strip: Strip
) -> Iterator[tuple[IntArray, FloatArray, FloatArray]]:
    """The pairs in a strip, some hundred thousand at once: the number of the left row, the distance from the line, and
    the weight.

    >>> near = Strip(0.0, 0.0, 10.0, 1.0)
    >>> pairs = weighted_pairs(np.array([100, 200]), np.array([95, 105, 203]), 1000, near)
    >>> [(rows.tolist(), distance.tolist(), weight.tolist()) for rows, distance, weight in pairs]
    [([0, 0, 1], [-5.0, 5.0, 3.0], [0.5, 0.5, 1.0])]
    """
    expected = left + strip.offset_us + strip.drift * (left - span_us / 2)
    first = np.searchsorted(right, expected - strip.half_us)
    many = np.searchsorted(right, expected + strip.half_us) - first
    # Each left row is a candidate of the right rows from its first to its last.
    ends = np.bincount(first + many, minlength=len(right) + 1)
    of_partner = np.cumsum(np.bincount(first, minlength=len(right) + 1) - ends)
    for some, partner in in_pieces(first, many, PAIRS_AT_ONCE):
        rows = np.repeat(np.arange(some.start, some.stop), many[some])
        weight = 1 / np.maximum(many[rows], of_partner[partner])
        yield rows, right[partner] - expected[rows], weight


def _image(streams: Streams, span_us: int, strip: Strip, cells: int) -> _Image:
    weights = np.zeros(ROWS * cells)
    for left, right in streams:
        base = np.clip(left * ROWS // max(span_us, 1), 0, ROWS - 1).astype(np.int64) * cells
        for rows, distance, weight in weighted_pairs(left, right, span_us, strip):
            column = np.clip(((distance / strip.half_us + 1) / 2 * cells).astype(np.int64), 0, cells - 1)
            weights += np.bincount(base[rows] + column, weight, minlength=len(weights))
    at = (np.arange(ROWS) + 0.5) / ROWS - 0.5
    middles = ((np.arange(cells) + 0.5) / cells * 2 - 1) * strip.half_us
    return _Image(weights.reshape(ROWS, cells), at, middles)


def _best_box(weights: FloatArray) -> tuple[int, int, int]:
    """The first and the last column of the best line, and the width of its box."""
    width = weights.shape[1]
    best, found = -math.inf, (width // 2, width // 2, BOXES[-1])
    for falling in (False, True):
        sums = line_sums(weights[:, ::-1] if falling else weights, ROWS - 1)
        totals = np.concatenate([np.zeros((ROWS, 1)), np.cumsum(sums, axis=1)], axis=1)
        for box in BOXES:
            # A box from column c on, and a flank as wide on either side, with half a box between.
            gap, last = box // 2, width - ROWS - 2 * box - box // 2 + 1
            column = np.arange(box + gap, last)
            inside = totals[:, column + box] - totals[:, column]
            flanks = totals[:, column - gap] - totals[:, column - gap - box]
            flanks = flanks + totals[:, column + 2 * box + gap] - totals[:, column + box + gap]
            contrast = (inside - flanks / 2) / np.sqrt(1 + 1.5 * flanks / 2)
            rise, at = np.unravel_index(int(np.argmax(contrast)), contrast.shape)
            if contrast[rise, at] > best:
                best = float(contrast[rise, at])
                first = int(column[at]) + box // 2
                ends = first, first + int(rise)
                found = (width - 1 - ends[0], width - 1 - ends[1], box) if falling else (*ends, box)
    return found


def _expectation_maximisation(image: _Image, strip: Strip, span_us: int) -> FittedLine:
    weights, at, distance = image.weights, image.at[:, None], image.distance[None, :]
    total = float(weights.sum())
    if total <= 0:
        raise ValueError("no pair lies in the window")
    cell = 2 * strip.half_us / weights.shape[1]
    deviation = strip.deviation_us
    offset, slope, share = 0.0, 0.0, _first_share(image, strip)
    for _ in range(ROUNDS):
        before = offset, slope, deviation
        rest = distance - offset - slope * at
        density = share * np.exp(-0.5 * (rest / deviation) ** 2) / (deviation * math.sqrt(2 * math.pi))
        own = weights * (density / (density + (1 - share) / (2 * strip.half_us)))
        mass = float(own.sum())
        if mass <= 0:
            break
        one, two = float((own * at).sum()), float((own * at * at).sum())
        up, across = float((own * distance).sum()), float((own * distance * at).sum())
        determinant = mass * two - one * one
        if determinant > 1e-9 * mass * mass:
            offset, slope = (two * up - one * across) / determinant, (mass * across - one * up) / determinant
        else:
            offset, slope = up / mass, 0.0
        rest = distance - offset - slope * at
        # Cells blur distances by their own width.
        deviation = math.sqrt(max(float((own * rest**2).sum()) / mass - cell**2 / 12, (cell / 4) ** 2))
        share = min(max(mass / total, 1e-6), 1 - 1e-6)
        moved = (abs(a - b) for a, b in zip((offset, slope, deviation), before, strict=True))
        if max(moved) < STILL * deviation:
            break
    return FittedLine(
        offset_us=strip.offset_us + offset,
        drift=strip.drift + slope / span_us,
        jitter_us=deviation,
        pairs=mass,
        covariance=_covariance(weights, at, distance - offset - slope * at, deviation, share, strip.half_us, span_us),
    )


def _first_share(image: _Image, strip: Strip) -> float:
    """The share of the weight that is near the line beyond what is as near to nothing."""
    near = np.abs(image.distance) < 1.5 * strip.deviation_us
    total, width = float(image.weights.sum()), float(np.mean(near))
    inside = float(image.weights[:, near].sum())
    return min(max((inside - width * total) / max((1 - width) * total, 1e-9), 0.01), 0.99)


def _covariance(
    weights: FloatArray, at: FloatArray, rest: FloatArray, deviation: float, share: float, half: float, span_us: int
) -> tuple[tuple[float, float], tuple[float, float]]:
    """The sandwich over rows of time, for the likelihood of the mixture at its maximum."""
    density = share * np.exp(-0.5 * (rest / deviation) ** 2) / (deviation * math.sqrt(2 * math.pi))
    own = density / (density + (1 - share) / (2 * half))
    score = own * rest / deviation**2
    # minus the derivative of the score by the offset
    bend = own / deviation**2 - own * (1 - own) * (rest / deviation**2) ** 2
    bread = np.zeros((2, 2))
    meat = np.zeros((2, 2))
    for row in range(len(weights)):
        design = np.array([1.0, float(at[row, 0])])
        bread += float((weights[row] * bend[row]).sum()) * np.outer(design, design)
        pull = float((weights[row] * score[row]).sum()) * design
        meat += np.outer(pull, pull)
    inverse = np.linalg.pinv(bread)
    found = inverse @ meat @ inverse * ROWS / (ROWS - 2)
    return (
        (float(found[0, 0]), float(found[0, 1]) / span_us),
        (float(found[1, 0]) / span_us, float(found[1, 1]) / span_us**2),
    )

"""Is the line of two clocks the only one, and is it straight? Checks of a fitted line before it is believed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from whenabouts.core.arrays.typing import FloatArray, IntArray
from whenabouts.core.clocks.calibration import chi_square_tail
from whenabouts.core.clocks.line_fit import ROWS, FittedLine, Strip, weighted_pairs
from whenabouts.core.clocks.line_significance import chance_of, hollow_background
from whenabouts.core.clocks.pair_images import Streams, Window, image_of

SEGMENTS = 64
MOST_CELLS = 1 << 24
APART = 10
"""Cells between two peaks, each of about a deviation."""

PEAK_DEVIATIONS = 6.5
PEAK_SHARE = 0.5
DIFFERENT = 4.0
"""What makes another offset as good: its height above the curve's noise, its share of the best, and a paired difference
over segments that is below 4 standard errors."""

MOST_ALIASES = 1000

NEAR = 3.0
BLOCKS = 8
LEAST_WEIGHT = 3.0
LEAST_PAIRS = 30.0
UNEVEN = 3.0
UNEVEN_BELOW = 1e-6
"""A line is not straight if chi-square is thrice its degrees of freedom, with a p-value below this."""

FINEST_US = 1.0
"""Times are whole microseconds: what is less is no deviation of a clock."""

KNOT_ROWS = 4


@dataclass(frozen=True, slots=True)
class Aliases:
    """Offsets that are as good as the one found, as distances from it in microseconds, the best first. `modulo_us`:
    the period if they are multiples of one, otherwise None. `higher`: a clearly better one, None if there is none.
    `second`: the best of those that are less good but stand out, and the probability of chance for it."""

    distances: tuple[int, ...]
    modulo_us: float | None
    higher: int | None
    second: tuple[int, float] | None = None


@dataclass(frozen=True, slots=True)
class Wander:
    """How a clock leaves its line. `deviation_us`: standard deviation of the means of 64 stretches beyond chance, 0 if
    chance explains them or they are less than a microsecond; `knot`: the part of the span at which one step or kink
    explains them, otherwise None."""

    deviation_us: float
    knot: float | None


def aliases(streams: Streams, span_us: int, line: FittedLine, jitter_us: float, max_offset_us: int) -> Aliases:
    """Other offsets within `max_offset_us` with the same drift; times are sorted microseconds since the first left row.

    Cost: the pairs within the greatest offset, or 64 Fourier transforms, whichever is cheaper.
    """
    cell = max(jitter_us, 2 * max_offset_us * SEGMENTS / MOST_CELLS, span_us / MOST_CELLS, 1.0)
    moved = [(left + line.offset_us + line.drift * (left - span_us / 2), right) for left, right in streams]
    start = min(float(left[0]) for left, _ in moved)
    cells = [(_cells(left - start, cell), _cells(right - start, cell)) for left, right in moved]
    reach = math.ceil(max_offset_us / cell) + APART
    per_segment = int(max(int(left[-1]) for left, _ in cells) // SEGMENTS) + 1
    image = image_of(cells, Window(SEGMENTS, per_segment, -reach, 2 * reach + 1))
    image = image[:, :-1] + image[:, 1:]
    rows = np.bincount(np.concatenate([left for left, _ in cells]) // per_segment, minlength=SEGMENTS)
    expected = line.pairs * rows / max(rows.sum(), 1)
    most = 1.5 * expected + 3 * np.sqrt(expected) + 1
    votes = np.empty(image.shape)
    for row, counts in enumerate(image.astype(float)):
        votes[row] = np.clip(counts - hollow_background(counts), -most[row], most[row])
    exposure = _exposure(moved, (np.arange(image.shape[1]) - reach + 0.5) * cell)
    curve = votes.sum(axis=0) / np.maximum(exposure, 0.05)
    noise = max(float(np.median(np.abs(curve - np.median(curve)))) * 1.4826, math.sqrt(float(image.sum(axis=0).mean())))
    return _peaks(curve, votes, reach, cell, noise)


def _cells(times: FloatArray | IntArray, cell: float) -> IntArray:
    return np.asarray(np.floor(times / cell), np.int64)


def _exposure(moved: Streams, distances: FloatArray) -> FloatArray:
    """The share of left rows whose partner at such a distance would lie within the right span."""
    total = sum(len(left) for left, _ in moved)
    inside = np.zeros(len(distances))
    for left, right in moved:
        inside += np.searchsorted(left, right[-1] - distances) - np.searchsorted(left, right[0] - distances)
    return inside / max(total, 1)


def _peaks(curve: FloatArray, votes: FloatArray, middle: int, cell: float, noise: float) -> Aliases:
    top = middle - 2 + int(np.argmax(curve[middle - 2 : middle + 2]))
    found: list[int] = []
    higher = second = None
    least = PEAK_SHARE * curve[top]
    at = np.flatnonzero(curve >= PEAK_DEVIATIONS * noise)
    taken = [top]
    for column in at[np.argsort(-curve[at], kind="stable")]:
        if min(abs(int(column) - other) for other in taken) <= APART:
            continue
        if curve[column] < least:
            second = second or int(column)
            break
        taken.append(int(column))
        difference = votes[:, top] - votes[:, column]
        spread = math.sqrt(float((difference**2).sum()))
        pull = float(difference.sum()) / max(spread, 1e-9)
        if pull <= -DIFFERENT and higher is None:
            higher = round((int(column) - top) * cell)
        elif pull < DIFFERENT:
            found.append(int(column) - top)
        elif second is None:
            second = int(column)
        if len(found) >= MOST_ALIASES:
            break
    other = None
    if second is not None:
        # Its own chance: the rows without what belongs to the line that was found.
        rest = np.delete(votes, slice(max(top - APART, 0), top + APART + 1), axis=1)
        other = round((second - top) * cell), chance_of(float(votes[:, second].sum()), rest, float(rest.shape[1]))
    return Aliases(tuple(round(each * cell) for each in found), _period(found, cell), higher, other)


def _period(columns: list[int], cell: float) -> float | None:
    """The period of which all are multiples, if three or more are."""
    if len(columns) < 2:
        return None
    places = np.sort(np.array([0, *columns], float))
    period = float(np.median(np.diff(places)))
    times = np.rint(places / period)
    if len(set(times.tolist())) < len(times):
        return None
    period = float((times * places).sum() / (times**2).sum())
    return period * cell if np.abs(places - times * period).max() <= 2.0 else None


def wander(streams: Streams, span_us: int, line: FittedLine) -> Wander:
    """Whether pairs near the line keep to it in each of 64 stretches of time."""
    strip = Strip(line.offset_us, line.drift, NEAR * line.jitter_us, line.jitter_us)
    blocks = np.zeros((2, ROWS * BLOCKS))  # sums of weights, and of weighted distances
    for left, right in streams:
        block = np.clip((left * blocks.shape[1] // max(span_us, 1)).astype(np.int64), 0, blocks.shape[1] - 1)
        for rows, distance, weight in weighted_pairs(left, right, span_us, strip):
            for number, values in enumerate((weight, weight * distance)):
                blocks[number] += np.bincount(block[rows], values, minlength=blocks.shape[1])
    blocks = blocks.reshape(2, ROWS, BLOCKS)
    sums = blocks.sum(axis=2)
    enough = sums[0] >= LEAST_WEIGHT
    if int(enough.sum()) < 2 * KNOT_ROWS:
        return Wander(0.0, None)
    at = (np.flatnonzero(enough) + 0.5) / ROWS
    mean = sums[1, enough] / sums[0, enough]
    # The noise of a unit of weight, from parts of stretches: copies of rows, and bursts, are no further evidence.
    rest = blocks[1, enough] - mean[:, None] * blocks[0, enough]
    own = sums[0, enough] - (blocks[0, enough] ** 2).sum(axis=1) / sums[0, enough]
    noise = float((rest**2).sum()) / max(float(own.sum()), 1e-9)
    if float(own.sum()) < LEAST_PAIRS or noise <= 0:
        return Wander(0.0, None)
    variance = noise / sums[0, enough]
    straight = np.stack([np.ones(len(at)), at], axis=1)
    if not _uneven(*_misfit(straight, mean, variance)):
        return Wander(0.0, None)
    excess = float(np.average(mean**2 - variance, weights=1 / variance))
    if excess < FINEST_US**2:
        return Wander(0.0, None)
    knots = []
    for place in (at[KNOT_ROWS - 1 : -KNOT_ROWS] + at[KNOT_ROWS : 1 - KNOT_ROWS]) / 2:
        step, kink = (at > place).astype(float), np.maximum(at - place, 0.0)
        for bend in (step, kink):
            knots.append((*_misfit(np.column_stack([straight, bend]), mean, variance), float(place)))
    best = min(knots)
    return Wander(math.sqrt(excess), None if _uneven(*best[:2]) else best[2])


def _misfit(design: FloatArray, mean: FloatArray, variance: FloatArray) -> tuple[float, int]:
    """Chi-square about the weighted fit, and its degrees of freedom."""
    weight = 1 / np.sqrt(variance)
    fitted, *_ = np.linalg.lstsq(design * weight[:, None], mean * weight, rcond=None)
    rest = (mean - design @ fitted) * weight
    return float((rest**2).sum()), len(mean) - design.shape[1]


def _uneven(chi_square: float, freedom: int) -> bool:
    return chi_square > UNEVEN * freedom and chi_square_tail(chi_square, freedom) < UNEVEN_BELOW

"""Satisfaction time of two templates (PTJoin Definition 8), in exact arithmetic but for one square root.

The join itself compares integers (`probability.match_thresholds`); this is the paper's real number, for people and for
tests: by how much one histogram may be moved against another before a timing constraint loses its confidence.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

from whenabouts.core.errors import Code, QueryError
from whenabouts.core.times.templates import Template

Bucket = tuple[int, int, Fraction]


def satisfaction_time(first: Template, first_end_us: int, second: Template, confidence: float) -> float:
    """`stime(H_first, H_second, confidence)`: the latest T, in microseconds, with
    `P(H_first >= H_second) >= confidence` if `second` were detected (had its `max`) at T.

    `first_end_us` is the detection time of `first`; where `second` lies does not matter. With a constraint
    `X_first + d >= X_second` the answer moves by d (equation 7). Where P is level over a stretch (buckets of
    probability 0) the latest T counts; at confidence 1 it is the last T at which the constraint is certain.

    The distribution function of the difference is piecewise quadratic between the differences of bucket ends: the
    bounding piece is found by bisection, then its quadratic is solved. O(log(n m)) evaluations of n m terms.
    Raises QueryError WA-2001 for a confidence outside (0, 1].

    >>> phi1 = Template(((0, 20, "0.1"), (20, 30, "0.3"), (30, 40, "0.6")))
    >>> phi2 = Template(((0, 10, "0.15"), (10, 20, "0.3"), (20, 30, "0.4"), (30, 40, "0.15")))
    >>> satisfaction_time(phi1, 210, phi2, 0.8)  # PTJoin Example 4
    208.5907854727929
    """
    if not 0.0 < confidence <= 1.0:
        raise QueryError(Code.BAD_CONFIDENCE, f"confidence is {confidence!r}", "give a number in (0, 1]")
    wanted = _decimal(confidence)
    one, other = first.exact, second.exact
    # P(X_second - X_first <= -shift) falls as second moves later by `shift`; knots are where a piece of it ends.
    knots = sorted({a - b for a, b in product(_ends(one), _ends(other))})
    low, high = 0, len(knots) - 1  # P is 1 at the first knot, below the confidence at the last
    while high - low > 1:
        middle = (low + high) // 2
        if _probability(one, other, knots[middle]) >= wanted:
            low = middle
        else:
            high = middle
    return float(first_end_us + _last_in_piece(one, other, knots[low], knots[high], wanted))


def _decimal(confidence: float) -> Fraction:
    """The number that was written: 0.8 means 4/5 here, where no kernel rounds."""
    return Fraction(repr(float(confidence)))


def _ends(buckets: tuple[Bucket, ...]) -> list[int]:
    return [buckets[0][0], *(hi for _, hi, _ in buckets)]


def _last_in_piece(
    one: tuple[Bucket, ...], other: tuple[Bucket, ...], start: int, stop: int, wanted: Fraction
) -> float | Fraction:
    """The last shift in `[start, stop)` at which P, quadratic there, is at least `wanted`."""
    width = Fraction(stop - start)
    p0, p1, p2 = (_probability(one, other, start + width * share / 2) for share in range(3))
    curve = 2 * (p0 - 2 * p1 + p2)
    slope = 4 * p1 - 3 * p0 - p2
    drop = p0 - wanted
    # curve s^2 + slope s + drop = 0 for s in [0, 1], P falling; in the form without cancellation.
    root = math.sqrt(slope * slope - 4 * curve * drop)
    below = root - float(slope)
    return start + float(width) * (2.0 * float(drop) / below) if below else Fraction(start)


def _probability(one: tuple[Bucket, ...], other: tuple[Bucket, ...], shift: Fraction | int) -> Fraction:
    """P(X_first >= X_second + shift), both before anchors at 0, exactly."""
    total = Fraction(0)
    for (a1, b1, p), (a2, b2, q) in product(one, other):
        total += p * q * _exceeds(Fraction(a1), Fraction(b1), a2 + Fraction(shift), b2 + Fraction(shift))
    return total


def _exceeds(a1: Fraction, b1: Fraction, a2: Fraction, b2: Fraction) -> Fraction:
    """P(U(a1, b1) >= U(a2, b2)) for positive lengths: four squared ramps, harmless in exact arithmetic."""

    def ramp(x: Fraction) -> Fraction:
        return max(x, Fraction(0)) ** 2

    area = ramp(b1 - a2) - ramp(a1 - a2) - ramp(b1 - b2) + ramp(a1 - b2)
    return area / (2 * (b1 - a1) * (b2 - a2))

"""Measured distributions of time as templates, from samples or from known quantiles.

A sample is a whole number k of microseconds and represents a time uniform in [k, k + 1], because finer digits are
truncated. Two questions are kept apart. How well does a template represent the samples? `empirical` guarantees a
tolerance. How well do the samples represent future times? `equal_mass` claims no more than n samples can show: for any
distribution, the empirical distribution function is off by more than sqrt(ln(2/a) / 2n) anywhere with probability at
most a (Dvoretzky, Kiefer and Wolfowitz 1956, with Massart's constant, 1990).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from fractions import Fraction
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.durations import MAX_DURATION_US, Duration, parse_duration
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.times.distributions import TOLERANCE, spend_of
from whenabouts.core.times.templates import Template

MOST_BUCKETS = 200
"""The most buckets of an equal-mass fit. With 10,000 samples or more these are finer than the samples' uncertainty."""

FIRST_CHUNK = 64


def empirical(samples: Any, *, tolerance: float = TOLERANCE) -> Template:
    """The distribution of the samples themselves as a template with few buckets.

    `samples`: durations in any array (numpy or Arrow, timedelta64 or whole microseconds) or sequence (text,
    `timedelta`, int). Each represents the microsecond [k, k + 1], with equal weight. P of any condition differs by at
    most `tolerance` from its value for this distribution (by half of it if the other time is exact). That takes at most
    about `2 / tolerance` buckets. The template says nothing about times not sampled; `from_latency` fits those too.

    Cost: O(n log n) for n samples. Raises QueryError: WA-2006 for no sample or a tolerance outside [1e-6, 1), WA-2002
    for an invalid duration (NaN, null, a fraction of a microsecond).

    >>> empirical([1000, 1001, 1002, 1003, "2 ms"]).buckets
    ((1000, 1004, Fraction(4, 5)), (1004, 2000, Fraction(0, 1)), (2000, 2001, Fraction(1, 5)))
    """
    spend = spend_of(tolerance)
    values = np.sort(samples_us(samples))
    edges = np.unique(np.concatenate([values, values + 1]))
    below = np.searchsorted(values, edges, side="left").astype(np.int64)
    kept = list(_chords(edges, below, spend * len(values)))
    shares = [Fraction(int(below[b] - below[a]), len(values)) for a, b in pairwise(kept)]
    return Template(tuple((int(edges[a]), int(edges[b]), p) for (a, b), p in zip(pairwise(kept), shares, strict=True)))


def equal_mass(samples: Any, *, shortest: Duration | None = None, longest: Duration | None = None) -> Template:
    """A fit to samples: buckets of about equal probability between order statistics.

    n samples divide the axis into n + 1 intervals, and the next time falls into each with probability 1/(n + 1), for
    any distribution. So the fit gives every interval the same mass: the n - 1 between samples, and the two outer ones
    as far as `shortest` and `longest`. Without these, times beyond the samples are treated as impossible, although the
    next time lies there with probability 1/(n + 1) on each side. There are about `2 sqrt(n)` buckets, at most 200. Each
    holds about `sqrt(n) / 2` samples, so that no bucket's probability is estimated from only a few.

    Raises the errors of `empirical`, and QueryError WA-2006 for samples outside `[shortest, longest]`.

    >>> equal_mass([10, 20, 40], longest=100).buckets
    ((10, 20, Fraction(1, 3)), (20, 40, Fraction(1, 3)), (40, 100, Fraction(1, 3)))
    """
    values = np.sort(samples_us(samples))
    least, most = _bounds(shortest, longest)
    if (least is not None and least > values[0]) or (most is not None and most < values[-1]):
        raise _bad(
            f"samples lie from {values[0]} to {values[-1]} us, outside [{shortest}, {longest}]",
            "leave out the wrong samples, or widen the bound",
        )
    n = len(values)
    intervals = max(n - 1 + (least is not None) + (most is not None), 1)
    wanted = min(math.ceil(2 * math.sqrt(n)), MOST_BUCKETS)
    ranks = sorted({(n - 1) * number // wanted for number in range(wanted + 1)})
    points = [(Fraction(rank + (least is not None), intervals), int(values[rank])) for rank in ranks]
    return _through(_with_ends(points, least, most))


def through_quantiles(
    quantiles: Mapping[Any, Duration], *, shortest: Duration | None = None, longest: Duration | None = None
) -> Template:
    """The template whose distribution function interpolates linearly between quantiles, `{probability: duration}`.

    Probabilities are numbers or text from 0 to 1. The quantiles at 0 and 1, or `shortest` and `longest`, are the ends
    of the support. A duration given for several probabilities has a mass of its own, which is placed in the microsecond
    after it.

    Raises QueryError: WA-2006 for a missing end, an end given twice, probabilities outside [0, 1], or durations that
    fall while probabilities rise; WA-2002 for an invalid duration.

    >>> through_quantiles({"0.5": "1 s", "0.9": "4 s"}, shortest=0, longest="1 min").buckets[0]
    (0, 1000000, Fraction(1, 2))
    """
    least, most = _bounds(shortest, longest)
    points = sorted((_probability(p), parse_duration(value, name="a quantile")) for p, value in quantiles.items())
    if len({p for p, _ in points}) < len(points):
        raise _bad("the quantiles have a probability twice", "give each once")
    for end, name, given in ((Fraction(0), "shortest", least), (Fraction(1), "longest", most)):
        if (given is None) == (end not in dict(points)):
            how = "twice" if given is not None else "not at all"
            raise _bad(f"the {name} time is given {how}", f"give {name}=... or the quantile at {end}")
    points = _with_ends(points, least, most)
    for (low, shorter), (high, longer) in pairwise(points):
        if shorter > longer:
            raise _bad(
                f"the quantile at {float(low)} is {shorter} us, the one at {float(high)} is {longer} us",
                "quantiles rise with their probability",
            )
    return _through(points)


def samples_us(samples: Any) -> IntArray:
    """Samples as int64 microseconds; finer timedelta64 values are rounded down.

    Raises QueryError: WA-2006 for no sample, WA-2002 for NaN, a null, a fractional float, or another type.

    >>> samples_us(np.array([1_500, 2_000], "timedelta64[ns]")), samples_us(["1 ms", 7])
    (array([1, 2]), array([1000,    7]))
    """
    if isinstance(samples, pa.Array | pa.ChunkedArray):
        if samples.null_count:
            raise _unreadable("a null", "leave nulls out")
        samples = samples.to_numpy(zero_copy_only=False) if isinstance(samples, pa.Array) else samples.to_numpy()
    if isinstance(samples, str | bytes | Mapping | int | float | timedelta) or not isinstance(samples, Iterable):
        raise _unreadable(repr(samples), "give an array or a sequence of durations")
    array = samples if isinstance(samples, np.ndarray) else _array(samples)
    if array.ndim != 1 or not array.size:
        raise _bad(f"samples have the shape {array.shape}", "give a one-dimensional array of one sample or more")
    return _whole_microseconds(array)


def _array(samples: Iterable[Any]) -> NDArray[Any]:
    values = samples.to_numpy() if hasattr(samples, "to_numpy") else list(samples)
    if isinstance(values, list) and any(isinstance(value, str | timedelta) for value in values):
        return np.array([parse_duration(value, name="a sample") for value in values], np.int64)
    return np.asarray(values)


def _whole_microseconds(array: NDArray[Any]) -> IntArray:
    kind = array.dtype.kind
    if kind == "m":
        if np.isnat(array).any():
            raise _unreadable("NaT", "leave missing samples out")
        array = array // np.timedelta64(1, "us")  # numpy's own cast rounds towards zero
    elif kind == "f":
        if not np.isfinite(array).all():
            raise _unreadable("NaN or infinite", "leave missing samples out")
        broken = array[array != np.floor(array)]
        if broken.size:
            raise _unreadable(repr(float(broken[0])), "samples are whole microseconds: multiply and round")
    elif kind not in "iu":
        raise _unreadable(f"of type {array.dtype}", "give timedelta64, timedelta, text, or whole microseconds")
    if (array > MAX_DURATION_US).any() or (array < -MAX_DURATION_US).any():
        raise _unreadable("longer than 9,100 years", "check the unit: numbers are microseconds")
    return array.astype(np.int64)


def _chords(x: IntArray, height: IntArray, spend: float) -> Iterator[int]:
    """Indices of the knots to keep so that straight lines between them miss no knot by more than `spend`.

    From a kept knot, the slopes that stay within `spend` of all knots so far form an interval that only narrows. The
    next kept knot is the farthest one whose own slope lies in it. Cost: O(knots), doubled where a look-ahead was too
    short.
    """
    at, ahead = 0, FIRST_CHUNK
    yield at
    while at < len(x) - 1:
        stop = min(at + 1 + ahead, len(x))
        run = (x[at + 1 : stop] - x[at]).astype(float)
        rise = (height[at + 1 : stop] - height[at]).astype(float)
        steepest = np.minimum.accumulate((rise + spend) / run)
        flattest = np.maximum.accumulate((rise - spend) / run)
        if flattest[-1] <= steepest[-1] and stop < len(x):
            ahead *= 2
            continue
        slope = rise / run
        good = np.flatnonzero((flattest <= slope) & (slope <= steepest))
        at, ahead = at + 1 + int(good[-1]), max(FIRST_CHUNK, 2 * int(good[-1]))
        yield at


def _bounds(shortest: Duration | None, longest: Duration | None) -> tuple[int | None, int | None]:
    least = None if shortest is None else parse_duration(shortest, name="shortest")
    most = None if longest is None else parse_duration(longest, name="longest")
    if least is not None and most is not None and least > most:
        raise _bad(f"shortest is {shortest}, longest {longest}", "swap them")
    return least, most


def _with_ends(points: list[tuple[Fraction, int]], least: int | None, most: int | None) -> list[tuple[Fraction, int]]:
    before = [] if least is None else [(Fraction(0), least)]
    return before + points + ([] if most is None else [(Fraction(1), most)])


def _through(points: list[tuple[Fraction, int]]) -> Template:
    """The template of a distribution function through `points`, in rising order, from probability 0 to 1."""
    knots: dict[int, Fraction] = {}
    for value, group in groupby(points, key=lambda point: point[1]):
        ps = [p for p, _ in group]
        knots[value] = max(ps[0], knots.get(value, ps[0]))
        if ps[-1] > ps[0]:  # a mass at one instant: place it in the microsecond that follows
            knots[value + 1] = ps[-1]
    if len(knots) == 1:
        value = points[-1][1]
        return Template(((value, value + 1, 1),))
    ordered = sorted(knots.items())
    return Template(tuple((lo, hi, above - below) for (lo, below), (hi, above) in pairwise(ordered)))


def _probability(value: Any) -> Fraction:
    try:
        p = Fraction(value)
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):
        p = Fraction(-1)
    if not 0 <= p <= 1:
        raise _bad(f"the probability of a quantile is {value!r}", "give a number from 0 to 1")
    return p


def _unreadable(what: str, hint: str) -> QueryError:
    return QueryError(Code.BAD_DURATION, f"a sample is {what}", hint)


def _bad(problem: str, hint: str) -> QueryError:
    return QueryError(Code.BAD_OPTION, problem, hint)

"""Simulated streams of events of which clocks are learned, related and unrelated; times are microseconds of one day."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

START_US, DAY_US = 1_700_000_000_000_000, 86_400_000_000
Times = NDArray[np.int64]
Stream = Callable[[np.random.Generator, int], Times]


def poisson(rng: np.random.Generator, n: int) -> Times:
    """Events at random."""
    return np.sort(rng.integers(0, DAY_US, n))


def bursts(rng: np.random.Generator, n: int) -> Times:
    """Bursts at random (Neyman and Scott), of Pareto size up to a twentieth of all rows, seconds to minutes long."""
    parts: list[Times] = []
    while sum(map(len, parts)) < n:
        size = min(int(1 + rng.pareto(1.2)), max(n // 20, 1))
        steps = np.cumsum(rng.exponential(5e6, size)) * rng.random()
        parts.append(rng.integers(0, DAY_US) + steps.astype(np.int64))
    return np.sort(np.clip(np.concatenate(parts)[:n], 0, DAY_US - 1))


def daily(rng: np.random.Generator, n: int) -> Times:
    """A rate that goes from nothing to twice its mean and back within the day."""
    t = rng.integers(0, DAY_US, 4 * n)
    return np.sort(t[rng.random(4 * n) < 0.5 * (1 + np.sin(2 * np.pi * t / DAY_US))][:n])


def whole_seconds(rng: np.random.Generator, n: int) -> Times:
    """Events at random, cut to seconds."""
    return poisson(rng, n) // 1_000_000 * 1_000_000


def every(seconds: int) -> Stream:
    """A job that starts at each multiple of so many seconds, within a fifth of a second."""

    def ticks(rng: np.random.Generator, n: int) -> Times:
        at = np.arange(rng.integers(0, seconds * 1_000_000), DAY_US, seconds * 1_000_000)
        return np.asarray(at + rng.integers(0, 200_000, len(at)), np.int64)

    return ticks


class Linked(NamedTuple):
    """Two streams with a clock between them: `right - left = offset + drift (left - half a day) + delay` for the pairs
    whose left rows are `partners`; the right rows `partner_at` are theirs."""

    left: Times
    right: Times
    partners: Times
    partner_at: Times
    delays: NDArray[np.float64]
    offset: float
    drift: float


def linked(
    rng: np.random.Generator, stream: Stream, n: int, share: float, jitter_us: float,
    *, max_offset_us: float = 3.4e9, max_drift: float = 2.8e-3,
) -> Linked:  # fmt: skip
    """A share of the left rows, with normal delays and an offset and a drift at random, among n right rows."""
    offset, drift = rng.uniform(-max_offset_us, max_offset_us), rng.uniform(-max_drift, max_drift)
    left = stream(rng, n)
    partners = np.flatnonzero(rng.random(n) < share)
    delays = rng.normal(0, jitter_us, len(partners))
    moved = left[partners] + offset + drift * (left[partners] - DAY_US / 2) + delays
    right = np.concatenate([moved.astype(np.int64), stream(rng, n - len(partners))])
    order = np.argsort(right, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return Linked(left, right[order], partners, place[: len(partners)], delays, offset, drift)

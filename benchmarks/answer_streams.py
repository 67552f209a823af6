"""Two streams whose true times are known, as clocks of several kinds record them.

Left events come at random. Four of five cause a right event, after a delay that is exponential with mean d/3; further
right events are unrelated and come at random too. What a clock does to the true times and what is declared about it are
in one place here, so that a wrong declaration is one factor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from scoring import Array

import whenabouts as wa

SECOND = 1_000_000
BEGIN_US = 1_700_000_000 * SECOND
GAP = 20
"""Mean time between left events, in windows d."""
CAUSES = 0.8

Random = np.random.Generator


@dataclass(frozen=True)
class Side:
    """A stream: `recorded_us` is what an ordinary join uses, `middle_us` the middle of what is declared possible."""

    true_us: Array
    recorded_us: Array
    middle_us: Array
    columns: Mapping[str, Array]
    time: Any

    def table(self, row: str) -> pa.Table:
        """The rows with their number in the column `row`, and no true time."""
        return pa.table({row: np.arange(len(self.true_us)), **self.columns})


@dataclass(frozen=True)
class Streams:
    """Both sides, the window `d`, the pairs that belong together by left and right row, and who has one partner only:
    `best` of the timing join."""

    left: Side
    right: Side
    d_us: int
    related: tuple[Array, Array]
    best: str = "both"


Clock = Callable[[Random, Array, float], Side]


def exact(random: Random, true_us: Array, declared: float) -> Side:
    """A clock without error."""
    return Side(true_us, true_us, true_us, {"t": true_us}, wa.Point("t"))


def truncated(random: Random, true_us: Array, declared: float, *, granule_us: int) -> Side:
    """Times cut to whole granules."""
    read, told = true_us - true_us % granule_us, round(granule_us * declared)
    return Side(true_us, read, read + told // 2, {"t": read}, wa.from_granularity("t", f"{told}us"))


def polled(random: Random, true_us: Array, declared: float, *, period_us: int) -> Side:
    """Events found by the next poll."""
    read, told = -(-true_us // period_us) * period_us, round(period_us * declared)
    return Side(true_us, read, read - told // 2, {"t": read}, wa.from_polling("t", f"{told}us"))


def delayed(random: Random, true_us: Array, declared: float, *, median_us: int) -> Side:
    """Events detected after a lognormal latency (sigma 1), of which 2,000 other samples were measured."""
    latency = (median_us * random.lognormal(0, 1, len(true_us))).astype(np.int64)
    samples = (median_us * declared * random.lognormal(0, 1, 2_000)).astype(np.int64)
    longest = f"{round(100 * median_us * max(declared, 1))}us"
    time = wa.from_latency("t", samples=[f"{each}us" for each in samples.tolist()], longest=longest)
    read = true_us + latency
    return Side(true_us, read, read - int(np.median(samples)), {"t": read}, time)


def skewed(random: Random, true_us: Array, declared: float, *, offset_us: int, machines: int) -> Side:
    """Readings of many machines, each with its own constant offset, and a jitter of a twentieth of the bound."""
    offsets, jitter_us = random.uniform(-offset_us, offset_us, machines), offset_us // 20
    own = offsets[random.integers(0, machines, len(true_us))] + random.uniform(-jitter_us, jitter_us, len(true_us))
    read = true_us + own.astype(np.int64)
    time = wa.from_clock("t", offset=f"{round(offset_us * declared)}us", jitter=f"{round(jitter_us * declared)}us")
    return Side(true_us, read, read, {"t": read}, time)


def half_exact(random: Random, true_us: Array, declared: float, *, granule_us: int) -> Side:
    """Half of the rows from a clock without error, half from one that cuts to whole granules."""
    cut = random.random(len(true_us)) < 0.5
    read = np.where(cut, true_us - true_us % granule_us, true_us)
    until = np.where(cut, read + round(granule_us * declared) - 1, read)
    columns = {"t_min": read, "t_max": until}
    return Side(true_us, read, (read + until) // 2, columns, wa.Interval("t_min", "t_max"))


@dataclass(frozen=True)
class Scenario:
    """The clocks of both sides, and the window."""

    left: Clock
    right: Clock
    d_us: int
    about: str


SCENARIOS: dict[str, Scenario] = {
    "truncated": Scenario(
        partial(truncated, granule_us=60 * SECOND), partial(truncated, granule_us=SECOND), 30 * SECOND,
        "left to the minute, right to the second",
    ),
    "polls": Scenario(
        exact, partial(polled, period_us=30 * SECOND), 20 * SECOND, "left exact, right polled every 30 s"
    ),
    "latencies": Scenario(
        exact, partial(delayed, median_us=5 * SECOND), 10 * SECOND,
        "left exact, right detected after a lognormal latency, median 5 s, sigma 1",
    ),
    "skewed clocks": Scenario(
        partial(skewed, offset_us=5 * SECOND, machines=200), partial(skewed, offset_us=5 * SECOND, machines=200),
        5 * SECOND, "200 machines a side, each off by up to 5 s, jitter 0.25 s",
    ),
    "mixture": Scenario(
        partial(half_exact, granule_us=60 * SECOND), exact, 20 * SECOND, "left half exact, half to the minute"
    ),
    "exact": Scenario(exact, exact, 10 * SECOND, "both exact"),
}  # fmt: skip


def simulate(scenario: Scenario, events: int, density: float, seed: int, declared: float = 1.0) -> Streams:
    """`events` on the left; `density` is the mean number of unrelated right events within d of a left event.

    `declared`: the factor by which the declared uncertainty differs from the true one.
    """
    random, d = np.random.default_rng(seed), scenario.d_us
    span = events * GAP * d
    left = np.sort(BEGIN_US + random.integers(0, span, events))
    causes = np.flatnonzero(random.random(events) < CAUSES)
    effects = left[causes] + random.exponential(d / 3, len(causes)).astype(np.int64)
    others = BEGIN_US + random.integers(0, span, round(density * span / (2 * d)))
    right = np.concatenate([effects, others])
    order = np.argsort(right, kind="stable")
    row = np.empty(len(order), np.int64)
    row[order] = np.arange(len(order))
    sides = scenario.left(random, left, declared), scenario.right(random, right[order], declared)
    return Streams(*sides, d, (causes, row[: len(causes)]))

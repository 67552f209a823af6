"""A stream in simulated time: at every tick an operator gets the rows that have arrived since the last one.

CPU time passes on the same clock as event time, so that work that is not done by the next tick delays it. Both papers
that report response times measure them this way.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from whenabouts.core.runtime.protocol import Arrival, Operator, SegmentStore, Step

SECOND = 1_000_000


@dataclass(frozen=True)
class Tick:
    """One instant: arrivals, then the watermark after them."""

    now_us: int
    arrivals: Sequence[Arrival]
    watermark_us: int


@dataclass(frozen=True)
class Done:
    """The cost and result of a tick: its CPU-seconds, and the simulated time at which it was done."""

    tick: Tick
    spent: float
    clock: float
    step: Step


def simulate(operator: Operator, store: SegmentStore, ticks: Iterable[Tick]) -> Iterator[Done]:
    """Run the ticks one after the other."""
    clock = 0.0
    for tick in ticks:
        begun = time.process_time()
        step = operator.step(store, tick.arrivals, tick.watermark_us)
        spent = time.process_time() - begun
        clock = max(clock, tick.now_us / SECOND) + spent
        yield Done(tick, spent, clock, step)

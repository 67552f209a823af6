"""A stream in simulated time: an operator gets at every tick what has arrived since the last one.

CPU time passes on the same clock as event time, so that work which is not done by the next tick delays it: the way in
which both papers with response times measure them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from whenabouts.core.runtime.protocol import Arrival, Operator, SegmentStore, Step

SECOND = 1_000_000


@dataclass(frozen=True)
class Tick:
    """What happens at one instant: arrivals, then the watermark that they end with."""

    now_us: int
    arrivals: Sequence[Arrival]
    watermark_us: int


@dataclass(frozen=True)
class Done:
    """What a tick cost and gave: its CPU-seconds, and the time on the simulated clock at which it was done."""

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

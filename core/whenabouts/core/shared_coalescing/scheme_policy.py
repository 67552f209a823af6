"""Schemes that follow the stream: what a bucket counted since it last decided, and who decides from it.

Buckets are independent operators, so each decides for itself, inside its own step, and whatever engine hosts it need
not know. What it decides from lies in its state, beside what it decided: a step that is repeated after a crash finds
the same and decides the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol


class Stretch(NamedTuple):
    """Additive counts (`metrics`) of one bucket over so many seconds of event time."""

    counts: Mapping[str, int]
    seconds: float


class SchemeDecision(NamedTuple):
    """The scheme of each query from now on, and what to remember until the next time, as JSON would hold it."""

    schemes: Mapping[str, str]
    known: dict[str, Any]


class Adapting(Protocol):
    """Who decides. It is part of a query and travels with it to the workers, by pickle.

    What it gives must follow from its arguments alone. It is asked by buckets in the midst of their steps: what cannot
    be decided stays as it is, without an error.
    """

    @property
    def every_us(self) -> int:
        """How much event time passes between two decisions, in microseconds; above zero."""

    def adapted(self, past: Stretch, schemes: Mapping[str, str], known: Mapping[str, Any]) -> SchemeDecision:
        """Decide anew. `schemes`: in force, by query; `known`: what was remembered the last time, empty at first."""


@dataclass(slots=True)
class Observed:
    """What a bucket counted since `since_us`, and what its last decision remembered.

    >>> seen = Observed()
    >>> seen.count({"rows_processed": 5}, 0)
    >>> seen.count({"rows_processed": 7}, 10_000_000)
    >>> seen.stretch(10_000_000, 10_000_000)
    Stretch(counts={'rows_processed': 7}, seconds=10.0)
    """

    since_us: int | None = None
    counts: dict[str, int] = field(default_factory=dict)
    known: dict[str, Any] = field(default_factory=dict)

    def count(self, counts: Mapping[str, int], latest_us: int) -> None:
        """Add a step's counts. Those of the first step, in which no stretch of time had begun, do not count."""
        if self.since_us is None:
            self.since_us = latest_us
            return
        for name, number in counts.items():
            self.counts[name] = self.counts.get(name, 0) + number

    def stretch(self, latest_us: int, every_us: int) -> Stretch | None:
        """What was counted if it is time to decide; the next stretch begins then."""
        if self.since_us is None or latest_us - self.since_us < every_us:
            return None
        past = Stretch(self.counts, (latest_us - self.since_us) / 1e6)
        self.since_us, self.counts = latest_us, {}
        return past

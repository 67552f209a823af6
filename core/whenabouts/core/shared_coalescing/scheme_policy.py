"""Schemes that adapt to the stream: the counts of a bucket since its last decision, and the policy that decides.

Buckets are independent operators, so each decides for itself, inside its own step, and no engine needs to know. The
counts are part of the bucket's state, next to the decision: a step that is repeated after a crash decides the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol


class Observation(NamedTuple):
    """Additive counts (`metrics`) of one bucket over a number of seconds of event time."""

    counts: Mapping[str, int]
    seconds: float


class SchemeDecision(NamedTuple):
    """The scheme of each query from now on, and what to store for the next decision, as JSON values."""

    schemes: Mapping[str, str]
    known: dict[str, Any]


class SchemePolicy(Protocol):
    """Decides the schemes of queries. It is part of a query, and is sent to the workers with it, by pickle.

    The decision must depend only on the arguments. Buckets ask during their steps, so it raises no errors: what cannot
    be decided stays as it is.
    """

    @property
    def every_us(self) -> int:
        """How much event time passes between two decisions, in microseconds; above zero."""

    def decide(self, past: Observation, schemes: Mapping[str, str], known: Mapping[str, Any]) -> SchemeDecision:
        """`schemes`: those in force, by query; `known`: what the last decision stored, at first empty."""


@dataclass(slots=True)
class Observed:
    """The counts of a bucket since `since_us`, and what its last decision stored. Checkpoints hold the fields.

    >>> seen = Observed()
    >>> seen.count({"rows_processed": 5}, 0)
    >>> seen.count({"rows_processed": 7}, 10_000_000)
    >>> seen.observation(10_000_000, 10_000_000)
    Observation(counts={'rows_processed': 7}, seconds=10.0)
    """

    since_us: int | None = None
    counts: dict[str, int] = field(default_factory=dict)
    known: dict[str, Any] = field(default_factory=dict)

    def count(self, counts: Mapping[str, int], latest_us: int) -> None:
        """Add a step's counts. Those of the first step are ignored: the first observation begins with it."""
        if self.since_us is None:
            self.since_us = latest_us
            return
        for name, number in counts.items():
            self.counts[name] = self.counts.get(name, 0) + number

    def observation(self, latest_us: int, every_us: int) -> Observation | None:
        """The counts if it is time to decide, else None; the next observation then begins."""
        if self.since_us is None or latest_us - self.since_us < every_us:
            return None
        past = Observation(self.counts, (latest_us - self.since_us) / 1e6)
        self.since_us, self.counts = latest_us, {}
        return past

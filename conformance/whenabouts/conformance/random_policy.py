"""A policy that decides at random again and again, for laws about schemes that change while queries run."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from whenabouts.core.shared_coalescing.scheme_policy import Observation, SchemeDecision


@dataclass(frozen=True)
class RandomPolicy:
    """Draws a scheme for each query whenever event time has advanced; equal seeds draw the same in each bucket.

    >>> first = RandomPolicy(seed=1).decide(Observation({}, 1.0), {"a": "eager"}, {})
    >>> RandomPolicy(seed=1).decide(Observation({}, 9.0), {"a": "lazy"}, {}) == first, first.known
    (True, {'turn': 1})
    """

    seed: int = 0
    every_us: int = 1

    def decide(self, past: Observation, schemes: Mapping[str, str], known: Mapping[str, Any]) -> SchemeDecision:
        """A random scheme for each query."""
        turn = int(known.get("turn", 0)) + 1
        draw = random.Random(f"{self.seed} {turn}")
        return SchemeDecision({name: draw.choice(("eager", "lazy")) for name in schemes}, {"turn": turn})

"""Which algorithm a window join runs: `strategy="auto"` through a cost function, for a planner to take over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whenabouts.core.window_join import WindowJoin


@dataclass(frozen=True, slots=True)
class Choice:
    """What runs."""

    strategy: str
    conservative: str


def choose(query: WindowJoin, rates: Mapping[str, float] | None, *, streaming: bool) -> Choice:
    """The algorithm of a query."""
    strategy = query.strategy if query.strategy != "auto" else "bew" if streaming else "few"
    conservative = query.conservative if query.conservative != "auto" else "none"
    return Choice(strategy, conservative)

"""The timing join: pairs of events that meet a timing condition with a given confidence (ITC, PTJoin)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whenabouts.core.timing_join.query import TimingJoin

__all__ = ["TimingJoin"]


def __getattr__(name: str) -> Any:
    if name != "TimingJoin":  # imported on first use: it loads numpy and Arrow
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from whenabouts.core.timing_join.query import TimingJoin

    return TimingJoin

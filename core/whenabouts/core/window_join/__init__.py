"""The window join: combinations of events, one from each stream, within a graph of windows (W-join)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whenabouts.core.window_join.query import WindowJoin

__all__ = ["WindowJoin"]


def __getattr__(name: str) -> Any:
    if name != "WindowJoin":  # imported on first use: it loads numpy and Arrow
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from whenabouts.core.window_join.query import WindowJoin

    return WindowJoin

"""One window extent in memory, for arrivals in any order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whenabouts.core.window_extent.extent import WindowExtent

__all__ = ["WindowExtent"]


def __getattr__(name: str) -> Any:
    if name != "WindowExtent":  # imported when it is first used: it loads numpy and Arrow
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from whenabouts.core.window_extent.extent import WindowExtent

    return WindowExtent

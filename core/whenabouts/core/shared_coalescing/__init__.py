"""Many coalescing queries over one extent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whenabouts.core.shared_coalescing.query import SharedCoalescing

__all__ = ["SharedCoalescing"]


def __getattr__(name: str) -> Any:
    if name != "SharedCoalescing":  # imported when it is first used: it loads numpy and Arrow
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from whenabouts.core.shared_coalescing.query import SharedCoalescing

    return SharedCoalescing

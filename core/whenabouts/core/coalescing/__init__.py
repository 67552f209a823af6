"""Temporal coalescing: consecutive equivalent tuples of a window extent become one (Al-Kateb 2010)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whenabouts.core.coalescing.query import Coalesce

__all__ = ["Coalesce"]


def __getattr__(name: str) -> Any:
    if name != "Coalesce":  # imported when it is first used: it loads numpy and Arrow
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from whenabouts.core.coalescing.query import Coalesce

    return Coalesce

"""What an engine's conformance laws have found not to hold there: refused, with what to do instead, until it does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from whenabouts.core.errors import Code, EngineError
from whenabouts.core.protocol import Query

UNPROVEN = {
    "Spark": {"SharedCoalescing": "run each registered query as one of its own"},
}
"""Engine -> class of query or option -> the hint."""


def refuse_unproven(query: Query, engine: str) -> None:
    """Raise EngineError WA-3007 for a query, or one inside of it, of which an engine does not keep the laws."""
    known = UNPROVEN[engine]
    names = [*_names(query), *(["idle_after"] if query.idle_after_us is not None else [])]
    for name in names:
        if name in known:
            raise EngineError(Code.NOT_ON_ENGINE, f"{name} does not hold its laws on {engine} yet", known[name])


def _names(query: Any) -> Iterator[str]:
    while query is not None:
        yield type(query).__name__
        query = getattr(query, "query", None)

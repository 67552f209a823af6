"""What the operator reads of a temporal join."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import pyarrow as pa

from whenabouts.core.coalescing.settings import CoalesceSettings
from whenabouts.core.errors import Code, QueryError


class JoinSettings(CoalesceSettings, Protocol):
    """The validated settings of a `TemporalJoin`."""

    @property
    def on(self) -> str | Sequence[str]:
        """Columns that must be equal."""

    @property
    def relation(self) -> str:
        """One of `PREDICATES`."""

    @property
    def matches(self) -> Callable[[pa.Table, pa.Table], Any] | None:
        """A further predicate on pairs."""

    @property
    def min_duration_us(self) -> int | None:
        """The least duration of the intersection in microseconds."""

    @property
    def suffixes(self) -> tuple[str, str]:
        """Suffixes of the output columns of both sides."""


def not_compared(name: str) -> QueryError:
    """The error for a column in `on` that is not coalesced."""
    return QueryError(Code.BAD_OPTION, f"on names {name!r}", "it is neither a group nor a value column")

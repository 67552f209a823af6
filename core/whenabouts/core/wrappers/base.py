"""Base classes of queries that wrap another query; hosts treat them like any other query."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Self

from whenabouts.core.runtime.protocol import Operator, Partitioner, Query, Reader, SegmentStore

if TYPE_CHECKING:
    import pyarrow as pa


class WrappedQuery:
    """Delegates everything except `operator` to the wrapped query."""

    query: Query

    @property
    def inputs(self) -> tuple[str, ...]:
        """As the wrapped query."""
        return self.query.inputs

    @property
    def lateness_us(self) -> tuple[int, ...]:
        """As the wrapped query."""
        return self.query.lateness_us

    @property
    def says_lateness(self) -> bool:
        """As the wrapped query."""
        return self.query.says_lateness

    @property
    def idle_after_us(self) -> int | None:
        """As the wrapped query."""
        return self.query.idle_after_us

    @property
    def described(self) -> str:
        """As the wrapped query."""
        return self.query.described

    @property
    def own_counts(self) -> tuple[str, ...]:
        """As the wrapped query: the counts that queries of other kinds do not have."""
        counts: tuple[str, ...] = getattr(self.query, "own_counts", ())
        return counts

    @property
    def needs_rows_of(self) -> Mapping[str, str]:
        """As the wrapped query."""
        needed: Mapping[str, str] = getattr(self.query, "needs_rows_of", {})
        return needed

    @property
    def single_bucket(self) -> str | None:
        """As the wrapped query."""
        reason: str | None = getattr(self.query, "single_bucket", None)
        return reason


class WrappedOperator:
    """Delegates everything except `step` to the wrapped operator."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    def around(self, wrap: Callable[[Operator], Operator]) -> Self:
        """Itself, with something between it and the operator that it wraps."""
        self._operator = wrap(self._operator)
        return self

    @property
    def readers(self) -> tuple[Reader, ...]:
        """As the wrapped operator."""
        return self._operator.readers

    @property
    def keys(self) -> Partitioner:
        """As the wrapped operator."""
        return self._operator.keys

    @property
    def output_schema(self) -> pa.Schema:
        """As the wrapped operator."""
        return self._operator.output_schema

    @property
    def event_time(self) -> str | None:
        """As the wrapped operator."""
        return self._operator.event_time

    @property
    def needs_latest(self) -> bool:
        """As the wrapped operator."""
        return self._operator.needs_latest

    def rows_held(self, store: SegmentStore) -> int:
        """Rows of all inputs in a bucket's state."""
        return self._operator.rows_held(store)

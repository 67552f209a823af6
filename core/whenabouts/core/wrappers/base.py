"""A query around another one, and its operator around the other's: to a host they are like any other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whenabouts.core.runtime.protocol import Operator, Placement, Query, Reader, SegmentStore

if TYPE_CHECKING:
    import pyarrow as pa


class WrappedQuery:
    """All that a host asks of a query, but for `operator`, as the one inside has it."""

    query: Query

    @property
    def inputs(self) -> tuple[str, ...]:
        """Those of the query."""
        return self.query.inputs

    @property
    def lateness_us(self) -> tuple[int, ...]:
        """Those of the query."""
        return self.query.lateness_us

    @property
    def says_lateness(self) -> bool:
        """As the query."""
        return self.query.says_lateness

    @property
    def idle_after_us(self) -> int | None:
        """That of the query."""
        return self.query.idle_after_us

    @property
    def described(self) -> str:
        """As the query."""
        return self.query.described

    @property
    def needs_rows_of_all(self) -> bool:
        """As the query."""
        return bool(getattr(self.query, "needs_rows_of_all", False))


class WrappedOperator:
    """All that a host asks of an operator, but for `step`, as the one inside has it."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    @property
    def readers(self) -> tuple[Reader, ...]:
        """Those of the operator."""
        return self._operator.readers

    @property
    def keys(self) -> Placement:
        """Those of the operator."""
        return self._operator.keys

    @property
    def output_schema(self) -> pa.Schema:
        """That of the operator."""
        return self._operator.output_schema

    @property
    def event_time(self) -> str | None:
        """That of the operator."""
        return self._operator.event_time

    @property
    def needs_latest(self) -> bool:
        """That of the operator."""
        return self._operator.needs_latest

    def rows_held(self, store: SegmentStore) -> int:
        """Rows of all inputs in a bucket's state."""
        return self._operator.rows_held(store)

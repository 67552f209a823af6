"""An operator around another one: to a host it is an operator like any other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whenabouts.core.protocol import Operator, SegmentStore

if TYPE_CHECKING:
    import pyarrow as pa

    from whenabouts.core.events import EventReader
    from whenabouts.core.keys import Keys


class WrappedOperator:
    """All that a host asks of an operator, but for `step`, as the one inside has it."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    @property
    def readers(self) -> tuple[EventReader, ...]:
        """Those of the operator."""
        return self._operator.readers

    @property
    def keys(self) -> Keys:
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

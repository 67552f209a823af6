"""What a run on an engine gives a command: output rows piece by piece, and the account of all others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections import Counter

    from whenabouts.core.local import Outcome


@dataclass(slots=True)
class EngineResult:
    """`rejects` and then `batches` can be taken once; `rows` counts those of the latter that have been taken.

    Schemas and `metrics`: as in `Outcome`.
    """

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    rejects: Iterator[pa.RecordBatch]
    metrics: Counter[str]
    rows: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.batches = self._counted(self.batches)

    def _counted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.rows += batch.num_rows
            yield batch

    @classmethod
    def of(cls, outcome: Outcome) -> EngineResult:
        """The outcome of an engine that holds all rows."""
        return cls(outcome.output.schema, _batches(outcome.output), _batches(outcome.rejects), outcome.metrics)

    def table(self) -> pa.Table:
        """All rows that have not been taken yet."""
        return pa.Table.from_batches(list(self.batches), self.schema)


def _batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    return iter(table.to_batches())

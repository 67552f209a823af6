"""Readers of the replay source that every Spark has; `admitted_replay` has what Spark 4.2 adds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import monotonic
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from whenabouts.core.arrays.plain_types import plain_table
from whenabouts.core.errors import Code, EngineError, InputError
from whenabouts.core.sources.replay import Replay, ReplayOrder
from whenabouts.spark_plugin.arrow_types import conform, worker_schema
from whenabouts.spark_plugin.packing import FLUSH
from whenabouts.spark_plugin.workers import begin_task

_FLUSH_FIELD = pa.field(FLUSH, pa.bool_())


ROWS_PER_BATCH = 1 << 15
"""Rows of a record batch that is passed to Spark."""


class SlicePartition(InputPartition):
    """A slice of a stream for one task."""


class FlushPartition(InputPartition):
    """The flush row after the last row."""


class StreamReader(DataSourceStreamReader):
    """The part for all versions of Spark. Times are read and sorted in the driver, once, when first needed.

    An offset counts rows. The flush row comes with the last row and is not counted, except in a stream without rows:
    Spark reads nothing between equal offsets. So older checkpoints, in which it never counted, continue right: with
    rows nothing has changed, and without any they are at 0, before the flush row that was not sent.
    """

    def __init__(self, replay: Replay, schema: StructType, most: int | None) -> None:
        self._replay, self._schema, self._most = replay, schema, most
        self._arrivals: ReplayOrder | None = None
        self._begun: tuple[int, float] | None = None
        self._paced = True

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Row 0."""
        return self._offset(0)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Slices of the rows between two offsets. Raises EngineError WA-3031 for offsets of another replay."""
        first, stop = (self._row(offset) for offset in (start, end))
        flush = [FlushPartition(None)] if self._flushes and first < stop == self._end else []
        rows = len(self._known().at_us)
        return [*(SlicePartition(piece) for piece in self._known().slices(first, min(stop, rows))), *flush]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a slice, or the flush row."""
        begin_task()
        if isinstance(partition, FlushPartition):
            schema = worker_schema(self._schema)
            values = [pa.array([True]) if field.name == FLUSH else pa.nulls(1, field.type) for field in schema]
            yield pa.RecordBatch.from_arrays(values, schema=schema)
        else:
            yield from _batches(partition.value.read(), self._schema)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_arrivals": None}  # workers read slices and do not need the order of all rows

    def _known(self) -> ReplayOrder:
        if self._arrivals is None:
            self._arrivals = self._replay.open().arrivals()
        return self._arrivals

    def _due(self, row: int, most: int | None) -> dict[str, Any]:
        """The offset up to which rows are due, at most `most` after `row`."""
        known = self._known()
        self._begun = self._begun or (row, monotonic())
        begun, since = self._begun
        due = known.due(begun, monotonic() - since) if self._paced else len(known.at_us)
        due = self._end if due >= len(known.at_us) else max(due, row)
        return self._offset(due if most is None else min(due, row + most))

    @property
    def _flushes(self) -> bool:
        return FLUSH in self._schema.names

    @property
    def _end(self) -> int:
        """The offset after everything."""
        return max(len(self._known().at_us), int(self._flushes))

    def _offset(self, row: int) -> dict[str, Any]:
        return {"row": row, "replay": self._known().fingerprint}

    def _row(self, offset: dict[str, Any]) -> int:
        if offset.get("replay") != self._known().fingerprint:
            raise EngineError(
                Code.OTHER_REPLAY,
                "the checkpoint belongs to another replay: files, time, disorder or seed have changed",
                "restore them, or start from a new checkpoint",
            )
        return int(offset["row"])


def _batches(table: pa.Table, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Rows in the columns and types of `schema`, the source's own or the user's."""
    if FLUSH in schema.names:
        table = table.append_column(_FLUSH_FIELD, pa.array(np.zeros(table.num_rows, bool)))
    missing = [name for name in schema.names if name not in table.schema.names]
    if missing:
        _missing(missing[0], table.schema.names)
    target = worker_schema(schema)
    for batch in plain_table(table).select(schema.names).to_batches(max_chunksize=ROWS_PER_BATCH):
        yield conform(batch, target)


def _missing(name: str, there: Sequence[str]) -> NoReturn:
    raise InputError(Code.MISSING_COLUMN, f"the files have no column {name!r}", f"they have {', '.join(there)}")

"""The data source `whenabouts`: event files in batch, and replayed as a stream (`whenabouts.core.sources.replay`).

Options are those of `whenabouts.core.sources.replay_options`, and

    maxRowsPerTrigger   most rows of a micro-batch
    filterPushdown      `true`: batch reads skip what filters exclude; the session also needs
                        spark.sql.python.filterPushdown.enabled, which is off by default
    endOfInput          `true`: adds a column, `_wa_end_of_input`, and after the last row of a stream a flush row in
                        which it is true. The operators treat it as the end of the input: once all inputs have ended,
                        results that waited for the watermark are emitted

An offset is a row number, with a fingerprint of files and order: a checkpoint continues with the same replay only.
Under Trigger.AvailableNow all rows are due and the pace is ignored. Spark 4.1 has neither limits nor this trigger for
Python sources: there the reader limits the micro-batch itself, and AvailableNow is one micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from whenabouts.core.errors import Code, InputError, QueryError
from whenabouts.core.sources.pushdown import Predicate, keep
from whenabouts.core.sources.replay import EventFiles, Replay
from whenabouts.core.sources.replay_options import replay_of
from whenabouts.spark_plugin.arrow_types import in_spark_types, spark_fields
from whenabouts.spark_plugin.replay_readers import _FLUSH_FIELD, StreamReader, _batches
from whenabouts.spark_plugin.workers import begin_task

MOST_ROWS = "maxRowsPerTrigger"
PUSHDOWN = "filterPushdown"
END_OF_INPUT = "endOfInput"


_OPERATORS: dict[type[Filter], str] = {
    EqualTo: "==",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    In: "in",
    IsNull: "null",
    IsNotNull: "there",
}


def schema_of(options: Mapping[str, str]) -> StructType:
    """The columns of the source in Spark. Errors as `replay_of` and `Replay.open`."""
    schema = in_spark_types(_replay(options).open().schema)
    return StructType(spark_fields(schema.append(_FLUSH_FIELD) if _flag(options, END_OF_INPUT) else schema))


def batch_reader(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """Reads all rows, in parallel over files and row groups."""
    pushes = _flag(options, PUSHDOWN)
    return (FilteringReader if pushes else ReplayReader)(_replay(options), schema)


def stream_reader(options: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    """Replays the rows, with Spark's admission control if it has one."""
    most = options.get(MOST_ROWS)
    if most is not None and not (most.isdecimal() and int(most) > 0):
        raise QueryError(Code.BAD_OPTION, f"{MOST_ROWS} is {most!r}", "give a whole number above zero")
    replay, rows = _replay(options), None if most is None else int(most)
    if find_spec("pyspark.sql.streaming.datasource") is None:
        return SelfCappedReader(replay, schema, rows)
    from whenabouts.spark_plugin.admitted_replay import AdmittedReader

    return AdmittedReader(replay, schema, rows)


class ChunkPartition(InputPartition):
    """A chunk of files for one task."""

    def __init__(self, files: EventFiles, number: int, predicates: Sequence[Predicate]) -> None:
        self.files, self.number, self.predicates = files, number, predicates


class ReplayReader(DataSourceReader):
    """All rows of the files, in no order."""

    def __init__(self, replay: Replay, schema: StructType) -> None:
        self._replay, self._schema = replay, schema
        self._predicates: list[Predicate] = []

    def partitions(self) -> Sequence[InputPartition]:
        """One partition per chunk."""
        files = self._replay.open()
        return [ChunkPartition(files, number, self._predicates) for number in files.matching(self._predicates)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of a chunk; Spark passes None if there is no partition at all."""
        begin_task()
        if isinstance(partition, ChunkPartition):
            yield from _batches(keep(partition.files.table(partition.number), partition.predicates), self._schema)


class FilteringReader(ReplayReader):
    """Skips what filters exclude. A class of its own: Spark fails if a reader accepts filters while pushdown is off."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802  # Spark's name
        """Use the filters that are understood; Spark applies all of them again, so that its semantics hold."""
        for each in filters:
            attribute: tuple[str, ...] = getattr(each, "attribute", ())
            value: Any = getattr(each, "value", None)
            op = _OPERATORS.get(type(each))
            if op is not None and len(attribute) == 1:
                self._predicates.append(Predicate(attribute[0], op, list(value) if op == "in" else value))
            yield each


class SelfCappedReader(StreamReader):
    """For Spark 4.1, which asks for the latest offset without passing its position.

    The position is known anyway: Spark plans every micro-batch here, and after a restart it plans the last one (or an
    empty one in its place) before it asks for more.
    """

    def __init__(self, replay: Replay, schema: StructType, most: int | None) -> None:
        super().__init__(replay, schema, most)
        self._at = 0

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark 4.1's name and signature
        """The offset of the rows that are due now."""
        return self._due(self._at, self._most)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """As `StreamReader`; remembers the end."""
        pieces = super().partitions(start, end)
        self._at = self._row(end)
        return pieces


def _replay(options: Mapping[str, str]) -> Replay:
    replay = replay_of(dict(options), also=(MOST_ROWS, PUSHDOWN, END_OF_INPUT))
    return replace(replay, path=_local(replay.path))


def _local(path: str) -> str:
    """The path in the file system, absolute: workers may have another working directory."""
    parts = urlsplit(path)
    if len(parts.scheme) > 1 and parts.scheme != "file":
        raise InputError(
            Code.FOREIGN_FILE_SYSTEM,
            f"{path} is on {parts.scheme}://",
            "give a path that the driver and all workers see as a file system: a mount, or local files",
        )
    return str(Path(unquote(parts.path) if parts.scheme == "file" else path).absolute())


def _flag(options: Mapping[str, str], name: str) -> bool:
    text = str(options.get(name, "false")).lower()
    if text not in ("true", "false"):
        raise QueryError(Code.BAD_OPTION, f"{name} is {text!r}", "give true or false")
    return text == "true"

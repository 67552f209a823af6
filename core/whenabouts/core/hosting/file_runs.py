"""How an engine runs a query over files: the command line runs every query this way.

An adapter declares a `FileEngine` in its module `file_runs`. File n of every input arrives in step n; after the last
file the inputs have ended, so that all output is final.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from whenabouts.core.hosting.stream_progress import Watch
from whenabouts.core.runtime.protocol import Query


@dataclass(frozen=True, slots=True)
class FileInput:
    """One input of a query: a table for each file, all of one schema.

    `tables` may read each table when it is asked for. `parquet`: the files of these very tables, for an engine that
    would rather read them itself. `rows`: the rows of all tables, where they are known.
    """

    name: str
    schema: pa.Schema
    tables: Sequence[pa.Table]
    parquet: tuple[Path, ...] = ()
    rows: int | None = None


@dataclass(slots=True)
class OutcomeBatches:
    """The outcome of a run, batch by batch: take `batches` first and then `rejects`, each once.

    `rows` counts the rows of `batches` that have been taken. Schemas and `metrics` are those of an `Outcome`; the
    metrics are complete after the last batch.
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
    def of(cls, output: pa.Table, rejects: pa.Table, metrics: Counter[str]) -> OutcomeBatches:
        """The outcome of an engine that holds all rows in memory."""
        return cls(output.schema, iter(output.to_batches()), iter(rejects.to_batches()), metrics)

    def table(self) -> pa.Table:
        """All rows that have not been taken yet."""
        return pa.Table.from_batches(list(self.batches), self.schema)


class RunFiles(Protocol):
    """Runs a query over its inputs, in their order, to the end of their files, in batch or as a stream.

    `progress` is called with how far a stream has come. Raises: EngineError WA-3001 or WA-3002
    where the engine cannot run here, WhenaboutsError for what is wrong with query or inputs; what the engine raises
    passes through.
    """

    def __call__(
        self,
        query: Query,
        inputs: Sequence[FileInput],
        *,
        streaming: bool,
        progress: Watch | None = None,
    ) -> OutcomeBatches:
        """The outcome of the run."""


@dataclass(frozen=True, slots=True)
class FileEngine:
    """An engine that runs queries over files.

    `reads_parquet`: which Parquet files, by their schema, it reads itself as `pyarrow` would; None for an engine that
    takes all tables from memory. `start`: starts the processes of the engine for a run over so many rows, so that
    `run_files` need not; another thread may call it before, or while the run begins. None: there are none.
    """

    run_files: RunFiles
    reads_parquet: Callable[[pa.Schema], bool] | None = None
    start: Callable[[int | None], None] | None = None

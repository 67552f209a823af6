"""Spark under the conformance suite: real batch jobs and real streaming queries over Parquet files."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.types import StructType

from whenabouts.core.harness import Capabilities, Variant
from whenabouts.core.hosting.host import OUTPUT, REJECTED, read_counts
from whenabouts.core.local import Outcome
from whenabouts.core.runtime.event_reader import rejects_schema
from whenabouts.core.runtime.protocol import Query
from whenabouts.core.state.segment_codec import decode
from whenabouts.spark_plugin.api import check_checkpoint
from whenabouts.spark_plugin.dataflow import tagged
from whenabouts.spark_plugin.end_of_input import EndOfInput, run_to_end
from whenabouts.spark_plugin.results import Result
from whenabouts.spark_plugin.sessions import local_session
from whenabouts.spark_plugin.tagged_rows import BLOB, TAG

FIRST_FILE_S = 1_000_000_000
"""Modification time of file 0; file n is n seconds younger. Spark's file source takes the oldest first."""

STARVED = "Python worker failed to connect back"
"""What Spark says where the machine had no ten seconds for a new Python process: as in production, the query is started
again, and goes on from its checkpoint."""


class SparkHarness:
    """A local Spark; it shares a session that is already there."""

    name = "spark"
    capabilities = Capabilities()

    def __init__(self) -> None:
        self._own = False
        self._session: SparkSession | None = None

    def start(self) -> None:
        """Start Spark, or use the one that runs."""
        self._own = SparkSession.getActiveSession() is None
        self._session = local_session("whenabouts conformance")

    def stop(self) -> None:
        """Stop what `start` started."""
        if self._own and self._session is not None:
            self._session.stop()
        self._session = None

    def open(self, query: Query, variant: Variant) -> SparkRun:
        """Prepare a run of `query`."""
        if self._session is None:
            self.start()
        assert self._session is not None
        return SparkRun(self._session, query, variant)


class SparkRun:
    """One query being run. `attempts` tells afterwards how often each micro-batch did its stateful work."""

    def __init__(self, session: SparkSession, query: Query, variant: Variant) -> None:
        self._session, self._query, self._variant = session, query, variant
        self._files: dict[str, Sequence[pa.Table]] = {}
        self.attempts: Counter[int] = Counter()

    def source(self, input: str, files: Sequence[pa.Table]) -> None:
        """Give an input its files, in the order in which they arrive."""
        self._files[input] = files

    def collect(self) -> Outcome:
        """Run to the end of the input; everything as Arrow tables in the operator's schema."""
        with TemporaryDirectory(prefix="whenabouts-") as folder:
            folders = [_write(Path(folder) / name, self._files[name]) for name in self._query.inputs]
            schemas = [self._files[name][0].schema for name in self._query.inputs]
            read = _Collected(self._query, schemas, streaming=self._variant.streaming)
            if self._variant.streaming:
                self._stream(Path(folder), folders, read)
            else:
                frames = [self._session.read.parquet(source.as_uri()) for source in folders]
                read.take(0, tagged(self._query, frames, buckets=self._variant.parallelism))
            return read.outcome()

    def _stream(self, folder: Path, folders: list[Path], read: _Collected) -> None:
        schemas = [self._session.read.parquet(source.as_uri()).schema for source in folders]
        crashing = _CrashOnce(folder / "checkpoint", self._variant.restart_after)
        query, patience = self._query, 3
        while True:
            end = EndOfInput(self._session, folder / "end")
            frames = [self._read_stream(*each) for each in zip(folders, schemas, strict=True)]
            result = tagged(query, frames, buckets=self._variant.parallelism, end_of_input=end.stream)

            def write(batch: DataFrame, number: int, result: Result = result) -> None:
                batch.persist()
                try:
                    self.attempts[number] += 1
                    read.take(number, Result(batch, result.hosting))
                    crashing.perhaps(number)
                finally:
                    batch.unpersist()

            if self.attempts:
                check_checkpoint([result], (folder / "checkpoint").as_uri())
            writer = result.tagged.writeStream.foreachBatch(write)
            running = writer.option("checkpointLocation", (folder / "checkpoint").as_uri()).start()
            try:
                run_to_end(running, end)
                return
            except StreamingQueryException as error:
                if STARVED in str(error) and patience:
                    patience -= 1
                    continue
                if not crashing.recovering():
                    raise
                query = self._variant.restarted_as or query
            finally:
                running.stop()

    def _read_stream(self, folder: Path, schema: StructType) -> DataFrame:
        return self._session.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(folder.as_uri())


class _Collected:
    """Results by micro-batch: a batch that comes again replaces its first attempt, as an idempotent sink does."""

    def __init__(self, query: Query, schemas: Sequence[pa.Schema], *, streaming: bool) -> None:
        operator = query.operator(schemas, streaming=streaming)
        self._output_schema = operator.output_schema
        self._rejects_schema = rejects_schema([reader.schema for reader in operator.readers])
        self._batches: dict[int, Outcome] = {}

    def take(self, number: int, result: Result) -> None:
        output = result.output.toArrow().cast(self._output_schema)
        other = result.tagged.where(col(TAG) != OUTPUT).select(TAG, BLOB).collect()
        rejects = [decode(bytes(blob), result.hosting.rejects_schema) for tag, blob in other if tag == REJECTED]
        self._batches[number] = Outcome(
            output,
            pa.Table.from_batches(rejects, result.hosting.rejects_schema).cast(self._rejects_schema),
            read_counts(bytes(blob) for tag, blob in other if tag != REJECTED),
        )

    def outcome(self) -> Outcome:
        parts = [self._batches[number] for number in sorted(self._batches)]
        return Outcome(
            pa.concat_tables([part.output for part in parts]),
            pa.concat_tables([part.rejects for part in parts]),
            sum((part.metrics for part in parts), Counter()),
        )


class _CrashOnce:
    """Fails the micro-batch that takes in file `step`, once, after its stateful work and before its commit."""

    def __init__(self, checkpoint: Path, step: int | None) -> None:
        self._checkpoint, self._step = checkpoint, step
        self._crashed = self._recovered = False

    def perhaps(self, number: int) -> None:
        if self._step is not None and not self._crashed and self._files_begun(number) > self._step:
            self._crashed = True
            raise RuntimeError(f"micro-batch {number} is made to fail")

    def recovering(self) -> bool:
        """Whether a failure is the one that was asked for (true once)."""
        asked = self._crashed and not self._recovered
        self._recovered = self._crashed
        return asked

    def _files_begun(self, number: int) -> int:
        """Steps begun up to a micro-batch: micro-batches without files come in between, so numbers do not tell."""
        lines = (self._checkpoint / "offsets" / str(number)).read_text().splitlines()[2:]
        return max((json.loads(line)["logOffset"] + 1 for line in lines if line != "-"), default=0)


def _write(folder: Path, tables: Sequence[pa.Table]) -> Path:
    folder.mkdir()
    for number, table in enumerate(tables):
        path = folder / f"{number:06}.parquet"
        pq.write_table(table, path, coerce_timestamps="us", allow_truncated_timestamps=True)
        os.utime(path, (FIRST_FILE_S + number, FIRST_FILE_S + number))
    return folder

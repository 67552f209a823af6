"""Spark as an engine of the conformance suite: real batch jobs and streaming queries over Parquet files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.functions import col

from whenabouts.core.harness import Capabilities, Variant
from whenabouts.core.hosting.file_runs import FileInput
from whenabouts.core.hosting.host import OUTPUT, REJECTED, read_counts
from whenabouts.core.local import Outcome
from whenabouts.core.runtime.protocol import Operator, Query
from whenabouts.core.runtime.rejects import rejects_schema
from whenabouts.core.state.segment_codec import decode
from whenabouts.spark_plugin.file_runs import run_batch, run_stream, staged
from whenabouts.spark_plugin.file_session import CHECKPOINTS
from whenabouts.spark_plugin.results import Result
from whenabouts.spark_plugin.sessions import local_session
from whenabouts.spark_plugin.tagged_rows import BLOB, TAG

STARVED = "Python worker failed to connect back"
"""Spark's message if a new Python process took longer than ten seconds to start: as in production, the query is started
again and continues from its checkpoint."""


class SparkHarness:
    """A local Spark; it uses a running session if there is one."""

    name = "spark"
    capabilities = Capabilities()

    def __init__(self) -> None:
        self._own = False
        self._session: SparkSession | None = None

    def start(self) -> None:
        """Start Spark, or use the running one."""
        self._own = SparkSession.getActiveSession() is None
        self._session = local_session("whenabouts conformance", **CHECKPOINTS)

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
    """One query being run. Afterwards `attempts` has the number of times that each micro-batch did its stateful
    work."""

    def __init__(self, session: SparkSession, query: Query, variant: Variant) -> None:
        self._session, self._query, self._variant = session, query, variant
        self._files: dict[str, Sequence[pa.Table]] = {}
        self.attempts: Counter[int] = Counter()

    def source(self, input: str, files: Sequence[pa.Table]) -> None:
        """Give an input its files, in the order in which they arrive."""
        self._files[input] = files

    def collect(self) -> Outcome:
        """Run to the end of the input; everything as Arrow tables in the operator's schema."""
        inputs = [FileInput(name, self._files[name][0].schema, self._files[name]) for name in self._query.inputs]
        operator = self._query.operator([source.schema for source in inputs], streaming=self._variant.streaming)
        read = _Collected(operator)
        with TemporaryDirectory(prefix="whenabouts-") as name:
            folders, buckets = staged(operator, inputs, Path(name)), self._variant.parallelism
            if self._variant.streaming:
                self._stream(Path(name), folders, read)
            else:
                paths = [[folder.as_uri()] for folder in folders]
                run_batch(self._session, self._query, paths, read.take, buckets=buckets)
            return read.outcome()

    def _stream(self, work: Path, folders: list[Path], read: _Collected) -> None:
        crashing = _CrashOnce(work / "checkpoint", self._variant.restart_after)
        query, patience, buckets = self._query, 3, self._variant.parallelism

        def take(number: int, result: Result) -> None:
            result.tagged.persist()
            try:
                self.attempts[number] += 1
                read.take(number, result)
                crashing.perhaps(number)
            finally:
                result.tagged.unpersist()

        while True:
            restarted = bool(self.attempts)
            try:
                run_stream(self._session, query, folders, work, take, buckets=buckets, restarted=restarted)
                return
            except StreamingQueryException as error:
                if STARVED in str(error) and patience:
                    patience -= 1
                    continue
                if not crashing.recovering():
                    raise
                query = self._variant.restarted_as or query


class _Collected:
    """Results by micro-batch: a replayed batch replaces its first attempt, as in an idempotent sink."""

    def __init__(self, operator: Operator) -> None:
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
    """Fails the micro-batch that reads file `step`, once, after its stateful work and before its commit."""

    def __init__(self, checkpoint: Path, step: int | None) -> None:
        self._checkpoint, self._step = checkpoint, step
        self._crashed = self._recovered = False

    def perhaps(self, number: int) -> None:
        if self._step is not None and not self._crashed and self._files_begun(number) > self._step:
            self._crashed = True
            raise RuntimeError(f"micro-batch {number} is made to fail")

    def recovering(self) -> bool:
        """Whether a failure is the requested one (true once)."""
        asked = self._crashed and not self._recovered
        self._recovered = self._crashed
        return asked

    def _files_begun(self, number: int) -> int:
        """Steps begun up to a micro-batch; its number does not say, since some micro-batches have no files."""
        lines = (self._checkpoint / "offsets" / str(number)).read_text().splitlines()[2:]
        return max((json.loads(line)["logOffset"] + 1 for line in lines if line != "-"), default=0)

"""Queries over files on a local Spark, in batch or as a stream.

Inputs are Parquet files: those of the user where Spark can read them as they are, else copies of the tables. Spark's
tasks write the results as the blobs that they come in, and `run_files` reads these again one after the other: this
process holds no more of them than a few blobs.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from whenabouts.core.hosting.file_runs import FileEngine, FileInput, OutcomeBatches
from whenabouts.core.hosting.host import COUNTS, OUTPUT, REJECTED, Hosting, read_counts
from whenabouts.core.hosting.machine import usable_cores
from whenabouts.core.hosting.stream_progress import Watch
from whenabouts.core.runtime.protocol import Operator, Query
from whenabouts.core.runtime.rejects import rejects_schema
from whenabouts.core.state.segment_codec import decode
from whenabouts.spark_plugin.arrow_types import in_spark_types, spark_fields
from whenabouts.spark_plugin.checkpoints import check_start
from whenabouts.spark_plugin.dataflow import tagged
from whenabouts.spark_plugin.end_of_input import EndOfInput, run_to_end
from whenabouts.spark_plugin.file_session import file_session, start
from whenabouts.spark_plugin.observing import Watcher
from whenabouts.spark_plugin.parquet_types import for_spark, from_spark
from whenabouts.spark_plugin.results import Result
from whenabouts.spark_plugin.tagged_rows import BLOB, TAG

BUCKETS = 32
"""Buckets of a batch: more than cores, so that they share the work evenly."""

BUCKETS_PER_CORE = 2
"""Buckets of a stream, where each costs a few round trips to the state in every micro-batch."""

Sink = Callable[[int, Result], None]
"""Takes the results of a micro-batch (0: those of a batch run). A replayed one replaces its first attempt."""

_FIRST_FILE_S = 1_000_000_000
"""Modification time of file 0; file n is n seconds younger. Spark's file source takes the oldest first."""

_BLOBS_AT_ONCE = 4

_PLAIN = frozenset(
    {
        pa.bool_(),
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.string(),
        pa.binary(),
        pa.date32(),
    }
)
"""Types that Spark reads from Parquet as `spark_fields` says; timestamps in microseconds are others."""


def run_files(
    query: Query,
    inputs: Sequence[FileInput],
    *,
    streaming: bool,
    progress: Watch | None = None,
) -> OutcomeBatches:
    """As `whenabouts.core.hosting.file_runs.RunFiles`. Temporary files go when the result has been read, or at the
    latest with the process."""
    operator = query.operator([source.schema for source in inputs], streaming=streaming)
    rows = [source.rows for source in inputs]
    session = file_session(None if None in rows else sum(map(int, filter(None, rows))))
    holder = TemporaryDirectory(prefix="whenabouts-")
    folder = Path(holder.name)

    def write(number: int, result: Result) -> None:
        result.tagged.write.mode("overwrite").partitionBy(TAG).parquet((folder / "result" / str(number)).as_uri())

    try:
        if streaming:
            buckets = BUCKETS_PER_CORE * usable_cores()
            folders = staged(operator, inputs, folder)
            hosting = run_stream(session, query, folders, folder, write, buckets=buckets, watch=progress)
        else:
            hosting = run_batch(session, query, _in_place(operator, inputs, folder), write, buckets=BUCKETS)
    except BaseException:
        holder.cleanup()
        raise
    return OutcomeBatches(
        operator.output_schema,
        _rows(folder, OUTPUT, hosting.operator().output_schema, operator.output_schema),
        _last_rows(holder, hosting.rejects_schema, rejects_schema([reader.schema for reader in operator.readers])),
        read_counts(_blobs(folder, COUNTS)),
    )


def reads_parquet(schema: pa.Schema) -> bool:
    """Whether Spark reads Parquet files of this schema as pyarrow does."""
    return bool(in_spark_types(schema) == schema)


FILE_ENGINE = FileEngine(run_files, reads_parquet, start)


def run_batch(
    session: SparkSession, query: Query, paths: Sequence[Sequence[str]], sink: Sink, *, buckets: int
) -> Hosting:
    """Run a query over each input's Parquet files or folders, all rows at once."""
    result = tagged(query, [session.read.parquet(*each) for each in paths], buckets=buckets)
    sink(0, result)
    return result.hosting


def run_stream(
    session: SparkSession,
    query: Query,
    folders: Sequence[Path],
    work: Path,
    sink: Sink,
    *,
    buckets: int,
    restarted: bool = False,
    watch: Watch | None = None,
) -> Hosting:
    """Run a query over folders of `staged` as a stream, one file a micro-batch, to the end of the input.

    `work` holds the checkpoint. `restarted`: a run before has failed, and this one continues from its checkpoint.
    `watch` is called after each micro-batch.
    """
    end = EndOfInput(session, work / "end")
    checkpoint = (work / "checkpoint").as_uri()
    result = tagged(query, [_stream(session, folder) for folder in folders], buckets=buckets, end_of_input=end.stream)

    watcher = None if watch is None else Watcher(watch)
    started: list[StreamingQuery] = []

    def write(batch: DataFrame, number: int) -> None:
        look()
        sink(number, Result(batch, result.hosting))

    def look() -> None:
        if watcher is not None:
            for query in started:
                watcher.look(query)

    if restarted:
        check_start([result], checkpoint)
    running = result.tagged.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).start()
    started.append(running)
    try:
        run_to_end(running, end)
        look()
    except Exception:  # after Ctrl-C there may be no JVM any more to stop it in
        running.stop()
        raise
    return result.hosting


def staged(operator: Operator, inputs: Sequence[FileInput], folder: Path) -> list[Path]:
    """A folder for each input with a Parquet file for each of its tables, which Spark's file source takes in order."""
    return [
        _staged(source, folder / "inputs" / source.name, _times_only(operator, index))
        for index, source in enumerate(inputs)
    ]


def _staged(source: FileInput, target: Path, times: Collection[str]) -> Path:
    target.mkdir(parents=True)
    for number in range(len(source.tables)):
        path = target / f"{number:06}.parquet"
        if source.parquet:
            shutil.copyfile(source.parquet[number], path)
        else:
            table = for_spark(source.tables[number], times)
            pq.write_table(table, path, coerce_timestamps="us")
        os.utime(path, (_FIRST_FILE_S + number, _FIRST_FILE_S + number))
    return target


def _in_place(operator: Operator, inputs: Sequence[FileInput], folder: Path) -> list[list[str]]:
    """What a batch reads of each input: the user's own files, or staged ones."""
    paths = []
    for index, source in enumerate(inputs):
        own = [path.absolute().as_uri() for path in source.parquet]
        paths.append(own or [_staged(source, folder / "inputs" / source.name, _times_only(operator, index)).as_uri()])
    return paths


def _times_only(operator: Operator, index: int) -> set[str]:
    """Time columns of an input that are not keys: nothing finer than a microsecond is asked of them."""
    return set(operator.readers[index].time.columns) - set(operator.keys.of(index))


def _stream(session: SparkSession, folder: Path) -> DataFrame:
    path = folder.as_uri()
    schema = _plain_schema(folder) or session.read.parquet(path).schema
    return session.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(path)


def _plain_schema(folder: Path) -> StructType | None:
    """The schema of staged files as Spark would infer it by a job of its own; None where Spark has to say."""
    schema = pq.read_schema(next(folder.iterdir()))
    plain = all(field.type in _PLAIN or pa.types.is_timestamp(field.type) for field in schema)
    return StructType(spark_fields(schema)) if plain else None


def _blobs(folder: Path, tag: int) -> Iterator[bytes]:
    for part in sorted((folder / "result").glob(f"*/{TAG}={tag}/*.parquet")):
        with pq.ParquetFile(part) as file:
            for batch in file.iter_batches(batch_size=_BLOBS_AT_ONCE, columns=[BLOB]):
                yield from (blob.as_py() for blob in batch.column(0))


def _last_rows(holder: TemporaryDirectory[str], written: pa.Schema, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rejects, which are read last."""
    with holder as folder:
        yield from _rows(Path(folder), REJECTED, written, schema)


def _rows(folder: Path, tag: int, written: pa.Schema, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for blob in _blobs(folder, tag):
        rows = pa.Table.from_batches([decode(blob, written)])
        yield from from_spark(rows, schema).combine_chunks().to_batches()

"""Runs a command's query on a local Spark; imported only when Spark is chosen.

Inputs are Parquet files: those of the user where Spark can read them as they are, else copies of what the command has
read. Results are written by Spark's tasks, as the blobs that they come in, and read again one after the other: this
process holds no more of them than a blob.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from whenabouts.cli.engine_results import EngineResult
from whenabouts.cli.machine import usable_cores
from whenabouts.cli.tables import Input, ParquetTables
from whenabouts.core.arrays.ticks import as_ticks
from whenabouts.core.errors import Code, InputError
from whenabouts.core.hosting.host import COUNTS, OUTPUT, REJECTED, Hosting, read_counts
from whenabouts.core.runtime.event_reader import rejects_schema
from whenabouts.core.runtime.protocol import Query
from whenabouts.core.state.segment_codec import decode
from whenabouts.spark_plugin import check_environment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BUCKETS = 32
"""Into how many parts keys are split in batch: more than cores, so that they share the work evenly."""

BUCKETS_PER_CORE = 2
"""The same of a stream, where each bucket costs a few round trips to the state in every micro-batch."""

FIRST_FILE_S = 1_000_000_000
"""Modification time of file 0; file n is n seconds younger. Spark's file source takes the oldest first."""

_BLOBS_AT_ONCE = 4


def can_read(schema: pa.Schema) -> bool:
    """Whether Spark reads Parquet files of this schema as the command would."""
    check_environment()
    from whenabouts.spark_plugin.arrow_types import in_spark_types

    return bool(in_spark_types(schema) == schema)


def run_on_spark(query: Query, inputs: Sequence[Input], *, stream: bool) -> EngineResult:
    """Run a query over the inputs, one file of each after the other, to their end.

    Raises: EngineError WA-3001 or WA-3002 where Spark cannot run here; what Spark raises passes through.
    """
    check_environment()
    from whenabouts.spark_plugin.dataflow import tagged
    from whenabouts.spark_plugin.sessions import local_session

    operator = query.operator([source.schema for source in inputs], streaming=stream)
    cut = [set(reader.time.columns) - set(operator.keys.of(place)) for place, reader in enumerate(operator.readers)]
    # Names are exact, as on every engine of the command line. With a writer for each tag, Spark need not sort blobs by
    # tag before it writes them.
    spark = local_session(
        cores=usable_cores(), spark__sql__caseSensitive="true", spark__sql__maxConcurrentOutputFileWriters=4
    )
    holder = TemporaryDirectory(prefix="whenabouts-")  # goes when the result is read, or at the latest with the process
    folder = Path(holder.name)
    if stream:
        staged = [_staged(source, folder, times) for source, times in zip(inputs, cut, strict=True)]
        hosting = _stream(spark, query, staged, folder)
    else:
        frames = [_batch(spark, source, folder, times) for source, times in zip(inputs, cut, strict=True)]
        result = tagged(query, frames, buckets=BUCKETS)
        _write(result.tagged, folder / "result" / "0")
        hosting = result.hosting
    return EngineResult(
        operator.output_schema,
        _output(holder, hosting, operator.output_schema),
        _rows(folder, REJECTED, hosting.rejects_schema, rejects_schema([reader.schema for reader in operator.readers])),
        read_counts(_blobs(folder, COUNTS)),
    )


def _stream(spark: SparkSession, query: Query, folders: list[Path], folder: Path) -> Hosting:
    from whenabouts.spark_plugin.dataflow import tagged
    from whenabouts.spark_plugin.end_of_input import EndOfInput, run_to_end

    end = EndOfInput(spark, folder / "end")
    frames = []
    for source in folders:
        schema = spark.read.parquet(source.as_uri()).schema
        frames.append(spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(source.as_uri()))
    result = tagged(query, frames, buckets=BUCKETS_PER_CORE * usable_cores(), end_of_input=end.stream)

    def write(batch: DataFrame, number: int) -> None:
        _write(batch, folder / "result" / str(number))

    writer = result.tagged.writeStream.foreachBatch(write)
    run_to_end(writer.option("checkpointLocation", (folder / "checkpoint").as_uri()).start(), end)
    return result.hosting


def _write(tagged: DataFrame, folder: Path) -> None:
    """All results by tag; a micro-batch that comes again replaces its first attempt."""
    tagged.write.mode("overwrite").partitionBy("tag").parquet(folder.as_uri())


def _blobs(folder: Path, tag: int) -> Iterator[bytes]:
    for part in sorted((folder / "result").glob(f"*/tag={tag}/*.parquet")):
        with pq.ParquetFile(part) as file:
            for batch in file.iter_batches(batch_size=_BLOBS_AT_ONCE, columns=["blob"]):
                yield from (blob.as_py() for blob in batch.column(0))


def _output(holder: TemporaryDirectory[str], hosting: Hosting, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with holder as folder:
        yield from _rows(Path(folder), OUTPUT, hosting.operator().output_schema, schema)


def _rows(folder: Path, tag: int, written: pa.Schema, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for blob in _blobs(folder, tag):
        rows = pa.Table.from_batches([decode(blob, written)])
        yield from as_local(rows, schema).combine_chunks().to_batches()


def _batch(spark: SparkSession, source: Input, folder: Path, cut: Collection[str]) -> DataFrame:
    if isinstance(source.tables, ParquetTables):
        return spark.read.parquet(*(path.absolute().as_uri() for path in source.tables.paths))
    return spark.read.parquet(_staged(source, folder, cut).as_uri())


def _staged(source: Input, folder: Path, cut: Collection[str]) -> Path:
    """A folder with a Parquet file for each of the input's, which Spark takes in this order. `cut`: see `for_spark`."""
    target = folder / "inputs" / source.name
    target.mkdir(parents=True)
    for number in range(len(source.tables)):
        path = target / f"{number:06}.parquet"
        if isinstance(source.tables, ParquetTables):
            shutil.copyfile(source.tables.paths[number], path)
        else:
            table = for_spark(source.tables[number], cut)
            pq.write_table(table, path, coerce_timestamps="us", allow_truncated_timestamps=True)
        os.utime(path, (FIRST_FILE_S + number, FIRST_FILE_S + number))
    return target


def as_local(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The types that the local engine gives, undoing `for_spark`.

    >>> as_local(pa.table({"b": pa.array([None], pa.string())}), pa.schema({"b": pa.null()})).schema.types
    [DataType(null)]
    """
    columns = [
        pa.chunked_array([pa.nulls(table.num_rows)]) if pa.types.is_null(field.type) else column.cast(field.type)
        for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def for_spark(table: pa.Table, cut: Collection[str] = ()) -> pa.Table:
    """Columns whose types Spark does not read from Parquet, in the nearest type that it does.

    Of the columns `cut` what is finer than a microsecond is left out, as the core does with times. Raises InputError
    WA-1067 for other values that Spark's types do not hold.

    >>> for_spark(pa.table({"a": pa.array(["x"]).dictionary_encode(), "b": pa.nulls(1)})).schema.types
    [DataType(string), DataType(string)]
    """
    from whenabouts.spark_plugin.arrow_types import in_spark_types

    schema = in_spark_types(table.schema)
    columns = [
        _for_spark(column, field, cut=field.name in cut) for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _for_spark(column: pa.ChunkedArray, field: pa.Field, *, cut: bool) -> pa.ChunkedArray:
    if cut and pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        us = [_cut(chunk) for chunk in column.chunks]
        return pa.chunked_array(us, pa.int64()).cast(field.type)
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as error:
        raise InputError(
            Code.VALUE_DOES_NOT_FIT,
            f"column {field.name!r} is {column.type}, and Spark, which has {field.type}, would change it: {error}",
            "run it on --engine local, or round the column",
        ) from error


def _cut(times: pa.Array) -> pa.Array:
    ticks = as_ticks(times)
    return pa.array(np.asarray(ticks.fill_null(0)) // 1000, pa.int64(), mask=np.asarray(ticks.is_null()))

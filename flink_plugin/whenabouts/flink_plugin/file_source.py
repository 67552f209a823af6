"""Files as a stream of blocks: Parquet, Arrow and CSV, read by row group straight into Arrow, without a row in between.

The job's source gives out only names of *splits* (a row group, a file); the rows are read where they are packed. What
has been given out is part of every checkpoint, so that a job that is restored goes on with the split at which it was.
"""

from __future__ import annotations

import glob
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from pyflink.common import Types, WatermarkStrategy
from pyflink.datastream import DataStream, StreamExecutionEnvironment
from pyflink.datastream.connectors import Source
from pyflink.java_gateway import get_gateway

from whenabouts.core.errors import Code, InputError
from whenabouts.flink_plugin.blocks import Blocks

ROWS_PER_BLOCK = 1 << 16
"""Rows that are read and packed together."""


def read_files(
    env: StreamExecutionEnvironment,
    paths: str | Path | Sequence[str | Path],
    *,
    schema: pa.Schema | None = None,
    splits_per_checkpoint: int | None = None,
    name: str = "files",
) -> Blocks:
    """The rows of files, in the order of the paths; a folder's or a glob's files in that of their names.

    Parquet (`.parquet`), Arrow IPC (`.arrow`, `.feather`) and CSV (`.csv`, `.csv.gz`) files, that all workers can read.
    `schema`: of all files, that of the first one if not given. `splits_per_checkpoint` holds a stream back to so many
    splits between two checkpoints; None reads as fast as the job goes. `name` is the source's uid. Raises InputError
    WA-1008 where there is no file or a file of another kind. Cost here: the footer of every Parquet file.
    """
    files = [file for path in _listed(paths) for file in _expanded(path)]
    if not files:
        raise InputError(Code.UNREADABLE_FILE, f"there is no file at {paths}", "give files, folders or globs")
    splits = [split for file in files for split in _splits(file)]
    numbers = split_stream(env, splits, splits_per_checkpoint=splits_per_checkpoint, name=name)
    schema = _schema(files[0]) if schema is None else schema
    return Blocks(numbers, schema, ReadSplit(schema))


def split_stream(
    env: StreamExecutionEnvironment, splits: Sequence[str], *, splits_per_checkpoint: int | None = None, name: str
) -> DataStream:
    """A stream of texts in their order, whose position is kept in checkpoints."""
    jvm = get_gateway().jvm
    text = Types.STRING().get_java_type_info()
    listed = jvm.java.util.ArrayList()
    for split in splits:
        listed.add(split)
    datagen = jvm.org.apache.flink.connector.datagen
    look_up = datagen.functions.IndexLookupGeneratorFunction(text, listed)
    pace = jvm.org.apache.flink.api.connector.source.util.ratelimit.RateLimiterStrategy
    paced = pace.noOp() if splits_per_checkpoint is None else pace.perCheckpoint(splits_per_checkpoint)
    source = Source(datagen.source.DataGeneratorSource(look_up, len(splits), paced, text))
    return env.from_source(source, WatermarkStrategy.no_watermarks(), name).uid(name).set_parallelism(1)


@dataclass(frozen=True)
class ReadSplit:
    """Reads a split's rows, in blocks of bounded size."""

    schema: pa.Schema

    def __call__(self, split: str) -> Iterator[pa.RecordBatch]:
        """Record batches of the schema. Raises InputError WA-1008 for a file that cannot be read."""
        described = json.loads(split)
        path, group = described["path"], described["group"]
        try:
            yield from _conformed(_batches(path, group), self.schema)
        except (OSError, pa.ArrowInvalid, KeyError) as error:
            raise InputError(
                Code.UNREADABLE_FILE, f"{path} cannot be read: {error}", "mend or leave out the file"
            ) from error


def _batches(path: str, group: int | None) -> Iterator[pa.RecordBatch]:
    if path.endswith(".parquet"):
        with pq.ParquetFile(path) as file:
            groups = [] if group is None else [group]
            yield from file.iter_batches(batch_size=ROWS_PER_BLOCK, row_groups=groups)
    elif path.endswith((".arrow", ".feather")):
        with pa.memory_map(path) as file:
            reader = pa.ipc.open_file(file)
            if group is not None:
                yield reader.get_batch(group)
    else:
        with pa.csv.open_csv(path) as reader:
            yield from reader


def _conformed(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        columns = [batch.column(field.name).cast(field.type) for field in schema]
        rows = pa.RecordBatch.from_arrays(columns, schema=schema)
        for start in range(0, rows.num_rows, ROWS_PER_BLOCK):
            yield rows.slice(start, ROWS_PER_BLOCK)


def _splits(file: str) -> list[str]:
    groups: Sequence[int | None] = [None]
    if file.endswith(".parquet"):
        groups = range(pq.read_metadata(file).num_row_groups)
    elif file.endswith((".arrow", ".feather")):
        with pa.memory_map(file) as opened:
            groups = range(pa.ipc.open_file(opened).num_record_batches)
    return [json.dumps({"path": file, "group": group}) for group in groups]


def _schema(file: str) -> pa.Schema:
    if file.endswith(".parquet"):
        return pq.read_schema(file)
    if file.endswith((".arrow", ".feather")):
        with pa.memory_map(file) as opened:
            return pa.ipc.open_file(opened).schema
    with pa.csv.open_csv(file) as reader:
        return reader.schema


_KINDS = (".parquet", ".arrow", ".feather", ".csv", ".csv.gz")


def _listed(paths: str | Path | Sequence[str | Path]) -> list[str]:
    return [str(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]


def _expanded(path: str) -> list[str]:
    if Path(path).is_dir():
        found = sorted(str(file) for file in Path(path).iterdir() if file.name.endswith(_KINDS))
    else:
        found = [path] if Path(path).exists() else sorted(glob.glob(path))
    for file in found:
        if not file.endswith(_KINDS):
            raise InputError(Code.UNREADABLE_FILE, f"{file} is of no kind that is read", f"give {', '.join(_KINDS)}")
    return [str(Path(file).absolute()) for file in found]

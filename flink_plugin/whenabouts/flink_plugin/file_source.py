"""Files as a stream of blocks: Parquet, Arrow and CSV, read by row group straight into Arrow.

The job's source emits only the names of *splits* (a row group, a file); the rows are read where they are packed. Its
position is part of every checkpoint, and so is the list that it is a position in: a restored job continues with the
right split, or ends.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyflink.common import Types, WatermarkStrategy
from pyflink.datastream import DataStream, StreamExecutionEnvironment
from pyflink.datastream.connectors import Source
from pyflink.java_gateway import get_gateway

from whenabouts.core.errors import Code, EngineError, InputError
from whenabouts.core.runtime.option_checks import refused, whole_number
from whenabouts.core.sources.csv_files import CsvFile, csv_batches, read_csv
from whenabouts.core.sources.files import check_distinct
from whenabouts.core.sources.written_values import as_asked, as_type_of_part, natural_type
from whenabouts.flink_plugin.blocks import Blocks
from whenabouts.flink_plugin.file_systems import LOCAL, File, listed
from whenabouts.flink_plugin.java_operators import followed_by

ROWS_PER_BLOCK, MOST_ROWS_PER_BLOCK, BYTES_PER_BLOCK = 1 << 16, 1 << 18, 1 << 26
"""Rows that are read and packed together; more of them, up to a limit, as long as they have no more bytes than that:
each bucket has a step for each block, which costs as much as thousands of rows do."""


def rows_per_block(rows: int, size: int) -> int:
    """How many rows belong in a block if `rows` of them have `size` bytes.

    >>> rows_per_block(1_000, 24_000), rows_per_block(1_000, 512_000), rows_per_block(1_000, 5_000_000)
    (262144, 131072, 65536)
    """
    return max(ROWS_PER_BLOCK, min(MOST_ROWS_PER_BLOCK, BYTES_PER_BLOCK * rows // max(size, 1)))


def read_files(
    env: StreamExecutionEnvironment,
    paths: str | Path | Sequence[str | Path],
    *,
    schema: pa.Schema | None = None,
    splits_per_checkpoint: int | None = None,
    name: str = "files",
    filesystem: Any = None,
) -> Blocks:
    """The rows of files, in the order of the paths; files of a folder or glob in the order of their names. A folder's
    own folders are not read, nor names that begin with `_` or `.`; in a glob `**` stands for any number of folders.

    Parquet (`.parquet`), Arrow IPC (`.arrow`, `.feather`) and CSV (`.csv`, `.csv.gz`) files, that all workers can read.
    `paths`: on this machine, or URIs (`s3://bucket/folder/*.parquet`) that pyarrow knows, or fsspec if it is installed.
    `filesystem`: a file system of pyarrow or fsspec for all paths, such as
    `pyarrow.fs.S3FileSystem(region="eu-west-1")`; it is sent to the workers with its settings, including credentials.
    `schema`: of all files; by default that of the first one. A CSV file says it by all its values, as on the command
    line, and is read here for it. `splits_per_checkpoint` limits the splits that a stream reads between two
    checkpoints; None: no limit. `name` is the source's uid. Raises InputError WA-1008 if there is no file, a file of
    another kind, or one that cannot be read; the job does so, too, and ends with WA-1067 for a value of a CSV file that
    does not fit the first one's. From a checkpoint it reads the files that it began with, which later ones may follow,
    unread; it ends with WA-3031 where others are before them or in their place, by their names, lengths and parts. Cost
    here: the footer of every Parquet and Arrow file, and without `schema` the first file if it is CSV.
    """
    if not isinstance(env, StreamExecutionEnvironment):
        raise refused("env", env, "give a StreamExecutionEnvironment, as local_environment() makes one")
    check_paths(paths)
    if splits_per_checkpoint is not None:
        splits_per_checkpoint = whole_number("splits_per_checkpoint", splits_per_checkpoint)
    files = listed(paths, filesystem)
    systems: list[fs.FileSystem] = []
    for file in files:
        if file.system not in systems:
            systems.append(file.system)
    splits, parts = list[str](), list[str]()
    for file in files:
        of_file = _splits(file, systems.index(file.system))
        splits += of_file
        parts += [f"{Path(file.path).name} {file.size} {place}" for place in range(len(of_file))]
    numbers = split_stream(env, splits, splits_per_checkpoint=splits_per_checkpoint, name=name)
    numbers = _of_one_list(numbers, parts, name)
    asked = schema is not None or not files[0].path.endswith((".csv", ".csv.gz"))
    schema = _schema(files[0]) if schema is None else schema
    return Blocks(numbers, schema, ReadSplit(schema, tuple(systems), asked))


def check_paths(paths: Any) -> None:
    """Raise QueryError WA-2006 for what is neither a path nor a list of paths."""
    listed = (paths,) if isinstance(paths, str | Path) else paths
    if not isinstance(listed, Sequence) or not all(isinstance(path, str | Path) for path in listed):
        raise refused("paths", paths, "give a path, or a list of paths")


def split_stream(
    env: StreamExecutionEnvironment, splits: Sequence[str], *, splits_per_checkpoint: int | None = None, name: str
) -> DataStream:
    """A stream of texts in order, whose position is part of checkpoints."""
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
    """Reads a split's rows, in blocks of bounded size. A split contains the number of its file system.

    `asked`: whether the user or a file with types gave the schema, not a CSV file. Then texts of CSV are read as its
    types, in any form: `007` is 7.
    """

    schema: pa.Schema
    systems: tuple[fs.FileSystem, ...] = (LOCAL,)
    asked: bool = True

    def __call__(self, split: str) -> Iterator[pa.RecordBatch]:
        """Record batches of the schema. Raises InputError WA-1008 for a file that cannot be read."""
        described = json.loads(split)
        file = File(self.systems[described["system"]], described["path"])
        with _readable(file):
            yield from _conformed(self._batches(file, described["group"]), self.schema)

    def _batches(self, file: File, group: int | None) -> Iterator[pa.RecordBatch]:
        if file.path.endswith(".parquet"):
            with _parquet(file) as parquet:
                if group is not None:
                    about = parquet.metadata.row_group(group)
                    size = rows_per_block(about.num_rows, about.total_byte_size)
                    yield from parquet.iter_batches(batch_size=size, row_groups=[group])
        elif file.path.endswith((".arrow", ".feather")):
            with _arrow(file) as reader:
                if group is not None:
                    yield reader.get_batch(group)
        else:
            first = 0
            for texts in csv_batches(_csv(file), self.schema.names):
                columns = [self._typed(texts.column(field.name), field, file, first) for field in self.schema]
                yield pa.RecordBatch.from_arrays(columns, names=self.schema.names)
                first += texts.num_rows

    def _typed(self, text: pa.Array, field: pa.Field, file: File, first: int) -> pa.Array:
        if not self.asked:
            return as_type_of_part(text, field.type, f"column {field.name!r} of {file.path}", first)
        return as_asked(text, field.type)


@contextmanager
def _readable(file: File) -> Iterator[None]:
    """Adds the file's name to whatever pyarrow or a file system raises."""
    try:
        yield
    except (OSError, pa.ArrowException, KeyError) as error:
        hint = "mend or leave out the file"
        raise InputError(Code.UNREADABLE_FILE, f"{file.path} cannot be read: {error}", hint) from error


def _conformed(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        columns = [batch.column(field.name).cast(field.type) for field in schema]
        rows = pa.RecordBatch.from_arrays(columns, schema=schema)
        size = rows_per_block(rows.num_rows, rows.nbytes)
        for start in range(0, rows.num_rows, size):
            yield rows.slice(start, size)


def _of_one_list(splits: DataStream, parts: Sequence[str], name: str) -> DataStream:
    """Splits whose source has a position in a list of these parts: a job that continues with another one ends. Folders
    do not tell parts from others: files may be moved."""
    other = EngineError(
        Code.OTHER_REPLAY,
        f"the checkpoint belongs to other files of {name!r}, or to these in another order",
        "restore them, or start without a checkpoint; more files may only follow those that were there",
    )
    return followed_by(splits._j_data_stream, "SplitList", [str(other), *parts], f"{name}-list", parallelism=1)


def _splits(file: File, system: int = 0) -> list[str]:
    groups: Sequence[int | None] = [None]
    with _readable(file):
        if file.path.endswith(".parquet"):
            with _parquet(file) as parquet:
                groups = range(parquet.num_row_groups)
        elif file.path.endswith((".arrow", ".feather")):
            with _arrow(file) as reader:
                groups = range(reader.num_record_batches)
    return [json.dumps({"path": file.path, "group": group, "system": system}) for group in groups]


def _schema(file: File) -> pa.Schema:
    with _readable(file):
        if file.path.endswith(".parquet"):
            with _parquet(file) as parquet:
                return parquet.schema_arrow
        if file.path.endswith((".arrow", ".feather")):
            with _arrow(file) as reader:
                return reader.schema
        table = read_csv(_csv(file))
        check_distinct(Path(file.path), table.schema.names)
        return pa.schema([(name, natural_type(table.column(name))) for name in table.schema.names])


@contextmanager
def _parquet(file: File) -> Iterator[pq.ParquetFile]:
    with file.system.open_input_file(file.path) as opened, pq.ParquetFile(opened) as parquet:
        yield parquet


@contextmanager
def _arrow(file: File) -> Iterator[pa.ipc.RecordBatchFileReader]:
    local = isinstance(file.system, fs.LocalFileSystem)
    with pa.memory_map(file.path) if local else file.system.open_input_file(file.path) as opened:
        yield pa.ipc.open_file(opened)


def _csv(file: File) -> CsvFile:
    system, path, _ = file
    return CsvFile(path, lambda: system.open_input_stream(path), lambda: system.open_input_file(path))

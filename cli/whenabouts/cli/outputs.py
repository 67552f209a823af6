"""Writes results as Parquet, CSV or JSON lines, or as CSV to stdout; files appear when they are complete."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc

from whenabouts.cli.output_files import STDOUT, check_files, output_file
from whenabouts.cli.say import printable
from whenabouts.core.arrays.ticks import as_ticks
from whenabouts.core.arrays.value_texts import in_calendar, iso_texts, json_lines, texts
from whenabouts.core.errors import Code, InputError, QueryError

PICTURES = (".png", ".svg", ".pdf")
_PARQUET_ROWS_AT_ONCE = 1 << 20
_CSV_ROWS_AT_ONCE = 500_000
_JSON_ROWS_AT_ONCE = 20_000
_DAYS, _DAY_MS = 2**31, 86_400_000


def check_targets(output: str | None, rejects: str | None) -> None:
    """Refuse targets with an unknown extension or folder, or that are not writable (QueryError WA-2006)."""
    if rejects == STDOUT:
        raise QueryError(
            Code.BAD_OPTION, "--rejects - is not possible", "stdout is reserved for the result: name a file"
        )
    targets = (output, "--output"), (rejects, "--rejects")
    check_files(targets, _WRITERS, "use .parquet, .csv, .jsonl or -")


def check_picture(target: str | None, *, with_why: bool) -> None:
    """Refuse --picture without --why, and a target as `check_targets` does (QueryError WA-2006)."""
    if target is None:
        return
    if not with_why:
        raise QueryError(Code.BAD_OPTION, "--picture is of two rows", "say which ones: --why LEFT_ROW,RIGHT_ROW")
    if target == STDOUT:
        raise QueryError(Code.BAD_OPTION, "--picture - is not possible", "name a file")
    check_files([(target, "--picture")], PICTURES, "use .png, .svg or .pdf")


def check_columns(schema: pa.Schema, target: str | None, option: str) -> None:
    """Refuse columns that the format does not support, such as nested columns in CSV (QueryError WA-2006)."""
    if target is None:
        return
    suffix = ".csv" if target == STDOUT else Path(target).suffix.lower()
    for column in schema:
        if suffix == ".csv" and pa.types.is_nested(column.type):
            raise QueryError(
                Code.BAD_OPTION,
                f"{option} {target}: column {column.name!r} is {column.type}, and CSV has no nested columns",
                "write .parquet or .jsonl",
            )
        if suffix == ".parquet" and not _is_parquet(column):
            raise QueryError(
                Code.BAD_OPTION,
                f"{option} {target}: column {column.name!r} is {column.type}, which Parquet does not support",
                "write .jsonl",
            )


def _is_parquet(column: pa.Field) -> bool:
    import pyarrow.parquet as pq

    try:
        pq.write_table(pa.schema([column]).empty_table(), pa.BufferOutputStream())
    except (pa.ArrowException, NotImplementedError):
        return False
    return True


def write_table(table: pa.Table, target: str) -> None:
    """Write a table, as `write_batches` does."""
    write_batches(table.schema, iter(table.to_batches()), target)


def write_batches(schema: pa.Schema, batches: Iterator[pa.RecordBatch], target: str) -> None:
    """Write batches one by one, as `output_file` does. For text see `value_texts`.

    Memory: about a million rows. Raises: EngineError WA-3005 for failed writes, InputError WA-1067 for a time that
    Parquet cannot represent.
    """
    if target == STDOUT:
        stdout: Any = _Terminal() if sys.stdout.isatty() else sys.stdout.buffer
        _write_csv(schema, batches, stdout)
        return
    with output_file(target) as file:
        _WRITERS[Path(target).suffix.lower()](schema, batches, file)


class _Terminal(io.RawIOBase):
    """Stdout if it is a terminal: control characters are escaped."""

    def write(self, data: Any) -> int:
        text = bytes(data).decode("utf-8", "replace")
        sys.stdout.write(printable(text))
        return len(data)

    def flush(self) -> None:
        sys.stdout.flush()


def _write_parquet(schema: pa.Schema, batches: Iterator[pa.RecordBatch], file: IO[bytes]) -> None:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for table in _tables(schema, batches, _PARQUET_ROWS_AT_ONCE):
            for column, field in zip(table.columns, schema, strict=True):
                _check_kept(column, field)
            writer.write_table(table)


def _check_kept(column: pa.ChunkedArray, field: pa.Field) -> None:
    """Refuse times that Parquet would change silently: it has no seconds, and no dates with a time of day.

    Raises InputError WA-1067.
    """
    for leaf in (leaf for chunk in column.chunks for leaf in _leaves(chunk)):
        type_ = leaf.type
        if pa.types.is_date64(type_):
            limit = _DAYS * _DAY_MS
            bad = [
                ms for ms in pc.unique(as_ticks(leaf)).to_pylist() if ms and (ms % _DAY_MS or not -limit <= ms < limit)
            ]
        elif (pa.types.is_timestamp(type_) or pa.types.is_time32(type_)) and type_.unit == "s":
            ends = pc.min_max(as_ticks(leaf)).as_py().values()
            limit = 2 ** (type_.bit_width - 1)
            bad = [end for end in ends if end is not None and not -limit <= end * 1000 < limit]
        else:
            continue
        if bad:
            raise InputError(
                Code.VALUE_DOES_NOT_FIT,
                f"column {field.name!r} is {field.type}, and Parquet, which has milliseconds and whole days, "
                f"cannot hold {bad[0]}",
                "write .jsonl or .csv",
            )


def _leaves(column: pa.Array) -> Iterator[pa.Array]:
    """The columns that a nested column consists of."""
    type_ = column.type
    if pa.types.is_struct(type_):
        parts = column.flatten()
    elif pa.types.is_map(type_):
        parts = [column.keys, column.items]
    elif pa.types.is_nested(type_):
        parts = [column.flatten()]
    else:
        yield column
        return
    for part in parts:
        yield from _leaves(part)


def _write_csv(schema: pa.Schema, batches: Iterator[pa.RecordBatch], file: IO[bytes]) -> None:
    from pyarrow import csv

    header = True
    for table in _tables(schema, batches, _CSV_ROWS_AT_ONCE):
        sink = pa.BufferOutputStream()  # Arrow would close stdout
        csv.write_csv(_csv_ready(table), sink, csv.WriteOptions(include_header=header))
        file.write(sink.getvalue())
        header = False
    file.flush()


def _tables(schema: pa.Schema, batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """The batches as tables of `rows` rows, the last one smaller; at least one table, perhaps empty."""
    waiting: list[pa.RecordBatch] = []
    held, first = 0, True
    for batch in batches:
        waiting.append(batch)
        held += batch.num_rows
        if held >= rows:
            whole = pa.Table.from_batches(waiting, schema)
            for start in range(0, held - rows + 1, rows):
                yield whole.slice(start, rows)
            waiting = whole.slice(held - held % rows).to_batches()
            held %= rows
            first = False
    if held or first:
        yield pa.Table.from_batches(waiting, schema)


def _csv_ready(table: pa.Table) -> pa.Table:
    """Columns that Arrow does not write to CSV, or not exactly, as text."""
    for index, column in enumerate(table.schema):
        if not _is_csv(column.type):
            table = table.set_column(index, column.name, _as_text(table.column(index)))
    return table


def _is_csv(type_: pa.DataType) -> bool:
    plain = (
        pa.types.is_null, pa.types.is_boolean, pa.types.is_integer, pa.types.is_float32, pa.types.is_float64,
        pa.types.is_string, pa.types.is_large_string,
    )  # fmt: skip
    return any(is_it(type_) for is_it in plain)


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    clock = (pa.types.is_timestamp, pa.types.is_date, pa.types.is_time)
    if any(is_it(column.type) for is_it in clock):
        if not pa.types.is_timestamp(column.type) and all(map(in_calendar, column.chunks)):
            return column  # without quotes
        return pa.chunked_array(map(iso_texts, column.chunks), pa.string())
    if pa.types.is_decimal(column.type):
        return column.cast(pa.string())
    return pa.chunked_array([pa.array(texts(chunk), pa.string()) for chunk in column.chunks], pa.string())


def _write_jsonl(schema: pa.Schema, batches: Iterator[pa.RecordBatch], file: IO[bytes]) -> None:
    for table in _tables(schema, batches, _JSON_ROWS_AT_ONCE):
        file.write("".join(line + "\n" for line in json_lines(table)).encode())


_WRITERS: dict[str, Callable[[pa.Schema, Iterator[pa.RecordBatch], IO[bytes]], None]] = {
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".jsonl": _write_jsonl,
}

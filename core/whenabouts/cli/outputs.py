"""Result tables to files: Parquet, CSV, JSON lines, or CSV on stdout; never half a file."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc

from whenabouts.core.errors import Code, EngineError, QueryError

STDOUT = "-"
_PARQUET_ROWS_AT_ONCE = 1 << 20
_CSV_ROWS_AT_ONCE = 500_000
_JSON_ROWS_AT_ONCE = 20_000


def check_targets(output: str | None, rejects: str | None) -> None:
    """Refuse targets before any work is done: unknown extension, no such folder, not writable (QueryError WA-2006)."""
    if rejects == STDOUT:
        raise QueryError(Code.BAD_OPTION, "--rejects - is not possible", "stdout is for the result: name a file")
    if output is not None and rejects is not None and Path(output).absolute() == Path(rejects).absolute():
        raise QueryError(Code.BAD_OPTION, f"--output and --rejects are both {output}", "name two files")
    for target, option in ((output, "--output"), (rejects, "--rejects")):
        if target is not None and target != STDOUT:
            _check_target(target, option)


def _check_target(target: str, option: str) -> None:
    path = Path(target)
    if path.suffix.lower() not in _WRITERS:
        raise QueryError(
            Code.BAD_OPTION, f"{option} {target}: the extension is not known", "give .parquet, .csv, .jsonl or -"
        )
    if path.is_dir():
        raise QueryError(Code.BAD_OPTION, f"{option} {target} is a folder", "give the name of a file")
    if not path.parent.is_dir():
        raise QueryError(Code.BAD_OPTION, f"{option} {target}: there is no folder {path.parent}", "make it first")
    if not os.access(path.parent, os.W_OK):
        raise QueryError(Code.BAD_OPTION, f"{option} {target}: the folder is not writable", "write elsewhere")


def check_columns(schema: pa.Schema, target: str | None, option: str) -> None:
    """Refuse nested columns where the target is CSV, which has no way to write them (QueryError WA-2006)."""
    if target is None or (target != STDOUT and Path(target).suffix.lower() != ".csv"):
        return
    for column in schema:
        if pa.types.is_nested(column.type):
            raise QueryError(
                Code.BAD_OPTION,
                f"{option} {target}: column {column.name!r} is {column.type}, and CSV holds no nested columns",
                "write .parquet or .jsonl",
            )


def write_table(table: pa.Table, target: str) -> None:
    """Write a table, as `write_batches` does."""
    write_batches(table.schema, iter(table.to_batches()), target)


def write_batches(schema: pa.Schema, batches: Iterator[pa.RecordBatch], target: str) -> None:
    """Write rows as they come; a file appears under its name only when it is whole. Times are ISO 8601 in text files.

    Memory: a million rows or so. Raises: EngineError WA-3005 where the disk refuses.
    """
    if target == STDOUT:
        _write_csv(schema, batches, sys.stdout.buffer)
        return
    path = Path(target)
    half = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with half.open("wb") as file:
            write = _WRITERS[path.suffix.lower()]
            write(schema, batches, file)
        half.replace(path)
    except (OSError, pa.ArrowException) as error:
        raise EngineError(Code.ENGINE_FAILED, f"{target} could not be written: {error}", "is the disk full?") from error
    finally:
        half.unlink(missing_ok=True)


def iso_times(table: pa.Table) -> pa.Table:
    """Every timestamp column as ISO 8601 text: with zone in UTC with a `Z`, naive without.

    >>> iso_times(pa.table({"t": pa.array([1], pa.timestamp("us", "Europe/Paris"))})).column("t").to_pylist()
    ['1970-01-01T00:00:00.000001Z']
    """
    for place, column in enumerate(table.schema):
        if pa.types.is_timestamp(column.type):
            table = table.set_column(place, column.name, iso_text(table.column(place)))
    return table


def iso_text(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Timestamps as ISO 8601 text."""
    zoned = times.type.tz is not None
    plain = times.cast(pa.timestamp(times.type.unit, "UTC")) if zoned else times
    return pc.strftime(plain, format="%Y-%m-%dT%H:%M:%S" + ("Z" if zoned else ""), locale="C")


def json_lines(table: pa.Table) -> list[str]:
    """Every row as a JSON object.

    >>> json_lines(pa.table({"t": pa.array([1], pa.timestamp("us", "UTC")), "x": [float("nan")]}))
    ['{"t": "1970-01-01T00:00:00.000001Z", "x": null}']
    """
    rows = iso_times(table).to_pylist()
    return [json.dumps(_finite(row), ensure_ascii=False, default=_json_value) for row in rows]


def _write_parquet(schema: pa.Schema, batches: Iterator[pa.RecordBatch], file: IO[bytes]) -> None:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for table in _tables(schema, batches, _PARQUET_ROWS_AT_ONCE):
            writer.write_table(table)


def _write_csv(schema: pa.Schema, batches: Iterator[pa.RecordBatch], file: IO[bytes]) -> None:
    from pyarrow import csv

    header = True
    for table in _tables(schema, batches, _CSV_ROWS_AT_ONCE):
        sink = pa.BufferOutputStream()  # Arrow would close the stdout that it is given
        csv.write_csv(_csv_ready(table), sink, csv.WriteOptions(include_header=header))
        file.write(sink.getvalue())
        header = False
    file.flush()


def _tables(schema: pa.Schema, batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """The batches in tables of `rows` rows, the last one smaller: at least one table, if without rows."""
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
    """Columns of types that Arrow does not write as CSV, written as their text."""
    table = iso_times(table)
    for place, column in enumerate(table.schema):
        if pa.types.is_duration(column.type) or pa.types.is_decimal(column.type):
            text = [None if value is None else str(_json_value(value)) for value in table.column(place).to_pylist()]
            table = table.set_column(place, column.name, pa.array(text, pa.string()))
        elif pa.types.is_dictionary(column.type):
            table = table.set_column(place, column.name, table.column(place).cast(column.type.value_type))
    return table


def _write_jsonl(schema: pa.Schema, batches: Iterator[pa.RecordBatch], file: IO[bytes]) -> None:
    for table in _tables(schema, batches, _JSON_ROWS_AT_ONCE):
        file.write("".join(line + "\n" for line in json_lines(table)).encode())


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list) else value


def _json_value(value: object) -> str | int:
    """Text for what JSON has no type for; durations are whole microseconds, bytes are hexadecimal."""
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"a value of type {type(value).__name__} has no form in JSON")


_WRITERS: dict[str, Callable[[pa.Schema, Iterator[pa.RecordBatch], IO[bytes]], None]] = {
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".jsonl": _write_jsonl,
}

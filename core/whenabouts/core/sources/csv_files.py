"""Reads CSV files: all columns as text, an empty field as null.

Arrow parses them. It takes the end of a file for the end of a quoted value, so that a quote that nobody closes would
turn all rows after it into one value: such files are refused.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from whenabouts.core.errors import Code, InputError
from whenabouts.core.sources.row_blocks import in_blocks

if TYPE_CHECKING:
    from pyarrow import csv

_NO_NEWLINE = "cannot infer number of columns"
"""Part of Arrow's message for a header without rows whose line does not end."""

_FIELD = re.compile(rb'(?:"[^"]*(?:""[^"]*)*"(?!")[^,\r\n]*|(?!")[^,\r\n]*)(?:,|\r\n|\n|\r|\Z)')
_LAST_BYTES = 1 << 16


def read_csv(file: Path) -> pa.Table:
    """All columns as text. Raises InputError WA-1008 for a quote that is not closed and for what is not UTF-8, and
    ArrowInvalid."""
    from pyarrow import csv

    parse = csv.ParseOptions(newlines_in_values=True)
    try:
        table = _read(file, parse)
    except pa.ArrowInvalid as error:
        if _NO_NEWLINE not in str(error):
            raise
        header = _bytes_of(file)
        _refuse_open_quote(file, header)
        if not header.strip():
            raise
        table = _read(pa.py_buffer(header + b"\n"), parse)
    _check_quotes(file, table)
    columns = [_decoded(column, name, file) for column, name in zip(table.columns, table.schema.names, strict=True)]
    return pa.Table.from_arrays(columns, names=table.schema.names)


def _read(source: Path | pa.Buffer, parse: csv.ParseOptions) -> pa.Table:
    """All columns as bytes."""
    from pyarrow import csv

    def opened() -> Path | pa.BufferReader:
        return pa.BufferReader(source) if isinstance(source, pa.Buffer) else source

    def header(block: int) -> list[str]:
        with csv.open_csv(opened(), csv.ReadOptions(block_size=block, use_threads=False), parse) as reader:
            return list(reader.schema.names)

    names = in_blocks(header)
    options = csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.binary()),
        null_values=[""],  # an empty field is null, as Arrow, pandas and databases write it; "NA" is text
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )

    def rows(block: int, *, threads: bool) -> pa.Table:
        return csv.read_csv(opened(), csv.ReadOptions(block_size=block, use_threads=threads), parse, options)

    try:
        return in_blocks(lambda block: rows(block, threads=True))
    except pa.ArrowInvalid:  # with one thread, as above, Arrow tells which row it is
        return in_blocks(lambda block: rows(block, threads=False))


def _bytes_of(file: Path) -> bytes:
    with pa.input_stream(str(file), compression="detect") as stream:
        return bytes(stream.read())


def _check_quotes(file: Path, table: pa.Table) -> None:
    """Refuse a quote that is not closed. Then the last value reaches to the end of the file, over all lines after the
    quote, or is cut off within the last line; only files that look so are read once more."""
    last = table.column(table.num_columns - 1)[-1].as_py() if table.num_rows else None
    if (last and (b"\n" in last or b"\r" in last)) or _last_line_is_odd(file):
        _refuse_open_quote(file, _bytes_of(file))


def _refuse_open_quote(file: Path, content: bytes) -> None:
    at = 0
    while at < len(content):
        field = _FIELD.match(content, at)
        if field is None:
            line, after = content.count(b"\n", 0, at) + 1, content[at:].rstrip(b"\r\n").count(b"\n")
            swallowed = f": it would hold the rest of the file, {after} more line{'s' * (after > 1)}" if after else ""
            raise InputError(
                Code.UNREADABLE_FILE,
                f"{file}: a quote that begins a value in line {line} is not closed{swallowed}",
                "close it; a quote within a quoted value is written twice",
            )
        at = field.end()


def _last_line_is_odd(file: Path) -> bool:
    """Whether the last line has an odd number of quotes. Not of compressed files: cut off, they cannot be read."""
    if file.suffix.lower() != ".csv":
        return False
    with file.open("rb") as stream:
        stream.seek(max(0, file.stat().st_size - _LAST_BYTES))
        return bool(stream.read().rstrip(b"\r\n").rpartition(b"\n")[2].count(b'"') % 2)


def _decoded(column: pa.ChunkedArray, name: str, file: Path) -> pa.ChunkedArray:
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        for row, value in enumerate(column.to_pylist()):
            try:
                (value or b"").decode()
            except UnicodeDecodeError as error:
                problem = f"{file}: row {row}, column {name!r}, holds {value!r}, which is not UTF-8"
                raise InputError(Code.UNREADABLE_FILE, problem, "save it as UTF-8") from error
        raise

"""Reads CSV files: all columns as text, an empty field as null.

Arrow parses them. It takes the end of a file for the end of a quoted value, so that a quote that nobody closes would
turn all rows after it into one value: such files are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from whenabouts.core.errors import Code, InputError
from whenabouts.core.sources.row_blocks import batches_in_blocks, in_blocks

if TYPE_CHECKING:
    from pyarrow import csv

_NO_NEWLINE = "cannot infer number of columns"
"""Part of Arrow's message for a header without rows whose line does not end."""

_FIELD = re.compile(rb'(?:"[^"]*(?:""[^"]*)*"(?!")[^,\r\n]*|(?!")[^,\r\n]*)(?:,|\r\n|\n|\r|\Z)')
_LAST_BYTES = 1 << 16


@dataclass(frozen=True)
class CsvFile:
    """A CSV file on any file system. `opened` gives its text, decompressed, `stored` its bytes at any place."""

    name: str
    opened: Callable[[], pa.NativeFile]
    stored: Callable[[], pa.NativeFile]

    @staticmethod
    def at(path: Path) -> CsvFile:
        """The file at a path of this machine."""
        return CsvFile(
            str(path), lambda: pa.input_stream(str(path), compression="detect"), lambda: pa.OSFile(str(path), "rb")
        )

    def content(self) -> bytes:
        """All its text."""
        with self.opened() as stream:
            return bytes(stream.read())


def read_csv(file: Path | CsvFile) -> pa.Table:
    """All columns as text. Raises InputError WA-1008 for a quote that is not closed and for what is not UTF-8, and
    ArrowInvalid."""
    file = CsvFile.at(file) if isinstance(file, Path) else file
    opened, names = _begun(file)
    options = _as_bytes(names)

    def rows(block: int) -> pa.Table:
        from pyarrow import csv

        return csv.read_csv(opened(), _in_one_thread(block), _parsing(), options)

    table = in_blocks(rows)
    _check_quotes(file, table.column(table.num_columns - 1)[-1].as_py() if table.num_rows else None)
    columns = [_decoded(column, name, file) for column, name in zip(table.columns, table.schema.names, strict=True)]
    return pa.Table.from_arrays(columns, names=table.schema.names)


def csv_batches(file: CsvFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of these columns as `read_csv` reads them, a few at a time: the file need not fit into memory. Raises
    as `read_csv`, if need be after the last row, and ArrowKeyError for a column that is not there."""
    opened, names = _begun(file)
    options = _as_bytes(names)
    options.include_columns = list(dict.fromkeys([*columns, names[-1]]))  # the last one shows an open quote

    def batches(block: int) -> Iterator[pa.RecordBatch]:
        from pyarrow import csv

        with csv.open_csv(opened(), _in_one_thread(block), _parsing(), options) as reader:
            yield from reader

    last, row = None, 0
    for batch in batches_in_blocks(batches):
        last = batch.column(names[-1])[-1].as_py()
        texts = [_decoded(batch.column(name), name, file, row) for name in columns]
        yield pa.RecordBatch.from_arrays(texts, names=list(columns))
        row += batch.num_rows
    _check_quotes(file, last)


def _begun(file: CsvFile) -> tuple[Callable[[], pa.NativeFile], list[str]]:
    """What opens the text, and its columns. In a header without rows whose line does not end Arrow finds none: it is
    given that end."""
    try:
        return file.opened, _names(file.opened)
    except pa.ArrowInvalid as error:
        if _NO_NEWLINE not in str(error):
            raise
        header = file.content()
        _refuse_open_quote(file, header)
        if not header.strip():
            raise

    def ended() -> pa.NativeFile:
        return pa.BufferReader(header + b"\n")

    return ended, _names(ended)


def _names(opened: Callable[[], pa.NativeFile]) -> list[str]:
    from pyarrow import csv

    def header(block: int) -> list[str]:
        with csv.open_csv(opened(), _in_one_thread(block), _parsing()) as reader:
            return list(reader.schema.names)

    return in_blocks(header)


def _in_one_thread(block: int) -> csv.ReadOptions:
    """With more of them, Arrow before 23 may wait for itself forever when it meets an error (its issue 48741), such as
    a row longer than a block; with one thread it also tells which row is wrong, for the same CPU."""
    from pyarrow import csv

    return csv.ReadOptions(block_size=block, use_threads=False)


def _parsing() -> csv.ParseOptions:
    from pyarrow import csv

    return csv.ParseOptions(newlines_in_values=True)


def _as_bytes(names: Sequence[str]) -> csv.ConvertOptions:
    from pyarrow import csv

    return csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.binary()),
        null_values=[""],  # an empty field is null, as Arrow, pandas and databases write it; "NA" is text
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )


def _check_quotes(file: CsvFile, last: bytes | None) -> None:
    """Refuse a quote that is not closed. Then the last value (`last`) reaches to the end of the file, over all lines
    after the quote, or is cut off within the last line; only files that look so are read once more."""
    if (last and (b"\n" in last or b"\r" in last)) or _last_line_is_odd(file):
        _refuse_open_quote(file, file.content())


def _refuse_open_quote(file: CsvFile, content: bytes) -> None:
    at = 0
    while at < len(content):
        field = _FIELD.match(content, at)
        if field is None:
            line, after = content.count(b"\n", 0, at) + 1, content[at:].rstrip(b"\r\n").count(b"\n")
            swallowed = f": it would hold the rest of the file, {after} more line{'s' * (after > 1)}" if after else ""
            raise InputError(
                Code.UNREADABLE_FILE,
                f"{file.name}: a quote that begins a value in line {line} is not closed{swallowed}",
                "close it; a quote within a quoted value is written twice",
            )
        at = field.end()


def _last_line_is_odd(file: CsvFile) -> bool:
    """Whether the last line has an odd number of quotes. Not of compressed files: cut off, they cannot be read."""
    if not file.name.lower().endswith(".csv"):
        return False
    with file.stored() as stream:
        stream.seek(max(0, stream.size() - _LAST_BYTES))
        return bool(stream.read().rstrip(b"\r\n").rpartition(b"\n")[2].count(b'"') % 2)


def _decoded(column: Any, name: str, file: CsvFile, first: int = 0) -> Any:
    """A column of bytes as text. `first`: the number of its first row."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        for row, value in enumerate(column.to_pylist(), first):
            try:
                (value or b"").decode()
            except UnicodeDecodeError as error:
                problem = f"{file.name}: row {row}, column {name!r}, holds {value!r}, which is not UTF-8"
                raise InputError(Code.UNREADABLE_FILE, problem, "save it as UTF-8") from error
        raise

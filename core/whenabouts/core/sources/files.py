"""Reads files of events (Parquet, CSV, JSON lines; a file, a folder or a glob) and unifies their schemas."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

from whenabouts.core.arrays.plain_types import plain_table
from whenabouts.core.errors import Code, InputError, QueryError
from whenabouts.core.sources.csv_files import read_csv
from whenabouts.core.sources.found_files import check_path, file_id, files_below, is_folder, matching
from whenabouts.core.sources.json_integers import check_integers
from whenabouts.core.sources.row_blocks import in_blocks
from whenabouts.core.sources.written_values import as_type, natural_type

_COMPRESSED = (".gz", ".bz2", ".zst")
_FORMATS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv"} | dict.fromkeys(
    (".jsonl", ".ndjson", ".json"), "jsonl"
)
_KNOWN = "Parquet (.parquet), CSV (.csv) and JSON lines (.jsonl) are supported, the last two also as .gz, .bz2 and .zst"


_EMPTY = {
    "csv": "even a table without rows has a header",
    "jsonl": "give at least one row: the columns of a file are those of its rows",
    "parquet": "a table without rows has a schema: the file was not written to its end",
}


def find_files(path: str) -> tuple[list[Path], list[str]]:
    """The files that `path` means, sorted by name, and notes on other files there.

    A file with several names, by links, is read once. Names in a folder that begin with `_` or `.` are other programs'
    markers and are skipped.

    Raises: InputError WA-1008 for an empty path, no file, a folder that cannot be read, and a link that is broken or
    leads to a folder that contains it.
    """
    check_path(path)
    root = Path(path)
    try:
        if root.is_dir():
            inside = files_below(root)
            files = [file for file in inside if format_of(file) is not None]
            if not files:
                raise _unreadable(path, "the folder has no file to read", _KNOWN)
            others = [file.name for file in inside if format_of(file) is None]
        elif root.exists():
            return [root], []
        else:
            inside = matching(path)
            files = [file for file in inside if not is_folder(file)]
            if not files:
                raise _unreadable(path, "there is no such file", "give a file, a folder or a glob")
            others = [f"the folder {folder}" for folder in inside if is_folder(folder)]
    except OSError as error:
        raise _unreadable(path, f"it cannot be accessed: {error.strerror or error}", "") from error
    notes = [f"{path}: {len(others)} other files were not read, e.g. {others[0]}"] if others else []
    return _each_once(files, notes), notes


def _each_once(files: list[Path], notes: list[str]) -> list[Path]:
    """Each file once, even if links give it several names; adds a note for each duplicate."""
    found: dict[tuple[int, int], Path] = {}
    for file in files:
        first = found.setdefault(file_id(file), file)
        if first is not file:
            notes.append(f"{file} is the same file as {first}, and read once")
    return list(found.values())


def format_of(file: Path) -> str | None:
    """`parquet`, `csv` or `jsonl` by the file's extension, None for any other.

    >>> format_of(Path("a.csv.gz")), format_of(Path("a.xlsx"))
    ('csv', None)
    """
    suffixes = [suffix.lower() for suffix in file.suffixes]
    if suffixes and suffixes[-1] in _COMPRESSED:
        found = _FORMATS.get(suffixes[-2]) if len(suffixes) > 1 else None
        return None if found == "parquet" else found
    return _FORMATS.get(suffixes[-1]) if suffixes else None


def read_file(file: Path, text_columns: tuple[str, ...] = (), *, as_text: bool = False) -> pa.Table:
    """One file as a table; `text_columns` of CSV and JSON lines stay text, so that no type is guessed.

    The types of other CSV columns are inferred without loss (`written_values`); with `as_text` they stay text. Raises:
    InputError WA-1008 with the file's name.
    """
    kind = format_of(file)
    if kind is None:
        raise _unreadable(file, f"the extension {file.suffix!r} is not supported", _KNOWN)
    try:
        if file.stat().st_size == 0:
            raise _unreadable(file, "the file is empty (0 bytes)", _EMPTY[kind])
        if kind == "parquet":
            import pyarrow.parquet as pq

            check_distinct(file, pq.read_schema(file).names)
            return plain_table(pq.read_table(file, partitioning=None))
        if kind == "jsonl":
            from whenabouts.core.sources.json_lines import check_json_lines  # loads numba

            check_json_lines(file)
            return _read_json(file, text_columns)
        table = read_csv(file)
        return table if as_text else _typed(table, text_columns, file)
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise _unreadable(file, f"it cannot be read as {kind}: {_one_line(error)}", "") from error


def open_parquet(path: Path) -> Any:
    """A Parquet file opened for reading its metadata and row groups. Raises InputError WA-1008 with the file's name."""
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise InputError(Code.UNREADABLE_FILE, f"{path}: it cannot be read as parquet: {error}") from error


def with_times_found(table: pa.Table) -> pa.Table:
    """The table with text columns converted that hold only timestamps: candidates for a stream's time column.

    >>> with_times_found(pa.table({"at": ["2024-01-01T00:00:00Z"], "name": ["a"]})).schema.types
    [TimestampType(timestamp[s, tz=UTC]), DataType(string)]
    """
    for index, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            natural = natural_type(table.column(index))
            if pa.types.is_timestamp(natural):
                times = as_type(table.column(index), natural, field.name, natural=natural)
                table = table.set_column(index, field.with_type(natural), times)
    return table


def unified(schema: pa.Schema, other: pa.Schema, first: Path, file: Path) -> pa.Schema:
    """One schema for two files: numbers are widened, null columns get the other's type."""
    odd = set(schema.names) ^ set(other.names)
    if odd and format_of(file) != "jsonl":  # JSON rows leave out what is null
        column = min(odd)
        there, missing = (first, file) if column in schema.names else (file, first)
        raise InputError(
            Code.MISSING_COLUMN, f"{missing} has no column {column!r}", f"{there} has it: files of one input must agree"
        )
    fields = []
    fields_of = [{field.name: field for field in each} for each in (schema, other)]
    for name in dict.fromkeys([*schema.names, *other.names]):
        pair = [pa.schema([each[name]]) for each in fields_of if name in each]
        try:
            fields.append(pa.unify_schemas(pair, promote_options="permissive").field(0))
        except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
            raise InputError(
                Code.WRONG_TYPE,
                f"column {name!r} of {file} is {other.field(name).type}, in {first} it is {schema.field(name).type}",
                "files of one input must agree",
            ) from error
    return pa.schema(fields)


def cast_to(table: pa.Table, schema: pa.Schema, file: Path) -> pa.Table:
    """The table with the columns of `schema`; missing ones are null. Raises InputError WA-1002 with the file's name."""
    columns = []
    there = set(table.schema.names)
    for field in schema:
        if field.name not in there:
            columns.append(pa.nulls(table.num_rows, field.type))
            continue
        column = table.column(field.name)
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InputError(
                Code.WRONG_TYPE, f"column {field.name!r} of {file}: {_one_line(error)}", "files of one input must agree"
            ) from error
    return pa.Table.from_arrays(columns, schema=pa.schema([(field.name, field.type) for field in schema]))


def check_distinct(file: Path, names: list[str]) -> None:
    """Raise QueryError WA-2009 if a file has two columns with the same name."""
    for name, times in Counter(names).items():
        if times > 1:
            raise QueryError(Code.COLUMN_CLASH, f"{file} has two columns {name!r}", "rename one")


def _typed(table: pa.Table, text_columns: tuple[str, ...], file: Path) -> pa.Table:
    columns = []
    for name, column in zip(table.schema.names, table.columns, strict=True):
        natural = pa.string() if name in text_columns else natural_type(column)
        columns.append(as_type(column, natural, f"column {name!r} of {file}", natural=natural))
    return pa.Table.from_arrays(columns, names=table.schema.names)


def _read_json(file: Path, text_columns: tuple[str, ...]) -> pa.Table:
    """Read JSON lines. A text column stays text unless it holds numbers.

    Any other text stays text too: Arrow would convert dates to timestamps.
    """
    columns = tuple(dict.fromkeys(text_columns))
    table = _read_json_as(file, _texts(columns))
    if table is None:
        columns = tuple(name for name in columns if _read_json_as(file, _texts((name,))) is not None)
        table = _read_json_as(file, _texts(columns))
    if table is None:  # not JSON either way
        from whenabouts.core.sources.json_lines import explain_failure

        raise explain_failure(file) or _unreadable(file, "it cannot be read as jsonl", "")
    check_integers(file, table.schema)
    table = table.select(_names_in(file, table.schema))
    guessed = [field for field in table.schema if field.type != _times_as_text(field.type)]
    if not guessed:
        return table
    asked = [field.with_type(_times_as_text(field.type)) for field in table.schema if field in guessed]
    asked += [pa.field(name, pa.string()) for name in columns if name in table.schema.names]
    read = _read_json_as(file, pa.schema(asked))
    assert read is not None, "text that was a time is text"
    return read.select(table.schema.names)


def _times_as_text(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(type_):
        fields = [type_.field(index) for index in range(type_.num_fields)]
        return pa.struct([field.with_type(_times_as_text(field.type)) for field in fields])
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_times_as_text(type_.value_type)))
    return pa.string() if pa.types.is_timestamp(type_) else type_


def _texts(columns: tuple[str, ...]) -> pa.Schema:
    return pa.schema([(name, pa.string()) for name in columns])


def _read_json_as(file: Path, schema: pa.Schema) -> pa.Table | None:
    """JSON lines with the columns of a schema in its types, None if a value does not fit."""
    from pyarrow import json

    try:
        parse = json.ParseOptions(explicit_schema=schema)
        return in_blocks(lambda block: json.read_json(file, json.ReadOptions(block_size=block), parse))
    except pa.ArrowInvalid:
        return None


def _names_in(file: Path, schema: pa.Schema) -> list[str]:
    """The columns of JSON lines in the file's order. An explicit schema puts its own columns first, and adds those that
    the file does not have."""
    from pyarrow import json

    from whenabouts.core.sources.json_lines import names_of_first_row

    first = names_of_first_row(file)
    if set(first) == set(schema.names):
        return first
    in_order = {"use_threads": False}  # else columns of later blocks are taken in the order in which these are parsed
    read = in_blocks(lambda block: json.read_json(file, json.ReadOptions(block_size=block, **in_order)))
    return list(read.schema.names)


def _unreadable(path: object, problem: str, hint: str) -> InputError:
    return InputError(Code.UNREADABLE_FILE, f"{path}: {problem}", hint)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]

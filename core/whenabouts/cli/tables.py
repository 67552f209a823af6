"""Input files to Arrow tables: Parquet, CSV, JSON lines; a file, a folder or a glob; one schema for all of them."""

from __future__ import annotations

import glob
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from whenabouts.cli.edge_times import Clock, Findings, Settled, settle
from whenabouts.core.errors import Code, InputError, QueryError

_COMPRESSED = (".gz", ".bz2", ".zst")
_FORMATS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv"} | dict.fromkeys(
    (".jsonl", ".ndjson", ".json"), "jsonl"
)
_INTEGER = r"^(0|-?[1-9][0-9]*)$"
_KNOWN = "Parquet (.parquet), CSV (.csv) and JSON lines (.jsonl) are read, the last two also as .gz"


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a query, read: a table per file in order of their names, all of `schema`.

    `unparsable`: the rows whose time text is no time, in `raw_schema`, that is with their time columns as text where
    the files hold text. `notes`: what the user should be told. `unparsable_at`: which rows of the input these are,
    counted from 0 over all files. rows_in = rows of the tables + unparsable rows.
    """

    name: str
    tables: tuple[pa.Table, ...]
    unparsable: pa.Table
    notes: tuple[str, ...] = ()
    unparsable_at: tuple[int, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """Schema of every table."""
        return self.tables[0].schema

    @property
    def raw_schema(self) -> pa.Schema:
        """Schema of the rejects: time columns that came as text are text."""
        return self.unparsable.schema

    @property
    def rows_in(self) -> int:
        """Rows that the files hold."""
        return sum(int(table.num_rows) for table in (*self.tables, self.unparsable))


def read_input(
    name: str, path: str, time_columns: tuple[str, ...], clock: Clock, template_column: str | None = None
) -> Input:
    """Read all files under `path` (a file, a folder, a glob) as the input called `name`. Memory: all of it.

    Times are settled. The template column keeps its values as they are written: "007" is not the template "7".

    Raises: InputError WA-1008 for what cannot be read, WA-1001 and WA-1002 for files that disagree, with the file's
    name and the column; QueryError WA-2009 for two columns of one name; and what `settle` raises.
    """
    files, notes = find_files(path)
    found = Findings()
    texts = (*time_columns, *([template_column] if template_column else ()))
    raw = [read_file(file, texts) for file in files]
    if template_column is not None and all(format_of(file) == "csv" for file in files):
        raw = _whole_numbers(raw, template_column)
    settled = [settle(table, time_columns, clock, found, str(file)) for table, file in zip(raw, files, strict=True)]
    tables = _of_one_schema(files, _typed_like_others([part.table for part in settled], time_columns))
    unparsable = _unparsable(settled, tables[0].schema)
    starts = accumulate((table.num_rows for table in raw), initial=0)
    lost = tuple(start + int(at) for start, part in zip(starts, settled, strict=False) for at in part.lost)
    return Input(name, tuple(tables), unparsable, (*notes, *found.notes(name, clock.zone)), lost)


def _whole_numbers(tables: list[pa.Table], column: str) -> list[pa.Table]:
    """The text column of all tables as int64, if it holds nothing but integers in their usual form."""
    places = [table.schema.get_field_index(column) for table in tables]
    if min(places) < 0:
        return tables  # there is none, or there are two: others say so
    chunks = [chunk for table, at in zip(tables, places, strict=True) for chunk in table.column(at).chunks]
    written = pa.chunked_array(chunks, pa.string()).drop_null()
    if not len(written) or not pc.all(pc.match_substring_regex(written, _INTEGER)).as_py():
        return tables
    try:
        numbers = [table.column(at).cast(pa.int64()) for table, at in zip(tables, places, strict=True)]
    except pa.ArrowInvalid:  # more digits than an int64 has
        return tables
    return [t.set_column(at, column, values) for t, at, values in zip(tables, places, numbers, strict=True)]


def find_files(path: str) -> tuple[list[Path], list[str]]:
    """The files meant by `path`, in order of their names, and notes on what a folder holds besides.

    Names that begin with `_` or `.` are other programs' markers and passed over.
    """
    root = Path(path)
    if root.is_dir():
        inside = [file for file in sorted(root.rglob("*")) if file.is_file() and not _is_marker(file, root)]
        files = [file for file in inside if format_of(file) is not None]
        if not files:
            raise _unreadable(path, "the folder holds no file to read", _KNOWN)
        left_out = [file.name for file in inside if format_of(file) is None]
        return files, [f"{path}: {len(left_out)} other files were not read, e.g. {left_out[0]}"] if left_out else []
    if root.exists():
        return [root], []
    files = [Path(found) for found in sorted(glob.glob(path, recursive=True)) if Path(found).is_file()]
    if not files:
        raise _unreadable(path, "there is no such file", "give a file, a folder or a glob")
    return files, []


def format_of(file: Path) -> str | None:
    """`parquet`, `csv` or `jsonl` by the file's extension, None for another.

    >>> format_of(Path("a.csv.gz")), format_of(Path("a.xlsx"))
    ('csv', None)
    """
    suffixes = [suffix.lower() for suffix in file.suffixes]
    if suffixes and suffixes[-1] in _COMPRESSED:
        found = _FORMATS.get(suffixes[-2]) if len(suffixes) > 1 else None
        return None if found == "parquet" else found
    return _FORMATS.get(suffixes[-1]) if suffixes else None


def read_file(file: Path, text_columns: tuple[str, ...] = ()) -> pa.Table:
    """One file as a table; `text_columns` of CSV and JSON lines stay the text they are, so that nothing is guessed.

    Raises: InputError WA-1008 with the file's name.
    """
    kind = format_of(file)
    if kind is None:
        raise _unreadable(file, f"the extension {file.suffix!r} is not known", _KNOWN)
    try:
        if file.stat().st_size == 0:
            raise _unreadable(file, "the file is empty (0 bytes)", "even a table without rows has a header")
        if kind == "parquet":
            import pyarrow.parquet as pq

            return pq.read_table(file, partitioning=None)
        return _read_csv(file, text_columns) if kind == "csv" else _read_json(file, text_columns)
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise _unreadable(file, f"it cannot be read as {kind}: {_one_line(error)}", "") from error


def _read_csv(file: Path, text_columns: tuple[str, ...]) -> pa.Table:
    from pyarrow import csv

    options = csv.ConvertOptions(
        column_types=dict.fromkeys(text_columns, pa.string()),
        null_values=[""],  # an empty field is null, as Arrow, pandas and databases write it; "NA" is a word like others
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    return csv.read_csv(file, convert_options=options, parse_options=csv.ParseOptions(newlines_in_values=True))


def _read_json(file: Path, text_columns: tuple[str, ...]) -> pa.Table:
    """JSON lines, of the text columns those as the text that they are that do not hold numbers."""
    columns = tuple(dict.fromkeys(text_columns))
    table = _read_json_as(file, columns)
    if table is None:
        columns = tuple(name for name in columns if _read_json_as(file, (name,)) is not None)
        table = _read_json_as(file, columns)
    if table is None:  # not JSON either way: let Arrow say what is wrong
        from pyarrow import json

        return json.read_json(file)
    return _without_invented(file, table, columns)


def _read_json_as(file: Path, text_columns: tuple[str, ...]) -> pa.Table | None:
    """JSON lines with these columns as text, None where they are not."""
    from pyarrow import json

    schema = pa.schema([(name, pa.string()) for name in text_columns])
    try:
        return json.read_json(file, parse_options=json.ParseOptions(explicit_schema=schema))
    except pa.ArrowInvalid:
        return None


def _without_invented(file: Path, table: pa.Table, text_columns: tuple[str, ...]) -> pa.Table:
    """Drop the columns that the explicit schema added and the file does not have, so that they are missed."""
    from pyarrow import json

    empty = [name for name in text_columns if table.column(name).null_count == table.num_rows]
    if not empty:
        return table
    there = json.read_json(file).schema.names
    return table.drop_columns([name for name in empty if name not in there])


def _of_one_schema(files: list[Path], tables: list[pa.Table]) -> list[pa.Table]:
    schema = tables[0].schema
    for file, table in zip(files, tables, strict=True):
        _check_distinct(file, table.schema.names)
    for file, table in zip(files[1:], tables[1:], strict=True):
        schema = _unified(schema, table.schema, files[0], file)
    return [_cast(table, schema, file) for file, table in zip(files, tables, strict=True)]


def _typed_like_others(tables: list[pa.Table], columns: tuple[str, ...]) -> list[pa.Table]:
    """Tables in which a column without any value has the type that it has where there are values.

    A file of a header alone does not say whether its times are numbers or dates.
    """
    for name in dict.fromkeys(columns):
        at = [table.schema.get_field_index(name) for table in tables]
        empty = [place >= 0 and t.column(place).null_count == t.num_rows for t, place in zip(tables, at, strict=True)]
        told = zip(tables, at, empty, strict=True)
        types = {table.schema.field(place).type for table, place, none in told if place >= 0 and not none}
        if len(types) == 1:
            (type_,) = types
            tables = [
                table.set_column(place, name, pa.nulls(table.num_rows, type_)) if none else table
                for table, place, none in zip(tables, at, empty, strict=True)
            ]
    return tables


def _unified(schema: pa.Schema, other: pa.Schema, first: Path, file: Path) -> pa.Schema:
    """One schema for two files: numbers are widened, null columns take the other's type."""
    odd = set(schema.names) ^ set(other.names)
    if odd and format_of(file) != "jsonl":  # JSON rows leave out what is null
        column = min(odd)
        there, missing = (first, file) if column in schema.names else (file, first)
        raise InputError(
            Code.MISSING_COLUMN, f"{missing} has no column {column!r}", f"{there} has it: files of one input must agree"
        )
    fields = []
    for name in dict.fromkeys([*schema.names, *other.names]):
        pair = [pa.schema([s.field(name)]) for s in (schema, other) if name in s.names]
        try:
            fields.append(pa.unify_schemas(pair, promote_options="permissive").field(0))
        except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
            raise InputError(
                Code.WRONG_TYPE,
                f"column {name!r} of {file} is {other.field(name).type}, in {first} it is {schema.field(name).type}",
                "files of one input must agree",
            ) from error
    return pa.schema(fields)


def _cast(table: pa.Table, schema: pa.Schema, file: Path) -> pa.Table:
    columns = []
    for field in schema:
        if field.name not in table.schema.names:
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


def _check_distinct(file: Path, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise QueryError(Code.COLUMN_CLASH, f"{file} has two columns {name!r}", "rename one")


def _unparsable(settled: list[Settled], schema: pa.Schema) -> pa.Table:
    """All rows that were lost to unreadable times, in the input's schema but for the time columns that are text."""
    text = {column for part in settled for column in part.text_columns}
    raw = pa.schema([(f.name, pa.string() if f.name in text else f.type) for f in schema])
    tables = [_cast(part.unparsable, raw, Path("rejected rows")) for part in settled if part.unparsable.num_rows]
    return pa.concat_tables(tables) if tables else raw.empty_table()


def _is_marker(file: Path, root: Path) -> bool:
    return any(part.startswith(("_", ".")) for part in file.relative_to(root).parts)


def _unreadable(path: object, problem: str, hint: str) -> InputError:
    return InputError(Code.UNREADABLE_FILE, f"{path}: {problem}", hint)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]

"""Files of events: Parquet, CSV, JSON lines; a file, a folder or a glob; and one schema for several of them."""

from __future__ import annotations

import glob
from pathlib import Path

import pyarrow as pa

from whenabouts.core.errors import Code, InputError, QueryError

_COMPRESSED = (".gz", ".bz2", ".zst")
_FORMATS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv"} | dict.fromkeys(
    (".jsonl", ".ndjson", ".json"), "jsonl"
)
_KNOWN = "Parquet (.parquet), CSV (.csv) and JSON lines (.jsonl) are read, the last two also as .gz"


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


def unified(schema: pa.Schema, other: pa.Schema, first: Path, file: Path) -> pa.Schema:
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


def cast_to(table: pa.Table, schema: pa.Schema, file: Path) -> pa.Table:
    """The table with the columns of `schema`, null where it has none. Raises InputError WA-1002 naming the file."""
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


def check_distinct(file: Path, names: list[str]) -> None:
    """Raise QueryError WA-2009 if a file has two columns of one name."""
    for name in names:
        if names.count(name) > 1:
            raise QueryError(Code.COLUMN_CLASH, f"{file} has two columns {name!r}", "rename one")


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


def _is_marker(file: Path, root: Path) -> bool:
    return any(part.startswith(("_", ".")) for part in file.relative_to(root).parts)


def _unreadable(path: object, problem: str, hint: str) -> InputError:
    return InputError(Code.UNREADABLE_FILE, f"{path}: {problem}", hint)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]

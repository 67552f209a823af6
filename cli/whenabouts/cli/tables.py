"""Reads Parquet, CSV and JSON lines, given as a file, a folder or a glob, into tables of one schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, count
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import NamedTuple
from weakref import finalize

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from whenabouts.cli.inputs import Input, LazyTables, ParquetTables
from whenabouts.cli.text_columns import typed_alike
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.errors import Code
from whenabouts.core.sources.files import cast_to, check_distinct, find_files, format_of, read_file, unified
from whenabouts.core.sources.time_parsing import ClockRules, ParsedTimes, ParsingCounts, parse_times
from whenabouts.core.sources.written_values import as_type, natural_type


def read_input(
    name: str,
    path: str,
    time_columns: tuple[str, ...],
    clock: ClockRules,
    template_column: str | None = None,
    *,
    left_to_engine: Callable[[pa.Schema], bool] | None = None,
) -> Input:
    """Read all files of `path` (a file, a folder, a glob) as the input called `name`. Memory: all of it.

    For an engine that reads files itself, memory is that of the largest file: Parquet files that `left_to_engine`
    accepts by their schema are not read if their times need no conversion, and other tables are kept on disk.

    Times are parsed and converted. Columns of CSV have the types that all their values determine; a template column has
    integers or text. Tables are built on access, see `Input.in_memory`.

    Raises: InputError WA-1008 for unreadable files, WA-1001, WA-1002 and WA-1067 for files that contradict each other,
    with file and column; QueryError WA-2009 for two columns of one name; and what `parse_times` raises.
    """
    files, notes = find_files(path)
    if left_to_engine is not None:
        there = _as_they_are(files, time_columns)
        if there is not None and left_to_engine(there.schema):
            return Input(name, there, there.schema.empty_table(), tuple(notes))
    found = ParsingCounts()
    texts = (*time_columns, *([template_column] if template_column else ()))
    put = _in_memory if left_to_engine is None else _OnDisk().put
    parts = []
    for file in files:
        raw = read_file(file, texts, as_text=True)
        free = _free_columns(file, raw, time_columns, template_column)
        settled = parse_times(raw, time_columns, clock, found, str(file))
        parts.append(_Part.of(file, raw, settled, time_columns, free, put))
    notes = [*notes, *found.notes(name, clock.zone)]
    schema = _one_schema(parts, time_columns)
    if template_column is not None and pa.null() in [f.type for f in schema if f.name == template_column]:
        schema = _retyped(schema, template_column, pa.string())
    return _input(name, parts, tuple(notes), schema)


def _input(name: str, parts: list[_Part], notes: tuple[str, ...], schema: pa.Schema) -> Input:
    def retyped(types: Mapping[str, pa.DataType]) -> Input:
        fields = [field.with_type(types.get(field.name, field.type)) for field in schema]
        return _input(name, parts, notes, pa.schema(fields))

    tables = LazyTables(schema, [part.rows for part in parts], lambda number: parts[number].table(schema))
    starts = accumulate((part.rows_read for part in parts), initial=0)
    lost = tuple(start + int(at) for start, part in zip(starts, parts, strict=False) for at in part.lost)
    free = frozenset.intersection(*(frozenset(part.free) for part in parts))
    codes = tuple(code for part in parts for code in part.codes)
    return Input(name, tables, _unparsable(parts, schema), notes, lost, codes, free, retyped)


def _free_columns(
    file: Path, raw: pa.Table, time_columns: tuple[str, ...], template_column: str | None
) -> dict[str, pa.DataType]:
    """The columns of a CSV file that may have several types, with the type that their text suggests."""
    if format_of(file) != "csv":
        return {}
    check_distinct(file, raw.schema.names)
    free = {name: natural_type(raw.column(name)) for name in raw.schema.names if name not in time_columns}
    if template_column in free and free[template_column] not in (pa.int64(), pa.null()):
        free[template_column] = pa.string()
    return free


def _in_memory(table: pa.Table) -> Callable[[], pa.Table]:
    return lambda: table


class _OnDisk:
    """A folder of tables, deleted when it is no longer used."""

    def __init__(self) -> None:
        self._folder = Path(mkdtemp(prefix="whenabouts-"))
        self._number = count()
        finalize(self, rmtree, self._folder, ignore_errors=True)

    def put(self, table: pa.Table) -> Callable[[], pa.Table]:
        """Write a table, and return a function that reads it."""
        path = self._folder / f"{next(self._number)}.arrow"
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
        return lambda: self._read(path)

    def _read(self, path: Path) -> pa.Table:
        with pa.OSFile(str(path)) as file:
            return pa.ipc.open_file(file).read_all()


class _Part(NamedTuple):
    """A file, settled: what there is to know of its table, and how to get it.

    `blank`: time columns without any value. `free`: columns whose text is converted when the table is asked for, and
    the type that their text says; it is the one in `schema`.
    """

    file: Path
    rows_read: int
    rows: int
    schema: pa.Schema
    blank: frozenset[str]
    free: Mapping[str, pa.DataType]
    unparsable: pa.Table
    text_columns: tuple[str, ...]
    lost: IntArray
    codes: list[Code]
    load: Callable[[], pa.Table]

    @classmethod
    def of(
        cls,
        file: Path,
        raw: pa.Table,
        settled: ParsedTimes,
        time_columns: tuple[str, ...],
        free: Mapping[str, pa.DataType],
        put: Callable[[pa.Table], Callable[[], pa.Table]],
    ) -> _Part:
        """What is kept of a file when its table is stored."""
        table = settled.table
        there = [name for name in time_columns if table.schema.get_field_index(name) >= 0]
        blank = frozenset(name for name in there if table.column(name).null_count == table.num_rows)
        codes = [Code.TIME_OUT_OF_RANGE if outside else Code.UNPARSABLE_TIME for outside in settled.outside.tolist()]
        kept = (settled.unparsable, settled.text_columns, settled.lost, codes)
        schema = pa.schema([field.with_type(free.get(field.name, field.type)) for field in table.schema])
        return cls(file, raw.num_rows, table.num_rows, schema, blank, free, *kept, put(table))

    def table(self, schema: pa.Schema) -> pa.Table:
        """The table in the schema of all files."""
        table = self.load()
        for name in self.blank:
            at = table.schema.get_field_index(name)
            table = table.set_column(at, name, pa.nulls(table.num_rows, schema.field(name).type))
        return cast_to(self._converted(table, schema, None), schema, self.file)

    def rejects(self, schema: pa.Schema) -> pa.Table:
        """The rows with unreadable times, likewise."""
        return cast_to(self._converted(self.unparsable, schema, self.lost), schema, self.file)

    def _converted(self, table: pa.Table, schema: pa.Schema, rows: IntArray | None) -> pa.Table:
        """Free columns in the types of a schema. `rows`: which rows of the file these are, None: all but the lost."""
        if rows is None and len(self.lost):
            rows = np.delete(np.arange(self.rows_read), self.lost)
        wanted, columns = _types(schema), []
        for name, column in zip(table.schema.names, table.columns, strict=True):
            what, natural = f"column {name!r} of {self.file}", self.free.get(name)
            free = name in self.free
            columns.append(as_type(column, wanted[name], what, rows, natural=natural) if free else column)
        return pa.Table.from_arrays(columns, names=table.schema.names)


def _as_they_are(files: list[Path], time_columns: tuple[str, ...]) -> ParquetTables | None:
    """Parquet files that all have one schema and times with a zone; None for all others.

    Engines skip names that begin with an underscore or a dot.
    """
    if any(format_of(file) != "parquet" or file.name.startswith(("_", ".")) for file in files):
        return None
    try:
        schemas = [pq.read_schema(file).remove_metadata() for file in files]
    except (OSError, pa.ArrowException):
        return None
    schema = schemas[0]
    times = [schema.field(name).type for name in time_columns if schema.names.count(name) == 1]
    plain = len(times) == len(time_columns) and len(set(schema.names)) == len(schema)
    plain &= all(pa.types.is_timestamp(kind) and kind.tz is not None and kind.unit == "us" for kind in times)
    return ParquetTables(files, schema) if plain and all(each == schema for each in schemas) else None


def _one_schema(parts: Sequence[_Part], time_columns: tuple[str, ...]) -> pa.Schema:
    """The schema of all tables.

    A file without rows does not determine whether its times are numbers or dates: such columns take the type of the
    other files. Columns of text files take the types of the other files, if they can.
    """
    schemas = [part.schema for part in parts]
    for name in dict.fromkeys(time_columns):
        types = {p.schema.field(name).type for p in parts if name not in p.blank and _has(p.schema, name)}
        for index, part in enumerate(parts):
            if len(types) == 1 and name in part.blank:
                schemas[index] = _retyped(schemas[index], name, next(iter(types)))
    types_of = [_types(schema) for schema in schemas]
    for name in dict.fromkeys(name for part in parts for name in part.free):
        there = [index for index, known in enumerate(types_of) if name in known]
        columns = [(types_of[index][name], name in parts[index].free) for index in there]
        for index, type_ in zip(there, typed_alike(columns, _unify), strict=True):
            types_of[index][name] = type_
    schemas = [
        schema if part.free.keys().isdisjoint(known) else pa.schema([f.with_type(known[f.name]) for f in schema])
        for part, schema, known in zip(parts, schemas, types_of, strict=True)
    ]
    whole = schemas[0]
    for part, schema in zip(parts, schemas, strict=True):
        check_distinct(part.file, schema.names)
        if schema is not schemas[0]:
            whole = unified(whole, schema, parts[0].file, part.file)
    return whole


def _unify(types: Sequence[pa.DataType]) -> bool:
    try:
        pa.unify_schemas([pa.schema([("column", type_)]) for type_ in types], promote_options="permissive")
    except pa.ArrowException:
        return False
    return True


def _types(schema: pa.Schema) -> dict[str, pa.DataType]:
    """Types by column name, since a schema searches all names for each."""
    return {field.name: field.type for field in schema}


def _has(schema: pa.Schema, name: str) -> bool:
    return bool(schema.get_field_index(name) >= 0)


def _retyped(schema: pa.Schema, name: str, type_: pa.DataType) -> pa.Schema:
    at = schema.get_field_index(name)
    return schema.set(at, schema.field(at).with_type(type_))


def _unparsable(parts: Sequence[_Part], schema: pa.Schema) -> pa.Table:
    """All rows with unreadable times, in the input's schema, with time columns as text if they were."""
    text = {column for part in parts for column in part.text_columns}
    raw = pa.schema([(f.name, pa.string() if f.name in text else f.type) for f in schema])
    tables = [part.rejects(raw) for part in parts if part.unparsable.num_rows]
    return pa.concat_tables(tables) if tables else raw.empty_table()

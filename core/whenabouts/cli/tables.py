"""Input files to Arrow tables: Parquet, CSV, JSON lines; a file, a folder or a glob; one schema for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import overload

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from whenabouts.core.event_files import cast_to, check_distinct, find_files, format_of, read_file, unified
from whenabouts.core.written_times import ClockRules, Findings, Settled, settle

_INTEGER = r"^(0|-?[1-9][0-9]*)$"


class ParquetTables(Sequence[pa.Table]):
    """The tables of Parquet files of one schema, each read when it is asked for: what an engine may read by itself."""

    def __init__(self, paths: Sequence[Path], schema: pa.Schema) -> None:
        self.paths, self.schema = tuple(paths), schema
        self.num_rows = sum(pq.read_metadata(path).num_rows for path in paths)

    def __len__(self) -> int:
        return len(self.paths)

    @overload
    def __getitem__(self, at: int) -> pa.Table: ...
    @overload
    def __getitem__(self, at: slice) -> list[pa.Table]: ...
    def __getitem__(self, at: int | slice) -> pa.Table | list[pa.Table]:
        if isinstance(at, slice):
            return [self[number] for number in range(len(self))[at]]
        return cast_to(read_file(self.paths[at]), self.schema, self.paths[at])


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a query, read: a table per file in order of their names, all of `schema`.

    `unparsable`: the rows whose time text is no time, in `raw_schema`, that is with their time columns as text where
    the files hold text. `notes`: what the user should be told. `unparsable_at`: which rows of the input these are,
    counted from 0 over all files. rows_in = rows of the tables + unparsable rows.
    """

    name: str
    tables: Sequence[pa.Table]
    unparsable: pa.Table
    notes: tuple[str, ...] = ()
    unparsable_at: tuple[int, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """Schema of every table."""
        return self.tables.schema if isinstance(self.tables, ParquetTables) else self.tables[0].schema

    @property
    def raw_schema(self) -> pa.Schema:
        """Schema of the rejects: time columns that came as text are text."""
        return self.unparsable.schema

    @property
    def rows_in(self) -> int:
        """Rows that the files hold."""
        tables = self.tables
        rows = [tables.num_rows] if isinstance(tables, ParquetTables) else [table.num_rows for table in tables]
        return int(sum(rows) + self.unparsable.num_rows)


def read_input(
    name: str,
    path: str,
    time_columns: tuple[str, ...],
    clock: ClockRules,
    template_column: str | None = None,
    *,
    left_to_engine: Callable[[pa.Schema], bool] | None = None,
) -> Input:
    """Read all files under `path` (a file, a folder, a glob) as the input called `name`. Memory: all of it.

    But Parquet files of one schema, whose times need no settling, are not read where `left_to_engine` says so of it.

    Times are settled. The template column keeps its values as they are written: "007" is not the template "7".

    Raises: InputError WA-1008 for what cannot be read, WA-1001 and WA-1002 for files that disagree, with the file's
    name and the column; QueryError WA-2009 for two columns of one name; and what `settle` raises.
    """
    files, notes = find_files(path)
    if left_to_engine is not None:
        there = _as_they_are(files, time_columns)
        if there is not None and left_to_engine(there.schema):
            return Input(name, there, there.schema.empty_table(), tuple(notes))
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


def _as_they_are(files: list[Path], time_columns: tuple[str, ...]) -> ParquetTables | None:
    """Parquet files that all have one schema and times with a zone; None for others, about which there is more to say.

    Names with an underscore or a dot in front are passed over by engines.
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


def _of_one_schema(files: list[Path], tables: list[pa.Table]) -> list[pa.Table]:
    schema = tables[0].schema
    for file, table in zip(files, tables, strict=True):
        check_distinct(file, table.schema.names)
    for file, table in zip(files[1:], tables[1:], strict=True):
        schema = unified(schema, table.schema, files[0], file)
    return [cast_to(table, schema, file) for file, table in zip(files, tables, strict=True)]


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


def _unparsable(settled: list[Settled], schema: pa.Schema) -> pa.Table:
    """All rows that were lost to unreadable times, in the input's schema but for the time columns that are text."""
    text = {column for part in settled for column in part.text_columns}
    raw = pa.schema([(f.name, pa.string() if f.name in text else f.type) for f in schema])
    tables = [cast_to(part.unparsable, raw, Path("rejected rows")) for part in settled if part.unparsable.num_rows]
    return pa.concat_tables(tables) if tables else raw.empty_table()

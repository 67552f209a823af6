"""One input of a query: a table for each of its files, read when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import overload

import pyarrow as pa
import pyarrow.parquet as pq

from whenabouts.core.errors import Code
from whenabouts.core.hosting.file_runs import FileInput
from whenabouts.core.sources.files import cast_to, read_file


class LazyTables(Sequence[pa.Table]):
    """Tables of one schema, each read on access; their numbers of rows are known in advance."""

    def __init__(self, schema: pa.Schema, rows: Sequence[int], load: Callable[[int], pa.Table]) -> None:
        self.schema, self._rows, self._load = schema, tuple(rows), load

    @property
    def num_rows(self) -> int:
        """Rows of all tables."""
        return sum(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, at: int) -> pa.Table: ...
    @overload
    def __getitem__(self, at: slice) -> list[pa.Table]: ...
    def __getitem__(self, at: int | slice) -> pa.Table | list[pa.Table]:
        if isinstance(at, slice):
            return [self[number] for number in range(len(self))[at]]
        return self._load(range(len(self))[at])


class ParquetTables(LazyTables):
    """The tables of Parquet files of one schema, which an engine may read itself."""

    def __init__(self, paths: Sequence[Path], schema: pa.Schema) -> None:
        self.paths = tuple(paths)
        super().__init__(schema, [pq.read_metadata(path).num_rows for path in paths], self._read)

    def _read(self, number: int) -> pa.Table:
        return cast_to(read_file(self.paths[number]), self.schema, self.paths[number])


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a query: a table for each file in the order of their names, all of `schema`.

    `unparsable`: the rows whose time cannot be parsed, or is outside the calendar, in `raw_schema`: time columns are
    text there if they are text in the files. `unparsable_at`: the numbers of these rows, from 0 over all files, and
    `unparsable_codes` the reasons. rows_in = rows of the tables + unparsable rows. `notes`: messages for the user.
    `free`: columns that are text in all files; `retyped` returns the input with other types for them.
    """

    name: str
    tables: Sequence[pa.Table]
    unparsable: pa.Table
    notes: tuple[str, ...] = ()
    unparsable_at: tuple[int, ...] = ()
    unparsable_codes: tuple[Code, ...] = ()
    free: frozenset[str] = frozenset()
    retyped: Callable[[Mapping[str, pa.DataType]], Input] | None = None

    def in_memory(self) -> Input:
        """The input with all tables in memory. Raises: InputError WA-1002 and WA-1067 as `read_input`."""
        return replace(self, tables=tuple(self.tables), free=frozenset(), retyped=None)

    @property
    def files(self) -> FileInput:
        """The input as engines take it."""
        parquet = self.tables.paths if isinstance(self.tables, ParquetTables) else ()
        return FileInput(self.name, self.schema, self.tables, parquet, self.rows_in)

    @property
    def schema(self) -> pa.Schema:
        """Schema of every table."""
        return self.tables.schema if isinstance(self.tables, LazyTables) else self.tables[0].schema

    @property
    def raw_schema(self) -> pa.Schema:
        """Schema of the rejects: time columns that were text are text."""
        return self.unparsable.schema

    @property
    def rows_in(self) -> int:
        """Rows of all files."""
        tables = self.tables
        rows = [tables.num_rows] if isinstance(tables, LazyTables) else [table.num_rows for table in tables]
        return int(sum(rows) + self.unparsable.num_rows)

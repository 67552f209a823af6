"""The rejects of a whole command: rows with unreadable time text, and the rows that the run rejected."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from whenabouts.cli.inputs import Input
from whenabouts.core.arrays.value_texts import iso_texts, json_lines
from whenabouts.core.errors import REASONS, Code
from whenabouts.core.runtime.protocol import Rejected
from whenabouts.core.runtime.rejects import reject_column_names, reject_rows, rejects_schema


class RejectTables:
    """All rejected rows of a command: `input`, `code`, `reason`, then the inputs' columns.

    `run`: the rejects of the engine. `batches` can be taken once; `by_code` and `first`, a row, describe what has been
    taken. Times that are text in the files are text here: the original if it could not be parsed (WA-1009) or is
    outside the calendar, else ISO 8601 in UTC.
    """

    def __init__(self, inputs: Sequence[Input], run: Iterator[pa.RecordBatch]) -> None:
        self._inputs = inputs
        self._raw = [source.raw_schema for source in inputs]
        self._names = tuple(source.name for source in inputs)
        self.schema = rejects_schema(self._raw)
        self.by_code: Counter[str] = Counter()
        self.first: dict[str, Any] | None = None
        self.batches = self._counted(run)

    @property
    def rows(self) -> int:
        """Rows taken so far."""
        return self.by_code.total()

    def _counted(self, run: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in self._merged(run):
            self.by_code.update(batch.column("code").to_pylist())
            if self.first is None and batch.num_rows:
                (line,) = json_lines(pa.Table.from_batches([batch.slice(0, 1)]))
                self.first = {name: value for name, value in json.loads(line).items() if value is not None}
            yield batch

    def _merged(self, run: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for index, source in enumerate(self._inputs):
            for code in dict.fromkeys(source.unparsable_codes):
                with_code = pa.array([each is code for each in source.unparsable_codes])
                for batch in source.unparsable.filter(with_code).to_batches():
                    yield reject_rows(Rejected(index, code, batch), self._raw, self._names)
        read = [source.schema for source in self._inputs]
        for rejected in run:
            rows = pa.Table.from_batches([rejected])
            for index, source in enumerate(self._inputs):
                mine = rows.filter(pc.equal(rows.column("input"), source.name))
                for code in sorted(set(mine.column("code").to_pylist())):
                    some = mine.filter(pc.equal(mine.column("code"), code)).select(reject_column_names(read, index))
                    for batch in _as_written(some.rename_columns(source.schema.names), source).to_batches():
                        yield reject_rows(Rejected(index, Code(code), batch), self._raw, self._names)


def counted_by_reason(counts: Counter[str]) -> str:
    """The counts as text.

    >>> counted_by_reason(Counter({"WA-1003": 2}))
    '2 x WA-1003 (a time is null)'
    """
    return ", ".join(f"{n:,} x {code} ({REASONS[Code(code)]})" for code, n in sorted(counts.items()))


def _as_written(rows: pa.Table, source: Input) -> pa.Table:
    columns = []
    for column, field in zip(rows.columns, source.raw_schema, strict=True):
        if column.type != field.type:
            column = pa.chunked_array([_raw(chunk, field.type) for chunk in column.chunks], field.type)
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=source.raw_schema)


def _raw(column: pa.Array, type_: pa.DataType) -> pa.Array:
    """A time column in the type of the files."""
    return iso_texts(column) if pa.types.is_timestamp(column.type) else column.cast(type_)

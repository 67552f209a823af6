"""The rejects of a whole command: rows with unreadable time text, and the rows that the run rejected, in one table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from whenabouts.cli.outputs import iso_text
from whenabouts.cli.tables import Input
from whenabouts.core.errors import REASONS, Code
from whenabouts.core.events import reject_column_names, reject_rows, rejects_schema
from whenabouts.core.protocol import Rejected


def merge_rejects(inputs: Sequence[Input], run: pa.Table) -> pa.Table:
    """All rejected rows of a command: `input`, `code`, `reason`, then the inputs' columns.

    `run` is the rejects table of the engine. Times that the files hold as text are text here: the original one where
    it could not be read (WA-1009), else ISO 8601 in UTC.
    """
    names = tuple(source.name for source in inputs)
    raw = [source.raw_schema for source in inputs]
    read = [source.schema for source in inputs]
    batches = []
    for place, source in enumerate(inputs):
        parts = [(Code.UNPARSABLE_TIME, source.unparsable)]
        mine = run.filter(pc.equal(run.column("input"), source.name))
        for code in sorted(set(mine.column("code").to_pylist())):
            rows = mine.filter(pc.equal(mine.column("code"), code)).select(reject_column_names(read, place))
            parts.append((Code(code), _as_written(rows.rename_columns(source.schema.names), source)))
        for code, rows in parts:
            for batch in rows.to_batches():
                batches.append(reject_rows(Rejected(place, code, batch), raw, names))
    return pa.Table.from_batches(batches, rejects_schema(raw))


def counts_by_code(rejects: pa.Table) -> Counter[str]:
    """How many rows were rejected under each code."""
    return Counter(rejects.column("code").to_pylist())


def told(counts: Counter[str]) -> str:
    """The counts as a sentence.

    >>> told(Counter({"WA-1003": 2}))
    '2 x WA-1003 (a time is null)'
    """
    return ", ".join(f"{n:,} x {code} ({REASONS[Code(code)]})" for code, n in sorted(counts.items()))


def _as_written(rows: pa.Table, source: Input) -> pa.Table:
    columns = []
    for column, field in zip(rows.columns, source.raw_schema, strict=True):
        if column.type != field.type:
            column = iso_text(column) if pa.types.is_timestamp(column.type) else column.cast(field.type)
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=source.raw_schema)

"""A small table on stdout, for results that are not written to a file."""

from __future__ import annotations

import re
import sys

import pyarrow as pa

from whenabouts.cli.say import printable
from whenabouts.core.arrays.value_texts import texts
from whenabouts.core.hosting.file_runs import OutcomeBatches

_ROWS, _COLUMNS, _WIDTH_OF_A_PIPE = 10, 12, 160
_ZEROS = re.compile(r"\.0+(?=Z?$)")


def print_first_rows(found: OutcomeBatches) -> None:
    """Print the first rows and the number of rows; takes all batches."""
    from rich.console import Console
    from rich.table import Table

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else _WIDTH_OF_A_PIPE)
    first: list[pa.RecordBatch] = []
    for batch in found.batches:
        missing = _ROWS - sum(each.num_rows for each in first)
        first += [batch.slice(0, missing)] if missing else []
    names = found.schema.names
    shown = pa.Table.from_batches(first, found.schema).select(names[:_COLUMNS])
    grid = Table(box=None, header_style="bold", pad_edge=False)
    for field in shown.schema:
        numeric = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        grid.add_column(_tame(field.name), justify="right" if numeric else "left", overflow="fold")
    for row in zip(*map(_shown, shown.columns), strict=True):
        grid.add_row(*row)
    console.print(grid)
    more = f", and the columns {printable(', '.join(names[_COLUMNS:]), kept='')}" if len(names) > _COLUMNS else ""
    console.print(f"{shown.num_rows:,} of {found.rows:,} rows{more} (-o FILE writes all)", markup=False)


def _tame(text: str) -> str:
    from rich.markup import escape

    return escape(printable(text, kept=""))


def _shown(column: pa.ChunkedArray) -> list[str]:
    if pa.types.is_floating(column.type):
        values = column.cast(pa.float64()).to_pylist()
        return ["" if value is None else f"{value:.6g}" for value in values]
    written = ["" if text is None else text for chunk in column.chunks for text in texts(chunk)]
    if pa.types.is_temporal(column.type):
        written = [_ZEROS.sub("", text) for text in written]
    return list(map(_tame, written))

"""A small readable table on stdout, for a result that is not written to a file."""

from __future__ import annotations

import sys
from datetime import datetime

import pyarrow as pa

from whenabouts.cli.engine_results import EngineResult

_ROWS, _COLUMNS, _WIDTH_OF_A_PIPE = 10, 12, 160


def print_first_rows(found: EngineResult) -> None:
    """Print the first rows and how many there are; takes all of them."""
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
        grid.add_column(field.name, justify="right" if numeric else "left", overflow="fold")
    for row in zip(*(column.to_pylist() for column in shown.columns), strict=True):
        grid.add_row(*map(_text, row))
    console.print(grid)
    more = f", and the columns {', '.join(names[_COLUMNS:])}" if len(names) > _COLUMNS else ""
    console.print(f"{shown.num_rows:,} of {found.rows:,} rows{more} (-o FILE writes all)", markup=False)


def _text(value: object) -> str:
    from rich.markup import escape

    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    return escape(value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else str(value))

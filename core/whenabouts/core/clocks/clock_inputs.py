"""The two frames of which clocks are compared, as blocks of usable rows."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from whenabouts.core.arrays.record_batches import table_of
from whenabouts.core.joins.sides import SIDES
from whenabouts.core.runtime.event_reader import EventReader
from whenabouts.core.runtime.option_checks import text
from whenabouts.core.times.time_specs import Point


def read_sides(tables: Sequence[pa.Table], columns: Sequence[str]) -> list[pa.Table]:
    """The rows of both sides that have a time. Raises InputError WA-1xxx for a column, QueryError WA-2006 for a name
    that is no text."""
    blocks = []
    for number, (table, column) in enumerate(zip(tables, columns, strict=True)):
        text(f"{SIDES[number]}_time", column)
        reader = EventReader(number, SIDES[number], table.schema, Point(column))
        read = [reader.read(batch).block for batch in table.to_batches()]
        blocks.append(table_of(read, reader.block_schema))
    return blocks

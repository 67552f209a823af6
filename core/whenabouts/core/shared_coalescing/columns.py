"""What queries over one stream have in common: their group and output columns; rows without a group or out of order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.typing import BoolArray
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.runtime.event_reader import times

QUERY = "query"
"""The output column that says which query a row is of."""


def common_groups(groups: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """The columns that all groupings have."""
    first, *others = groups
    return tuple(name for name in first if all(name in other for other in others))


def without_group(rows: pa.RecordBatch | pa.Table, names: Iterable[str]) -> BoolArray:
    """Which rows have no group, as a column of it is null."""
    none = np.zeros(rows.num_rows, bool)
    for name in names:
        column = rows.column(name)
        if column.null_count:
            none |= np.asarray(column.is_null())
    return none


def out_of_order(blocks: Sequence[pa.RecordBatch], latest: int) -> int:
    """How many rows lie behind one that came before them."""
    found = 0
    for block in blocks:
        t = times(block)[1]
        before = np.maximum.accumulate(np.concatenate([[latest], t]))
        found += int((t < before[:-1]).sum())
        latest = int(before[-1])
    return found


def union_schema(schemas: Mapping[str, pa.Schema]) -> pa.Schema:
    """The columns of all queries behind the one that says which query a row is of."""
    fields: dict[str, pa.Field] = {QUERY: pa.field(QUERY, pa.string())}
    for name, schema in schemas.items():
        for field in schema:
            known = fields.setdefault(field.name, field.remove_metadata())
            if known.type != field.type or field.name == QUERY:
                raise QueryError(
                    Code.COLUMN_CLASH,
                    f"column {field.name!r} of query {name!r} is {field.type}, another one of that name {known.type}",
                    "rename one: queries that share an operator share their result's columns",
                )
    return pa.schema(list(fields.values()))

"""Columns that queries over one stream share, and rows that have no group or are out of order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.typing import BoolArray
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.runtime.blocks import times

QUERY = "query"
"""The output column with the name of the query that a row belongs to."""


def common_groups(groups: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """The group columns that all queries have."""
    first, *others = groups
    return tuple(name for name in first if all(name in other for other in others))


def without_group(rows: pa.RecordBatch | pa.Table, names: Iterable[str]) -> BoolArray:
    """Which rows have a null in one of these group columns."""
    null = np.zeros(rows.num_rows, bool)
    for name in names:
        column = rows.column(name)
        if column.null_count:
            null |= np.asarray(column.is_null())
    return null


def out_of_order(blocks: Sequence[pa.RecordBatch], latest: int) -> int:
    """How many rows are earlier than a row that arrived before them."""
    found = 0
    for block in blocks:
        t = times(block)[1]
        before = np.maximum.accumulate(np.concatenate([[latest], t]))
        found += int((t < before[:-1]).sum())
        latest = int(before[-1])
    return found


def union_schema(schemas: Mapping[str, pa.Schema]) -> pa.Schema:
    """The name of the query, followed by the columns of all queries."""
    fields: dict[str, pa.Field] = {QUERY: pa.field(QUERY, pa.string())}
    for name, schema in schemas.items():
        for field in schema:
            known = fields.setdefault(field.name, field.remove_metadata())
            if known.type != field.type or field.name == QUERY:
                raise QueryError(
                    Code.COLUMN_CLASH,
                    f"column {field.name!r} is {field.type} in query {name!r}, and {known.type} in another one",
                    "rename one: queries that share an extent have common output columns",
                )
    return pa.schema(list(fields.values()))

"""Outputs that change rows emitted before: one column of theirs says what becomes of each row.

An engine that has changes of its own (Flink's `RowKind`) finds the column by its metadata, whatever the operator.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whenabouts.core.arrays.typing import BoolArray

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = OPS = ("insert", "update_before", "update_after", "delete")
"""A new row; a row that is replaced, and right after it the row that replaces it; a row that is taken away."""

_MARK = {b"whenabouts": b"changes"}


def changes_field(name: str) -> pa.Field:
    """The field of a column of `OPS`.

    >>> changes_column(pa.schema([changes_field("op"), ("v", pa.int64())]))
    'op'
    """
    return pa.field(name, pa.string(), metadata=_MARK)


def changes_column(schema: pa.Schema) -> str | None:
    """The name of the column that says what becomes of each row; None if all rows are new."""
    found = (field.name for field in schema if (field.metadata or {}).items() >= _MARK.items())
    return next(found, None)


def kept_changes(rows: pa.RecordBatch, keep: BoolArray) -> pa.RecordBatch:
    """The rows where `keep` is true. Of an update with one such row, that row is a deletion or an insertion.

    Rows without a column of changes are just filtered. O(rows).

    >>> schema = pa.schema([changes_field("op"), ("n", pa.int64())])
    >>> rows = pa.record_batch({"op": ["update_before", "update_after"], "n": [1, 2]}, schema)
    >>> kept_changes(rows, np.array([False, True])).to_pylist()
    [{'op': 'insert', 'n': 2}]
    """
    name = changes_column(rows.schema)
    if name is None:
        return rows.filter(pa.array(keep))
    ops = rows.column(name)
    before, after = (np.asarray(pc.equal(ops, op)) for op in (UPDATE_BEFORE, UPDATE_AFTER))
    gone, new = before & ~np.append(keep[1:], False), after & ~np.insert(keep[:-1], 0, False)
    ops = pc.if_else(pa.array(gone), DELETE, pc.if_else(pa.array(new), INSERT, ops))
    return rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), ops).filter(pa.array(keep))

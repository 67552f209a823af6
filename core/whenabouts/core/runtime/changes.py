"""Outputs that change rows emitted before: one column of theirs says what becomes of each row.

An engine that has changes of its own (Flink's `RowKind`) finds the column by its metadata, whatever the operator.
"""

from __future__ import annotations

import pyarrow as pa

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

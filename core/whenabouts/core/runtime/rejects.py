"""Rejected rows as a table: why each row was rejected, and its original columns."""

from __future__ import annotations

import pyarrow as pa

from whenabouts.core.errors import REASONS
from whenabouts.core.runtime.protocol import Rejected

_OWN = ("input", "code", "reason")


def rejects_schema(schemas: list[pa.Schema] | tuple[pa.Schema, ...]) -> pa.Schema:
    """The schema of a rejects table: `input`, `code`, `reason`, then the inputs' columns.

    Inputs share columns with equal name and type. If the type differs, the input's number is appended to the name.
    """
    types = {name: pa.string() for name in _OWN}
    for schema, names in zip(schemas, _names(schemas), strict=True):
        for field, name in zip(schema, names, strict=True):
            types.setdefault(name, field.type)
    return pa.schema(list(types.items()))


def reject_rows(
    rejected: Rejected, schemas: list[pa.Schema] | tuple[pa.Schema, ...], inputs: tuple[str, ...]
) -> pa.RecordBatch:
    """Rejected rows in the `rejects_schema` of all inputs; other inputs' columns are null."""
    schema, n = rejects_schema(schemas), rejected.rows.num_rows
    columns: dict[str, pa.Array] = {
        "input": pa.repeat(inputs[rejected.input], n),
        "code": pa.repeat(str(rejected.code), n),
        "reason": pa.repeat(REASONS[rejected.code], n),
    }
    columns |= dict(zip(reject_column_names(schemas, rejected.input), rejected.rows.columns, strict=True))
    arrays = [columns[field.name] if field.name in columns else pa.nulls(n, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def were_rejected(rows: int) -> str:
    """How many rows were rejected, as a sentence without a full stop.

    >>> were_rejected(1), were_rejected(4_000)
    ('1 row was rejected', '4,000 rows were rejected')
    """
    return f"{rows:,} row was rejected" if rows == 1 else f"{rows:,} rows were rejected"


def reject_column_names(schemas: list[pa.Schema] | tuple[pa.Schema, ...], input: int) -> list[str]:
    """The names of an input's columns in the `rejects_schema` of all inputs."""
    return _names(schemas)[input]


def _names(schemas: list[pa.Schema] | tuple[pa.Schema, ...]) -> list[list[str]]:
    """By input, the names of its columns. One that is renamed gets a name that no column of any input has.

    >>> one, other = pa.schema({"x": pa.int64(), "x_1": pa.int64()}), pa.schema({"x": pa.string(), "code": pa.int8()})
    >>> _names([one, other])
    [['x', 'x_1'], ['x_1_1', 'code_1']]
    """
    types: dict[str, pa.DataType] = {}
    taken = {*_OWN, *(name for schema in schemas for name in schema.names)}
    found = []
    for input, schema in enumerate(schemas):
        names = []
        for field in schema:
            name = field.name
            if name in _OWN or types.setdefault(name, field.type) != field.type:
                while name in taken:
                    name += f"_{input}"
                taken.add(name)
            names.append(name)
        found.append(names)
    return found

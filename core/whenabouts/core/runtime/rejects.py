"""Rejected rows as a table: why each row was rejected, and its original columns."""

from __future__ import annotations

import pyarrow as pa

from whenabouts.core.errors import REASONS
from whenabouts.core.runtime.protocol import Rejected


def rejects_schema(schemas: list[pa.Schema] | tuple[pa.Schema, ...]) -> pa.Schema:
    """The schema of a rejects table: `input`, `code`, `reason`, then the inputs' columns.

    Inputs share columns with equal name and type. If the type differs, the input's number is appended to the name.
    """
    fields = [pa.field("input", pa.string()), pa.field("code", pa.string()), pa.field("reason", pa.string())]
    for input, schema in enumerate(schemas):
        names = {field.name: field.type for field in fields}
        for field, name in zip(schema, reject_column_names(schemas, input), strict=True):
            if name not in names:
                fields.append(pa.field(name, field.type))
    return pa.schema(fields)


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


def reject_column_names(schemas: list[pa.Schema] | tuple[pa.Schema, ...], input: int) -> list[str]:
    """The names of an input's columns in the `rejects_schema` of all inputs."""
    taken = {"input", "code", "reason"}
    types: dict[str, pa.DataType] = {}
    for schema in schemas[:input]:
        for field in schema:
            types.setdefault(field.name, field.type)
    return [
        f"{field.name}_{input}"
        if field.name in taken or types.get(field.name, field.type) != field.type
        else field.name
        for field in schemas[input]
    ]

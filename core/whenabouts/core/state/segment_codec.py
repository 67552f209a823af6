"""Segment bytes: a format version, followed by one record batch of a known schema. Never pickle.

The schema is not repeated in every segment. The operator knows it, and stores its fingerprint in its directory, so that
a restart with other columns is refused and never misread. A column with the same bytes as another one (a user's
`TIMESTAMP`, and the microseconds read from it) is omitted, and restored without a copy when the segment is read.

Version 1 held every column; it can still be read.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import pyarrow as pa

from whenabouts.core.arrays.record_batches import source_of
from whenabouts.core.errors import Code, EngineError

FORMAT_VERSION = 2
_READ = (1, 2)
_MAGIC = b"WA"
_PREFIX = _MAGIC + bytes([FORMAT_VERSION])


def encode(rows: pa.RecordBatch, schema: pa.Schema | None = None) -> bytes:
    """The bytes of a segment. `schema`: the one that it will be read with, by default that of `rows`.

    >>> from whenabouts.core.arrays.record_batches import copy_of
    >>> schema = pa.schema([pa.field("us", pa.int64()), copy_of(pa.field("t", pa.timestamp("us")), "us")])
    >>> rows = pa.record_batch({"us": pa.array([1, 2]), "t": pa.array([1, 2], pa.timestamp("us"))})
    >>> decode(encode(rows, schema), schema).equals(rows)
    True
    """
    form = _form_of(rows.schema) if schema is None else _form(schema)
    if form.columns is not None:
        rows = pa.RecordBatch.from_arrays([rows.column(i) for i in form.kept], schema=form.stored)
    return b"".join((_PREFIX, rows.serialize()))  # copies the bytes only once


def decode(data: bytes | pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of a segment written by `encode`, without a copy. Raises EngineError WA-3003 for another version."""
    message = pa.py_buffer(unwrap(data))
    form = _form(schema)
    if data[2] == 1 or form.columns is None:
        return pa.ipc.read_record_batch(message, schema)
    stored = pa.ipc.read_record_batch(message, form.stored).columns
    arrays = [stored[i] if type_ is None else stored[i].view(type_) for i, type_ in form.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def wrap(data: bytes) -> bytes:
    """Prefix metadata with the format version."""
    return _PREFIX + data


def unwrap(data: bytes | pa.Buffer) -> memoryview:
    """The bytes after the format version. Raises EngineError WA-3003 for another version."""
    whole = memoryview(data).cast("B")
    ours = whole[: len(_MAGIC)] == _MAGIC and len(whole) > len(_MAGIC)
    if not ours or whole[len(_MAGIC)] not in _READ:
        found = f"version {whole[len(_MAGIC)]}" if ours else "unknown bytes"
        raise EngineError(
            Code.STATE_FORMAT,
            f"the state is of {found}, this release reads version {FORMAT_VERSION}",
            "restart from a new checkpoint, or with the release that wrote it",
        )
    return whole[len(_PREFIX) :]


def fingerprint(*parts: object) -> str:
    """A short digest of what the state depends on (schemas, slot width): equal texts have equal digests.

    >>> fingerprint("a", 1) == fingerprint("a", 1), fingerprint("a", 1) == fingerprint("a", 2)
    (True, False)
    """
    return hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).hexdigest()


def stored_fields(schema: pa.Schema) -> list[pa.Field]:
    """The fields that segments of this schema hold."""
    return list(_form_of(schema).stored)


class _Form(NamedTuple):
    """How rows of a schema are stored: which columns, under which schema.

    `columns`: for every column of the schema the index of the stored column, and the type to view it as if it is
    another column's; None if every column is stored.
    """

    schema: pa.Schema
    kept: list[int]
    stored: pa.Schema
    columns: list[tuple[int, pa.DataType | None]] | None


_forms: dict[int, _Form] = {}
"""A cache by the identity of schemas: computing a form costs more than writing a small segment.

A form refers to its schema, so that no other schema can get the same identity.
"""

MOST_FORMS = 1024


def _form(schema: pa.Schema) -> _Form:
    """The cached form of a schema object."""
    form = _forms.get(id(schema))
    if form is None:
        if len(_forms) >= MOST_FORMS:
            _forms.clear()
        form = _forms[id(schema)] = _form_of(schema)
    return form


def _form_of(schema: pa.Schema) -> _Form:
    sources = [source_of(schema, name) for name in schema.names]
    kept = [i for i, (name, source) in enumerate(zip(schema.names, sources, strict=True)) if name == source]
    if len(kept) == len(schema):
        return _Form(schema, kept, schema, None)
    stored = pa.schema([schema.field(i) for i in kept])
    columns = [
        (stored.get_field_index(source), None if field.name == source else field.type)
        for field, source in zip(schema, sources, strict=True)
    ]
    return _Form(schema, kept, stored, columns)

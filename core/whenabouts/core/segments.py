"""Segment bytes: one record batch of a known schema behind a format version. Never pickle.

The schema is not repeated in every segment; the operator knows it, and keeps its fingerprint in its directory so that
a restart with other columns is refused instead of misread.
"""

from __future__ import annotations

import hashlib

import pyarrow as pa

from whenabouts.core.errors import Code, EngineError

FORMAT_VERSION = 1
_PREFIX = b"WA" + bytes([FORMAT_VERSION])


def encode(rows: pa.RecordBatch) -> bytes:
    """The bytes of a segment.

    >>> rows = pa.record_batch({"t": [1, 2]})
    >>> decode(encode(rows), rows.schema).equals(rows)
    True
    """
    message: bytes = rows.serialize().to_pybytes()
    return _PREFIX + message


def decode(data: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of a segment written by `encode`. Raises EngineError WA-3003 for another format version."""
    return pa.ipc.read_record_batch(pa.py_buffer(unwrap(data)), schema)


def wrap(data: bytes) -> bytes:
    """Put the format version in front of book-keeping bytes."""
    return _PREFIX + data


def unwrap(data: bytes) -> memoryview:
    """What stands behind the format version. Raises EngineError WA-3003 for another version."""
    if not data.startswith(_PREFIX):
        found = f"version {data[2]}" if data.startswith(b"WA") and len(data) > 2 else "unknown bytes"
        raise EngineError(
            Code.STATE_FORMAT,
            f"the state is of {found}, this release reads version {FORMAT_VERSION}",
            "restart from a new checkpoint, or with the release that wrote it",
        )
    return memoryview(data)[len(_PREFIX) :]


def fingerprint(*parts: object) -> str:
    """A short digest of what state depends on (schemas, slot width): equal text, equal digest.

    >>> fingerprint("a", 1) == fingerprint("a", 1), fingerprint("a", 1) == fingerprint("a", 2)
    (True, False)
    """
    return hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).hexdigest()

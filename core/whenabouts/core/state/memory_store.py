"""Segment stores: a dict in memory, a part of another store, and a store that records a digest of what is written."""

from __future__ import annotations

import hashlib

from whenabouts.core.runtime.protocol import SegmentStore


class DictStore:
    """Segments in a dict; implements `SegmentStore`.

    >>> store = DictStore(); store.put(0, 7, b"rows"); store.get(0, 7), store.get(0, 8)
    (b'rows', None)
    """

    def __init__(self, segments: dict[tuple[int, int], bytes] | None = None) -> None:
        self._segments = {} if segments is None else segments

    def get(self, input: int, slot: int) -> bytes | None:
        """The segment's bytes, or None."""
        return self._segments.get((input, slot))

    def put(self, input: int, slot: int, data: bytes) -> None:
        """Create or replace the segment."""
        self._segments[input, slot] = data

    def delete(self, input: int, slot: int) -> None:
        """Drop the segment if it is there."""
        self._segments.pop((input, slot), None)

    def copy(self) -> DictStore:
        """An independent store with the same segments, like an engine's checkpoint."""
        return DictStore(dict(self._segments))

    @property
    def bytes_held(self) -> int:
        """Total bytes of all segments."""
        return sum(map(len, self._segments.values()))


class StorePart:
    """One of several independent stores inside a store: part `number` of `parts`.

    >>> whole = DictStore(); one, other = StorePart(whole, 0, 2), StorePart(whole, 1, 2)
    >>> one.put(-1, 0, b"one"); other.put(-1, 0, b"other"); one.get(-1, 0), other.get(-1, 0)
    (b'one', b'other')
    """

    def __init__(self, store: SegmentStore, number: int, parts: int) -> None:
        self._store, self._number, self._parts = store, number, parts

    def get(self, input: int, slot: int) -> bytes | None:
        """The segment's bytes, or None."""
        return self._store.get(input * self._parts + self._number, slot)

    def put(self, input: int, slot: int, data: bytes) -> None:
        """Create or replace the segment."""
        self._store.put(input * self._parts + self._number, slot, data)

    def delete(self, input: int, slot: int) -> None:
        """Drop the segment if it is there."""
        self._store.delete(input * self._parts + self._number, slot)


class StampedStore:
    """A store that computes a digest of everything written to it, in order.

    >>> one, other = (StampedStore(DictStore()) for _ in range(2))
    >>> one.put(0, 7, b"rows"); other.put(0, 7, b"rows"); one.stamp("") == other.stamp("") != one.stamp("before")
    True
    """

    def __init__(self, store: SegmentStore) -> None:
        self._store = store
        self._written = hashlib.blake2b(digest_size=16)

    def get(self, input: int, slot: int) -> bytes | None:
        """The segment's bytes, or None."""
        return self._store.get(input, slot)

    def put(self, input: int, slot: int, data: bytes) -> None:
        """Create or replace the segment."""
        from whenabouts.core.arrays.digests import digest  # numba: imported when first needed

        self._written.update(f"put {input} {slot}\n".encode())
        self._written.update(digest(data))
        self._store.put(input, slot, data)

    def delete(self, input: int, slot: int) -> None:
        """Drop the segment if it is there."""
        self._written.update(f"delete {input} {slot}\n".encode())
        self._store.delete(input, slot)

    def stamp(self, before: str) -> str:
        """Identifies the current state, if `before` identified the state when this store was created."""
        return hashlib.blake2b(before.encode() + self._written.digest(), digest_size=16).hexdigest()

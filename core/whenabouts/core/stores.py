"""The in-process segment store: a dict. Also what tests snapshot to restart an operator in the middle."""

from __future__ import annotations

from whenabouts.core.protocol import SegmentStore


class DictStore:
    """Segments in a dict; keeps the protocol of `SegmentStore`.

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
        """An independent store with the same segments: what a checkpoint is to an engine."""
        return DictStore(dict(self._segments))

    @property
    def bytes_held(self) -> int:
        """Total bytes of all segments."""
        return sum(map(len, self._segments.values()))


class StorePart:
    """One of several stores inside a store: part `number` of `parts`, each with all inputs to itself.

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

"""The in-process segment store: a dict. Also what tests snapshot to restart an operator in the middle."""

from __future__ import annotations


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

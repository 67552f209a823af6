"""A cache of segments, so that a step need not read them from the engine, and a buffer of a step's writes.

A step reads the same few segments as the one before it. If the engine runs in a JVM, each read is a call into it, which
costs more than the rest of a step of few rows. Only the operator writes its state, and a restored job starts with a new
host and an empty cache: the cached bytes equal the engine's.
"""

from __future__ import annotations

from collections.abc import Callable

from whenabouts.core.runtime.protocol import SegmentStore

Segment = tuple[int, int]
"""Input and slot, as in `SegmentStore`."""

MOST_BYTES = 64 << 20
"""The most bytes that one operator caches."""


class SegmentCache:
    """The last bytes of the segments of all buckets of an operator; a full cache is emptied.

    >>> cache = SegmentCache(most_bytes=5)
    >>> cache.put(7, (0, 1), b"abc"), cache.put(7, (0, 2), None), cache.get(7, (0, 1)), cache.knows(7, (0, 2))
    (None, None, b'abc', True)
    >>> cache.put(8, (0, 1), b"def"), cache.knows(7, (0, 1)), cache.get(8, (0, 1))
    (None, False, b'def')
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._buckets: dict[int, dict[Segment, bytes | None]] = {}

    def knows(self, bucket: int, segment: Segment) -> bool:
        """Whether the segment's bytes are known."""
        return segment in self._buckets.get(bucket, ())

    def get(self, bucket: int, segment: Segment) -> bytes | None:
        """The bytes of a known segment; None: there is no such segment."""
        return self._buckets[bucket][segment]

    def put(self, bucket: int, segment: Segment, data: bytes | None) -> None:
        """Cache a segment's bytes. O(1)."""
        if self.knows(bucket, segment):
            self._bytes -= len(self._buckets[bucket].pop(segment) or b"")
        size = len(data or b"")
        if self._bytes + size > self._most_bytes:
            self._buckets.clear()
            self._bytes = 0
        if size <= self._most_bytes:
            self._buckets.setdefault(bucket, {})[segment] = data
            self._bytes += size

    def forget(self, bucket: int) -> None:
        """The bucket's state is gone."""
        self._bytes -= sum(len(data or b"") for data in self._buckets.pop(bucket, {}).values())


class CachedStore:
    """A `SegmentStore` of one bucket for one step: reads uncached segments by `fetch`, writes in `apply`."""

    def __init__(self, fetch: Callable[[Segment], bytes | None], cache: SegmentCache, bucket: int) -> None:
        self._fetch, self._cache, self._bucket = fetch, cache, bucket
        self._written: dict[Segment, bytes | None] = {}

    def get(self, input: int, slot: int) -> bytes | None:
        """The segment's bytes, or None."""
        segment = (input, slot)
        if segment in self._written:
            return self._written[segment]
        if not self._cache.knows(self._bucket, segment):
            data = self._fetch(segment)
            self._cache.put(self._bucket, segment, data)
            return data
        return self._cache.get(self._bucket, segment)

    def put(self, input: int, slot: int, data: bytes) -> None:
        """Create or replace the segment."""
        self._written[input, slot] = data

    def delete(self, input: int, slot: int) -> None:
        """Drop the segment if it is there."""
        self._written[input, slot] = None

    def apply(self, store: SegmentStore) -> None:
        """Write the step's segments to the engine: it did not fail."""
        for segment, data in self._written.items():
            if data is None:
                store.delete(*segment)
            else:
                store.put(*segment, data)
            self._cache.put(self._bucket, segment, data)

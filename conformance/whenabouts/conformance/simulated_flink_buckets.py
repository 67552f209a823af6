"""The engine's storage in the simulated Flink: buckets, which task has them, and what a host may do with one."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple, Protocol

from whenabouts.conformance.simulated_engine import Segments
from whenabouts.core.hosting.bucket_labels import least_labels, murmur3

GROUPS = 128
"""Key groups: each task has a range of them."""

Blob = tuple[int, bytes]
"""A tag and bytes, as a host gives them."""
Clock = Literal["event", "clock"]


def key_group(label: int) -> int:
    """The key group of a label."""
    return abs(murmur3(62 + label)) % GROUPS


@lru_cache
def labels(buckets: int) -> tuple[int, ...]:
    """The label of each bucket: one in the middle of its share of key groups."""
    middles = [(2 * bucket + 1) * GROUPS // (2 * buckets) for bucket in range(buckets)]
    return least_labels(middles, key_group)


class Element(NamedTuple):
    """A packed row for a bucket."""

    label: int
    packed: tuple[int, int, bytes]


@dataclass
class Bucket:
    """The engine's storage for a bucket."""

    segments: dict[tuple[int, int], bytes] = field(default_factory=dict)
    record: bytes | None = None
    kept: tuple[bytes, ...] = ()
    timers: frozenset[tuple[Clock, int]] = frozenset()

    def copy(self) -> Bucket:
        """An independent bucket of the same bytes."""
        return Bucket(dict(self.segments), self.record, self.kept, self.timers)


class TaskOfBuckets(Protocol):
    """What a bucket needs of its task: its storage, the two clocks, and timers."""

    watermark_ms: int

    def storage(self, label: int) -> Bucket:
        """What the engine has stored for a bucket."""

    @property
    def now_ms(self) -> int:
        """The processing time."""

    def send(self, label: int, clock: Clock, ms: int, there: bool) -> None:
        """Set or delete a timer."""


@dataclass(frozen=True, slots=True)
class BucketState:
    """`element_host.BucketState` of a bucket of a task."""

    task: TaskOfBuckets
    key: int

    @property
    def bucket(self) -> Bucket:
        """The engine's storage for it."""
        return self.task.storage(self.key)

    @property
    def segments(self) -> Segments:
        """The operator's state."""
        return Segments(self.bucket.segments)

    def read_record(self) -> bytes | None:
        """The record's bytes."""
        return self.bucket.record

    def write_record(self, data: bytes) -> None:
        """Replace the record."""
        self.bucket.record = data

    def clear(self) -> None:
        """Drop segments and record."""
        self.bucket.segments.clear()
        self.bucket.record = None

    def keep(self, data: bytes) -> None:
        """Append to the rows that wait."""
        self.bucket.kept += (data,)

    def take_kept(self) -> list[bytes]:
        """The rows that wait."""
        kept, self.bucket.kept = self.bucket.kept, ()
        return list(kept)

    @property
    def watermark_ms(self) -> int:
        """The task's watermark."""
        return self.task.watermark_ms

    @property
    def now_ms(self) -> int:
        """The processing time."""
        return self.task.now_ms

    def set_event_timer(self, ms: int) -> None:
        """Set an event-time timer."""
        self.task.send(self.key, "event", ms, there=True)

    def delete_event_timer(self, ms: int) -> None:
        """Delete an event-time timer."""
        self.task.send(self.key, "event", ms, there=False)

    def set_clock_timer(self, ms: int) -> None:
        """Set a processing-time timer."""
        self.task.send(self.key, "clock", ms, there=True)

    def delete_clock_timer(self, ms: int) -> None:
        """Delete a processing-time timer."""
        self.task.send(self.key, "clock", ms, there=False)

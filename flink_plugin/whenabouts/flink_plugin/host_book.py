"""What the host of an operator remembers of a bucket itself: how far its watermark was, and which timers it has set."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from whenabouts.flink_plugin.clock import LEAST_MS


@dataclass(frozen=True)
class BucketRecord:
    """One bucket's. In Flink's state it is JSON.

    `buckets`: the number of buckets that its state was written for. `watermark_ms`: the greatest watermark that it has
    seen. `timer_ms`: its timer by event time, besides the last; `flush_ms`: its timer by the clock; None: not set.
    `keeps`: whether rows wait in front of the operator, whatever `max_latency` a job has that goes on from it.
    """

    buckets: int
    watermark_ms: int = LEAST_MS
    timer_ms: int | None = None
    flush_ms: int | None = None
    keeps: bool = False


class BucketRecords:
    """The books of the buckets of one subtask, over a ValueState of Flink's; each is read once, as segments are."""

    def __init__(self, state: Any) -> None:
        self._state = state
        self._known: dict[int, BucketRecord] = {}

    def knows(self, bucket: int) -> bool:
        """Whether the bucket's book was read or written since the job began or was restored."""
        return bucket in self._known

    def get(self, bucket: int) -> BucketRecord | None:
        """The bucket's book, None if it has none yet. `bucket` is the key that Flink is at."""
        if bucket not in self._known and (data := self._state.value()) is not None:
            self._known[bucket] = BucketRecord(**json.loads(data))
        return self._known.get(bucket)

    def put(self, bucket: int, book: BucketRecord) -> None:
        """Keep the bucket's book; it is written only if it is another one."""
        if book != self._known.get(bucket):
            self._state.update(json.dumps(vars(book)).encode())
            self._known[bucket] = book

    def forget(self, bucket: int) -> None:
        """The bucket has come to its end."""
        self._known.pop(bucket, None)
        self._state.clear()

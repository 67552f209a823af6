"""The host's record of each bucket: the number of buckets, the watermark, and the timers that are set.

The engine keeps the record with the bucket's state. `JsonRecords` writes it as JSON; hosts of micro-batches keep three
numbers of it (`micro_batch_host`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from whenabouts.core.errors import Code, EngineError
from whenabouts.core.hosting.element_watermark import LEAST_MS
from whenabouts.core.hosting.packer_clocks import PackerClocks
from whenabouts.core.hosting.query_identity import check_buckets


@dataclass(frozen=True)
class BucketRecord:
    """The record of one bucket.

    `buckets`: the number of buckets that its state was written for. `watermark_ms`: the greatest watermark that it has
    seen. `timer_ms`: its event-time timer, besides the one at the end of time; `flush_ms`: its processing-time timer;
    None: not set. `keeps`: whether rows wait before the operator (a later job may have another `max_latency`).
    `packers`: the clocks of each input's packers, if they decide which rows are late (`packer_clocks`). `clocks`:
    whether the bucket's state holds the progress of its inputs (`input_watermarks`): once it does, its watermark counts
    under all later settings. `key_groups`: as in `Hosting`.
    """

    buckets: int
    watermark_ms: int = LEAST_MS
    timer_ms: int | None = None
    flush_ms: int | None = None
    keeps: bool = False
    packers: tuple[PackerClocks, ...] = ()
    clocks: bool = False
    key_groups: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "packers", tuple(map(tuple, self.packers)))  # JSON has lists

    def check(self, buckets: int, key_groups: int = 0) -> BucketRecord:
        """This record. Raises EngineError WA-3003 if it was written for another number of buckets or key groups."""
        check_buckets(self.buckets, buckets)
        if self.key_groups not in (0, key_groups):  # older records have none
            raise EngineError(
                Code.STATE_FORMAT,
                f"the checkpoint's buckets lie in {self.key_groups} key groups, those of this job in {key_groups}",
                f"give the job the greatest parallelism {self.key_groups} (set_max_parallelism), or start from a new "
                "checkpoint",
            )
        return self


def move_timer(
    old_ms: int | None, new_ms: int | None, set_: Callable[[int], None], delete: Callable[[int], None]
) -> None:
    """Move a timer from `old_ms` to `new_ms`; None: no timer. Nothing is called if they are equal.

    >>> move_timer(3, 5, lambda ms: print("set", ms), lambda ms: print("delete", ms))
    delete 3
    set 5
    """
    if new_ms == old_ms:
        return
    if old_ms is not None:
        delete(old_ms)
    if new_ms is not None:
        set_(new_ms)


class RecordState(Protocol):
    """The engine's storage for the record of the current bucket, as bytes."""

    @property
    def key(self) -> int:
        """The current bucket."""

    def read_record(self) -> bytes | None:
        """The bytes of the record, None if there is none."""

    def write_record(self, data: bytes) -> None:
        """Replace the record."""


class JsonRecords:
    """The records of the buckets of one task. Each is read from the engine once, and written when it has changed."""

    def __init__(self) -> None:
        self._known: dict[int, BucketRecord] = {}

    def knows(self, state: RecordState) -> bool:
        """Whether the record was read or written since the task started."""
        return state.key in self._known

    def get(self, state: RecordState) -> BucketRecord | None:
        """The bucket's record, None if it has none yet."""
        if state.key not in self._known and (data := state.read_record()) is not None:
            self._known[state.key] = BucketRecord(**json.loads(data))
        return self._known.get(state.key)

    def put(self, state: RecordState, record: BucketRecord) -> None:
        """Keep the bucket's record."""
        if record != self._known.get(state.key):
            state.write_record(json.dumps(vars(record)).encode())
            self._known[state.key] = record

    def forget(self, state: RecordState) -> None:
        """The bucket has ended; the engine's copy is the caller's to clear."""
        self._known.pop(state.key, None)

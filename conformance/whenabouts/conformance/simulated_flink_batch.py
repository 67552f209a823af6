"""A task of a batch job of the simulated Flink, which has the state of one key at a time (decision 0030).

Elements come sorted by key. When the next key comes, the timers of the key before it fire, and its state is dropped.
Python gets elements and timers in the order in which the engine sent them, but in bundles: while it works on one, the
engine may be several keys ahead. State of any key but the engine's current one is not there: it reads as empty, and
what is written to it is lost.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from whenabouts.conformance.simulated_engine import Fate
from whenabouts.conformance.simulated_flink_buckets import Blob, Bucket, BucketState, Clock, Element
from whenabouts.core.hosting.element_host import ElementHost
from whenabouts.core.hosting.element_watermark import LAST_MS

NO_KEY = -1
"""The current key before the first element and after the last: no label."""


class Timer(NamedTuple):
    """A timer of a bucket that has fired."""

    label: int
    at: int


class BatchTask:
    """A task of a batch job. `given` is what its host has given."""

    watermark_ms = LAST_MS

    def __init__(self, host: ElementHost, fate: Fate, bundle_size: int, now_ms: int) -> None:
        self.host, self.fate, self.bundle_size, self.now_ms = host, fate, bundle_size, now_ms
        self.given: list[Blob] = []
        self._current = NO_KEY
        self._bucket = Bucket()
        self._bundle: deque[Element | Timer] = deque()
        self._sent: deque[tuple[int, Clock, int, bool]] = deque()

    def take(self, element: Element) -> None:
        """The engine sends an element to Python."""
        self._become(element.label)
        self._send(element)

    def end(self) -> None:
        """All elements have been sent."""
        while self._bundle or self._bucket.timers:
            self._end_bundle()
            self._become(NO_KEY)

    def storage(self, label: int) -> Bucket:
        """What the engine has stored for a bucket: nothing, unless it is that of the current key."""
        return self._bucket if label == self._current else Bucket()

    def send(self, label: int, clock: Clock, ms: int, there: bool) -> None:
        """Python has set or deleted a timer."""
        self._sent.append((label, clock, ms, there))

    def _become(self, label: int) -> None:
        """The engine goes on to another key: the timers of the one before are sent to Python, its state is dropped."""
        if label != self._current:
            due, self._bucket.timers = sorted(at for _, at in self._bucket.timers), frozenset()
            for at in due:
                self._send(Timer(self._current, at))
            self._current, self._bucket = label, Bucket()

    def _send(self, item: Element | Timer) -> None:
        self._bundle.append(item)
        if len(self._bundle) >= self.bundle_size:
            self._end_bundle()

    def _end_bundle(self) -> None:
        """Python works on what it was sent; then the engine takes the timers that it has set."""
        while self._bundle:
            item = self._bundle.popleft()
            self.fate.perhaps_fail("before an element or a timer")
            if isinstance(item, Element):
                self.given += self.host.element(item.packed, BucketState(self, item.label))
            else:
                self.given += self.host.timer(item.at, BucketState(self, item.label))
        while self._sent:
            label, clock, ms, there = self._sent.popleft()
            ahead = self._current
            self._become(label)
            timers = {(clock, ms)}
            self._bucket.timers = self._bucket.timers | timers if there else self._bucket.timers - timers
            self._become(ahead)

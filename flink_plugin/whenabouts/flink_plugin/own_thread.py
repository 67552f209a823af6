"""Runs the adapter's part of an operator in a thread that Python started.

In Flink's thread mode Python code is called in threads of the JVM. Functions of one task share its thread, each with a
Python thread state of its own. `PyGILState_Ensure` assumes one state per thread and never returns otherwise, so that
everything that calls it hangs: pyarrow when it creates or frees arrays, a numba kernel that receives arrays. A thread
that Python started has no such limit. Flink's state can only be used from the JVM's thread: a step's first reads are
fetched there, and its writes are applied there when the step is done (`core.hosting.segment_cache`).
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from whenabouts.core.hosting.element_host import Here, Runner
from whenabouts.core.hosting.segment_cache import CachedStore, Segment, SegmentCache
from whenabouts.core.runtime.protocol import SegmentStore

T = TypeVar("T")

_UNREAD = object()
"""The answer to a thread whose segment could not be read."""

SWITCH_SECONDS = 0.001
"""Python's switch interval: the longest that a thread waits for another one. All tasks of a JVM share one interpreter,
and each row is handed over a few times: Python's default of 5 ms would add up to the latency that an eager query
allows."""


def in_jvm() -> bool:
    """Whether this interpreter is embedded in a JVM.

    `threading` cannot tell: it treats the thread that imported it first as the main thread, and so any later thread to
    which the system gives the same number.
    """
    return "_pemja" in sys.modules  # the bridge's native part, loaded only in a JVM


def runner() -> Runner:
    """Runs work so that it cannot hang: in a thread of its own inside a JVM, else in the calling thread."""
    return OwnThread() if in_jvm() else Here()


class OwnThread:
    """One thread that does one piece of work at a time. A hand-over costs some tens of microseconds.

    >>> from whenabouts.core.state.memory_store import DictStore
    >>> store, thread = DictStore(), OwnThread()
    >>> def step(segments):
    ...     segments.put(0, 1, b"new")
    ...     return segments.get(0, 1)
    >>> thread.step(step, store, SegmentCache(), 7), store.get(0, 1), thread.run(threading.active_count) > 1
    (b'new', b'new', True)
    >>> thread.stop()
    """

    def __init__(self) -> None:
        sys.setswitchinterval(min(SWITCH_SECONDS, sys.getswitchinterval()))
        self._to: SimpleQueue[Any] = SimpleQueue()
        self._back: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        threading.Thread(target=self._serve, name="whenabouts", daemon=True).start()

    def run(self, work: Callable[[], T]) -> T:
        """Returns or raises what `work` does."""
        return self._answer(work, None)

    def step(self, work: Callable[[SegmentStore], T], store: SegmentStore, cache: SegmentCache, bucket: int) -> T:
        """Returns or raises what `work` does with a bucket's store; its writes are applied if it does not fail."""
        cached = CachedStore(self._fetch, cache, bucket)
        given = self._answer(lambda: work(cached), store)
        cached.apply(store)
        return given

    def stop(self) -> None:
        """End the thread."""
        self._to.put(None)

    def _answer(self, work: Callable[[], T], store: SegmentStore | None) -> T:
        self._to.put(work)
        unread: BaseException | None = None
        try:
            while True:
                what, value = self._back.get()
                if what == "fetch" and store is not None:
                    found: Any = _UNREAD
                    if unread is None:
                        try:
                            found = store.get(*value)
                        except BaseException as error:  # raised here once the thread has ended its work
                            unread = error
                    self._to.put(found)
                elif unread is not None:
                    raise unread
                elif what == "failed":
                    raise value
                else:
                    given: T = value
                    return given
        finally:
            unread = None  # it refers to this frame

    def _fetch(self, segment: Segment) -> bytes | None:
        self._back.put(("fetch", segment))
        data = self._to.get()
        if data is _UNREAD:
            raise _Unread
        found: bytes | None = data
        return found

    def _serve(self) -> None:
        while (work := self._to.get()) is not None:
            try:
                self._back.put(("done", work()))
            except BaseException as error:  # whatever it is, it belongs to the caller
                _free_frames(error)
                self._back.put(("failed", error))


class _Unread(BaseException):
    """Ends work that needs a segment that could not be read. The error itself stays in the caller's thread: the JVM's
    objects in its frames belong there."""


def _free_frames(error: BaseException | None) -> None:
    """Frees, in this thread, the locals of the functions that an error has ended: the caller's thread must not free
    Arrow."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__

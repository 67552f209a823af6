"""Runs our part of an operator in a thread that Python itself started.

In Flink's thread mode Python code is called in threads of the JVM. Functions that share a task share its thread, each
under a state of its own. `PyGILState_Ensure` knows one state of a thread, and never returns where another one works; so
whatever asks for it hangs: pyarrow where it makes arrays or lets go of them, a numba kernel that is given arrays. In a
thread of Python's own everything runs as everywhere. State belongs to the JVM's thread: what a step reads for the first
time is fetched there, and what it writes is applied there when it is done (`segment_cache`).
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

SWITCH_SECONDS = 0.001
"""How long Python may keep a thread waiting for another one, at most. All tasks of a JVM share one Python, and each row
is handed over a few times: at Python's own 5 ms these add up to what an eager query may take."""


def in_jvm() -> bool:
    """Whether this Python lives in a JVM.

    What `threading` says of the calling thread does not tell: the one that imported that module first is the main
    thread to it, and so is any later one that the system gives the same number.
    """
    return "_pemja" in sys.modules  # the part of the bridge that is there only behind it


def runner() -> Runner:
    """What runs work so that nothing hangs: a thread of its own in a JVM, else the one that asks."""
    return OwnThread() if in_jvm() else Here()


class OwnThread:
    """One thread, one piece of work at a time. A hand-over costs some tens of microseconds.

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
        """What `work` gives or raises."""
        return self._answer(work, None)

    def step(self, work: Callable[[SegmentStore], T], store: SegmentStore, cache: SegmentCache, bucket: int) -> T:
        """What `work` gives or raises for a bucket's store; its writes are applied if it does not fail."""
        cached = CachedStore(self._fetch, cache, bucket)
        given = self._answer(lambda: work(cached), store)
        cached.apply(store)
        return given

    def stop(self) -> None:
        """End the thread."""
        self._to.put(None)

    def _answer(self, work: Callable[[], T], store: SegmentStore | None) -> T:
        self._to.put(work)
        while True:
            what, value = self._back.get()
            if what == "fetch" and store is not None:
                self._to.put(store.get(*value))
            elif what == "failed":
                raise value
            else:
                given: T = value
                return given

    def _fetch(self, segment: Segment) -> bytes | None:
        self._back.put(("fetch", segment))
        data: bytes | None = self._to.get()
        return data

    def _serve(self) -> None:
        while (work := self._to.get()) is not None:
            try:
                self._back.put(("done", work()))
            except BaseException as error:  # whatever it is, it belongs to the caller
                _free_frames(error)
                self._back.put(("failed", error))


def _free_frames(error: BaseException | None) -> None:
    """Lets go, here, of what the functions held that an error has ended: the caller's thread must not free Arrow."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__

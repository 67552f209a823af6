"""Windows that a process has in memory, so that the next step of a bucket need not read them from its state.

A window is found under the stamp that its state bears: a digest of everything that the steps up to then have written,
each stamp going into the next. So equal stamps mean equal states, and a state that a host has restored, or a step that
it repeats, finds the window as it was then or none. A window is taken out to be used, and put back under the new stamp.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from functools import lru_cache
from typing import Protocol

from whenabouts.core.errors import Code, EngineError

MEBIBYTES = "WHENABOUTS_WINDOW_MEMORY"
"""The environment variable that says how many mebibytes all windows of a process may have (256 unless it does)."""


class InMemory(Protocol):
    """A window that can be kept."""

    @property
    def nbytes(self) -> int:
        """Bytes that it has in memory."""


class WindowMemory:
    """Windows by key, up to `most` bytes: the one that was put longest ago goes first. For many threads.

    >>> from types import SimpleNamespace
    >>> memory = WindowMemory(100)
    >>> for name in "abc":
    ...     memory.put(name, SimpleNamespace(name=name, nbytes=40))
    >>> [memory.take(name) and name for name in "abcc"], memory.nbytes
    ([None, 'b', 'c', None], 0)
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.nbytes = 0
        self._held: OrderedDict[str, tuple[InMemory, int]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, key: str) -> InMemory | None:
        """The window of a key, which is the caller's from now on."""
        with self._lock:
            found, size = self._held.pop(key, (None, 0))
            self.nbytes -= size
            return found

    def put(self, key: str, window: InMemory) -> None:
        """Keep a window, unless it is greater than all of them may be."""
        size = window.nbytes
        with self._lock:
            self.nbytes -= self._held.pop(key, (None, 0))[1]
            if size > self.most:
                return
            self._held[key] = window, size
            self.nbytes += size
            while self.nbytes > self.most:
                _, (_, freed) = self._held.popitem(last=False)
                self.nbytes -= freed

    def clear(self) -> None:
        """Forget all of them."""
        with self._lock:
            self._held.clear()
            self.nbytes = 0


@lru_cache
def windows() -> WindowMemory:
    """Those of this process. Raises EngineError WA-2151 where the environment says nonsense."""
    told = os.environ.get(MEBIBYTES, "256")
    if not told.isascii() or not told.isdigit():
        raise EngineError(Code.BAD_SETTING, f"{MEBIBYTES} is {told!r}", "give a number of mebibytes, 0 for none")
    return WindowMemory(int(told) << 20)

"""A process-wide cache of windows, so that the next step of a bucket need not read them from its state.

The key of a window is the stamp stored in the state: a digest of everything that the steps so far have written, each
stamp including the one before. So equal stamps mean equal states, and a restored state or a repeated step finds either
the window as it was at that point, or none. A step takes its window out, and puts it back under the new stamp.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import lru_cache
from typing import Protocol

from whenabouts.core.memory_limits import bytes_set

MEBIBYTES = "WHENABOUTS_WINDOW_MEMORY"
"""The environment variable with the size limit of the cache in mebibytes (default 256)."""


class Cacheable(Protocol):
    """A window that can be cached."""

    @property
    def nbytes(self) -> int:
        """Its size in memory in bytes."""


class WindowCache:
    """Windows by key, up to `most` bytes: the one that was put longest ago is dropped first. Thread-safe.

    >>> from types import SimpleNamespace
    >>> cache = WindowCache(100)
    >>> for name in "abc":
    ...     cache.put(name, SimpleNamespace(name=name, nbytes=40))
    >>> [cache.take(name) and name for name in "abcc"], cache.nbytes
    ([None, 'b', 'c', None], 0)
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.nbytes = 0
        self._held: OrderedDict[str, tuple[Cacheable, int]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, key: str) -> Cacheable | None:
        """Remove and return the window of a key."""
        with self._lock:
            found, size = self._held.pop(key, (None, 0))
            self.nbytes -= size
            return found

    def put(self, key: str, window: Cacheable) -> None:
        """Add a window, unless it is larger than the whole cache may be."""
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
        """Drop all windows."""
        with self._lock:
            self._held.clear()
            self.nbytes = 0


@lru_cache
def window_cache() -> WindowCache:
    """The cache of this process. Raises QueryError WA-2151 for an invalid environment variable."""
    given = bytes_set(MEBIBYTES, "0 for none")
    return WindowCache(256 << 20 if given is None else given)

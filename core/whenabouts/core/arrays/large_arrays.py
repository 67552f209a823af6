"""Memory of large arrays: in large pages, and used again.

A system hands out memory as pages of zeros. To make these costs about as much as to write a column once, and many times
more on a virtual machine whose host has to find the memory first. So the memory of an array is kept for a later one
when nothing refers to it any more, up to `WHENABOUTS_KEPT_MEMORY`. Linux may take the large pages back whenever it is
short of memory.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
import weakref
from itertools import cycle
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

from whenabouts.core.arrays.signals_held import signals_again
from whenabouts.core.memory_limits import bytes_set

MEBIBYTES = "WHENABOUTS_KEPT_MEMORY"
"""The environment variable with the most memory that a process keeps, in mebibytes; 0: none. Unset: 1,024."""

_MOST = 1 << 30
_MOST_BLOCKS = 256
"""All are looked at when one is wanted."""
_LEAST = 1 << 18
"""Smaller arrays are left to numpy."""
_LARGE_PAGE = 1 << 21
_SMALL = _LARGE_PAGE // 2
"""What is smaller is in small pages, which it takes too long to offer to the system one by one."""
_SHARE = 32
"""A part of this size of what may be kept is for small arrays."""

_LINE = 64
_shifts = cycle(range(0, 4096, 9 * _LINE))
"""Where arrays begin in their blocks, if there is room: a cache has few places for lines that are whole pages apart,
and a kernel goes through several arrays at once."""

_FIRST = np.arange(1 << 13, dtype=np.int32)
"""The first row numbers; the others are sums of these and a multiple of their count."""

_Block = NDArray[np.uint8]


def large_array(count: int, type_: DTypeLike) -> NDArray[Any]:
    """Memory for values of a type, as from `np.empty`, in whole large pages if it fills half of one.

    It is used again when the array, its views and the Arrow buffers of it are gone. To get a fresh small page costs
    more than to write it. numpy asks the system for large ones from 4 MB on; one of which a part is offered back is
    split into small ones for good.

    Raises QueryError WA-2151 for an invalid environment variable.
    """
    size = count * np.dtype(type_).itemsize
    if size < _LEAST:
        return np.empty(count, type_)
    set_ = bytes_set(MEBIBYTES, "0 for none")
    most = _MOST if set_ is None else set_
    whole, store, share = size, small, most // _SHARE
    if size >= _SMALL:
        whole, store, share = -(-size // _LARGE_PAGE) * _LARGE_PAGE, kept, most - share
    block = store.taken(whole)
    if block is None:
        try:
            block = _new(whole)
        except MemoryError:  # what is kept fills an address space that has a limit
            if not let_go():
                raise
            block = _new(whole)
    # Whatever refers to the memory refers to this buffer, and so does a view of a view.
    buffer = pa.py_buffer(block)
    weakref.finalize(buffer, store.give, block, share).atexit = False
    at = min(next(_shifts), whole - size) // _LINE * _LINE
    return np.frombuffer(buffer, np.uint8, size, at).view(type_)


def large_zeros(count: int, type_: DTypeLike) -> NDArray[Any]:
    """As from `np.zeros`, in the memory of `large_array`.

    >>> large_zeros(2, np.int32)
    array([0, 0], dtype=int32)
    """
    zeros = large_array(count, type_)
    zeros.fill(0)
    return zeros


def row_numbers(count: int) -> NDArray[np.int32]:
    """0 to `count` - 1, in the memory of `large_array`.

    >>> row_numbers(3)
    array([0, 1, 2], dtype=int32)
    """
    numbers = large_array(count, np.int32)
    numbers[: len(_FIRST)] = _FIRST[:count]
    for start in range(len(_FIRST), count, len(_FIRST)):
        part = numbers[start : start + len(_FIRST)]
        np.add(_FIRST[: len(part)], start, out=part)
    return numbers


def _new(size: int) -> _Block:
    if size < _LARGE_PAGE:
        return np.empty(size, np.uint8)
    memory = np.empty(size + _LARGE_PAGE, np.uint8)
    begin = -memory.ctypes.data % _LARGE_PAGE
    return memory[begin : begin + size]


class Kept:
    """Memory that no array uses, in the order in which it was given. `nbytes`: how much there is. Linux may take it
    back if it is `offered`.

    An array may die at any time and on any thread, also while this is in use. So whoever cannot have the lock at once
    goes without.
    """

    def __init__(self, *, offered: bool = True) -> None:
        self.nbytes, self._offered = 0, offered
        self._blocks: list[tuple[int, _Block]] = []
        self._lock = Lock()

    def taken(self, size: int) -> _Block | None:
        """The smallest that has room for `size` bytes, if it is no more than half as large again; of several the one
        that was given last, which a cache may still have."""
        if not self._blocks or not self._lock.acquire(blocking=False):
            return None
        try:
            most = size + size // 2
            fitting = [(has, -at) for at, (has, _) in enumerate(self._blocks) if size <= has <= most]
            return self._without(-min(fitting)[1]) if fitting else None
        finally:
            self._lock.release()

    def give(self, block: _Block, most: int) -> None:
        """Keep it, and let go of the oldest while there are more than `most` bytes."""
        size = len(block)
        if size > most:
            return
        if self._offered:
            with signals_again():  # it takes a while
                _offer(block)
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._blocks.append((size, block))
            self.nbytes += size
            while self.nbytes > most or len(self._blocks) > _MOST_BLOCKS:
                self._without(0)
        finally:
            self._lock.release()

    def clear(self) -> bool:
        """Let go of all; whether there was any."""
        if not self._blocks or not self._lock.acquire(blocking=False):
            return False
        try:
            self._blocks.clear()
            self.nbytes = 0
        finally:
            self._lock.release()
        return True

    def _without(self, at: int) -> _Block:
        size, block = self._blocks.pop(at)
        self.nbytes -= size
        return block


kept, small = Kept(), Kept(offered=False)
"""Those of this process."""


def let_go() -> bool:
    """Give all that is kept back to the system; whether there was any."""
    return kept.clear() | small.clear()


_IS_LINUX = sys.platform == "linux"
_C = ctypes.CDLL(None) if _IS_LINUX else None


def _offer(block: _Block) -> None:
    """Tell Linux that it may take the pages when it is short of memory; until then they need not be made again."""
    if _C is not None:
        first = -(-block.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE
        size = (block.ctypes.data + len(block) - first) // mmap.PAGESIZE * mmap.PAGESIZE
        # It may refuse, for example in a process whose memory is locked; the pages then stay.
        _C.madvise(ctypes.c_void_p(first), ctypes.c_size_t(size), mmap.MADV_FREE)

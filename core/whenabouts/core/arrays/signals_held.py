"""Ctrl-C where the exception that it raises would be lost: it counts a little later."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any

_Handler = Callable[[int, FrameType | None], Any]

_AFTER_SECONDS = 0.01
"""By then a destructor has ended."""


def signals_held() -> AbstractContextManager[None]:
    """Call Python's handlers of SIGINT and SIGTERM after the block, for signals that arrive in it: such as one in which
    code is compiled. Destructors of LLVM's objects would swallow what they raise, or numba's lock would stay taken."""
    return _kept(lambda number, frame, handler: handler(number, frame))


def signals_again() -> AbstractContextManager[None]:
    """Let SIGINT and SIGTERM that arrive in the block of a destructor come again when that has ended: Python swallows
    what is raised in it."""

    def again(number: int, *_: object) -> None:
        main = threading.main_thread().ident  # which may wait in a call of the system's
        threading.Timer(_AFTER_SECONDS, signal.pthread_kill, [main, number]).start()

    return _kept(again)


@contextmanager
def _kept(after: Callable[[int, FrameType | None, _Handler], Any]) -> Iterator[None]:
    """Call `after` with each signal that arrives, and the handler that it would have had. In other threads than the
    main one, where none is handled, nothing happens."""
    came: list[tuple[int, FrameType | None]] = []
    before: dict[int, _Handler] = {}

    def keep(number: int, frame: FrameType | None) -> None:
        came.append((number, frame))

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            handler = signal.getsignal(number)
            if callable(handler):  # not the system's
                before[number] = handler
                signal.signal(number, keep)
    try:
        yield
    finally:
        for held, handler in before.items():
            signal.signal(held, handler)
        for arrived, frame in came:
            after(arrived, frame, before[arrived])

"""Ctrl-C where the exception that it raises would be lost: it counts a little later."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
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
    """Call `after` with each signal that arrives, and the handler that it would have had, also if an earlier one
    raises. In other threads than the main one, where none is handled, nothing happens."""
    came: list[tuple[int, FrameType | None]] = []
    before: dict[int, _Handler] = {}
    is_over = False

    def keep(number: int, frame: FrameType | None) -> None:
        if is_over:  # while the handlers are put back
            before[number](number, frame)
        else:
            came.append((number, frame))

    if threading.get_ident() == threading.main_thread().ident:
        for number in (signal.SIGINT, signal.SIGTERM):
            handler = signal.getsignal(number)
            if callable(handler):  # not the system's
                before[number] = handler
                signal.signal(number, keep)
    try:
        yield
    finally:
        is_over = True
        with ExitStack() as last:  # calls the latest first, and all of them
            for arrived, frame in reversed(came):
                last.callback(after, arrived, frame, before[arrived])
            for held, handler in before.items():
                last.callback(_put_back, held, handler, keep)


def _put_back(number: int, handler: _Handler, instead_of: _Handler) -> None:
    """Python handles a signal that has just come before it takes the handler, and leaves off if that raises."""
    try:
        signal.signal(number, handler)
    finally:
        if signal.getsignal(number) is instead_of:
            _put_back(number, handler, instead_of)

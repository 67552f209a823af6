"""How a command ends when something goes wrong: coded errors, exit codes, and signals that clean up first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import IO, Any

import click

from whenabouts.cli.say import say
from whenabouts.cli.spelled_hints import spelled
from whenabouts.core.errors import Code, EngineError, WhenaboutsError
from whenabouts.core.hosting.engine_output import TRACEBACK

REJECTED_AND_STRICT = 1
INTERRUPTED = 130
SIGNALS = {"SIGTERM": "terminated", "SIGHUP": "hung up"}
"""Signals that end a command as Ctrl-C does, with the message that it prints. The exit code is 128 + the signal's
number."""

_EXIT_CODES = {"1": 3, "2": 2, "3": 4}
"""Exit code by the first digit of an error's number: `WA-1xxx` bad input, `WA-2xxx` usage, `WA-3xxx` engine."""


class CodedFailure(click.ClickException):
    """A coded error as the user sees it: one line on stderr, and the exit code of its kind."""

    def __init__(self, error: WhenaboutsError) -> None:
        super().__init__(spelled(" ".join(str(error).split())))
        self._kind = error.code.value[3]

    @property
    def exit_code(self) -> int:  # type: ignore[override]  # click has one exit code for each class, we for each kind
        """Exit code of the error's kind."""
        return _EXIT_CODES[self._kind]

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the line."""
        say(f"error: {self.message}", file=file, err=file is None)


class Stopped(BaseException):
    """A signal that ends the command. Like KeyboardInterrupt, it is not caught as a failure."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


_interrupted = threading.Event()
"""Whether Ctrl-C has arrived. Its exception can get lost: Python drops it in finalizers, some libraries in imports."""


def _interrupt(number: int, frame: FrameType | None) -> None:
    _interrupted.set()
    signal.default_int_handler(number, frame)


@contextmanager
def stoppable() -> Iterator[None]:
    """Raise `Stopped` when one of `SIGNALS` arrives, so that unfinished work is cleaned up, and KeyboardInterrupt for
    Ctrl-C, even if the first one got lost.

    Further signals do not interrupt the clean-up. Signals that are ignored (nohup), or that the caller handles, are
    left alone.
    """
    mine: list[int] = []
    stopped = False

    def stop(number: int, _: FrameType | None) -> None:
        nonlocal stopped
        stopped = True
        for each in mine:
            signal.signal(each, signal.SIG_IGN)
        raise Stopped(number)

    if threading.current_thread() is threading.main_thread():  # other threads cannot handle signals
        known = [int(getattr(signal, name)) for name in SIGNALS if hasattr(signal, name)]
        mine += [number for number in known if signal.getsignal(number) is signal.SIG_DFL]
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _interrupt)
    for number in mine:
        signal.signal(number, stop)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is _interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        _interrupted.clear()
        for number in mine if not stopped else ():
            signal.signal(number, signal.SIG_DFL)


def guarded(work: Callable[[], Any], *, doing: str) -> Any:
    """Call `work`, and turn whatever it raises without a code of ours into EngineError WA-3005. Raises
    KeyboardInterrupt if Ctrl-C came in a `stoppable` block and had no effect.

    >>> guarded(lambda: {}["x"], doing="looking up")
    Traceback (most recent call last):
        ...
    whenabouts.core.errors.EngineError: WA-3005: looking up failed: KeyError: 'x' (hint: set WHENABOUTS_TRACEBACK=1 to \
see where)
    """
    try:
        done = work()
    except (WhenaboutsError, click.ClickException, click.Abort, click.exceptions.Exit):
        raise
    except Exception as error:
        text = str(error).strip().partition("\n")[0][:500]
        raise EngineError(
            Code.ENGINE_FAILED,
            f"{doing} failed: {type(error).__name__}: {text}".rstrip(": "),
            f"set {TRACEBACK}=1 to see where",
        ) from error
    if _interrupted.is_set():
        _interrupted.clear()
        raise KeyboardInterrupt
    return done

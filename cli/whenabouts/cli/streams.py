"""Stdout and stderr as a command needs them: losing a note ends no run, and a reader that has gone ends it quietly."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from whenabouts.core.errors import Code, EngineError

STDOUT_CLOSED = 141
"""Exit code when nobody reads stdout any more: 128 + SIGPIPE, as of programs that the signal ends."""


class StdoutClosed(BaseException):
    """Nobody reads stdout any more, as after `| head`. Like KeyboardInterrupt, it is not caught as a failure."""


@contextmanager
def forgiving_streams() -> Iterator[None]:
    """Replace `sys.stdout` and `sys.stderr`: whatever writes to stderr, libraries too, never fails.

    Stdout raises `StdoutClosed` if its reader has gone or it was closed from the start, and EngineError WA-3005 for
    other failures, such as a full disk.
    """
    before = sys.stdout, sys.stderr
    for name, kind in (("stdout", _Stdout), ("stderr", _Stderr)):
        stream = getattr(sys, name)
        setattr(sys, name, kind(_entire(stream)) if stream is not None else kind(_nowhere(), closed=True))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream in filter(None, before):
            _settle(stream)


class _Stream:
    """A stream whose failures `_failed` handles."""

    def __init__(self, stream: Any, *, closed: bool = False) -> None:
        self._stream, self._closed = stream, closed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def buffer(self) -> Any:
        """The stream of bytes below, with failures alike."""
        return type(self)(self._stream.buffer, closed=self._closed)

    def write(self, data: Any) -> int:
        """Write text, or bytes to a stream of them."""
        try:
            if self._closed:
                raise BrokenPipeError
            return int(self._stream.write(data))
        except OSError as error:
            self._failed(error)
        return len(data)

    def flush(self) -> None:
        """Write what is buffered."""
        try:
            self._stream.flush()
        except OSError as error:
            self._failed(error)

    def _failed(self, error: OSError) -> None:
        raise NotImplementedError


class _Stdout(_Stream):
    def _failed(self, error: OSError) -> NoReturn:
        if isinstance(error, BrokenPipeError):
            raise StdoutClosed from None
        raise EngineError(Code.ENGINE_FAILED, f"stdout could not be written: {error}", "is the disk full?") from error


class _Stderr(_Stream):
    def _failed(self, error: OSError) -> None:
        pass


class _EntireWrites(io.RawIOBase):
    """A raw stream that writes all it is given, or raises OSError."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return bool(self._raw.isatty())

    def fileno(self) -> int:
        return int(self._raw.fileno())

    def write(self, data: Any) -> int:
        with memoryview(data).cast("B") as whole:
            done = 0
            while done < len(whole):
                written = self._raw.write(whole[done:])
                if written is None:
                    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
                done += written
        return done


def _entire(stream: Any) -> Any:
    """The stream, or if it is unbuffered (PYTHONUNBUFFERED) one over `_EntireWrites`: Python's own, of text too, drops
    the rest of a short write."""
    raw = getattr(stream, "buffer", None)
    if not isinstance(raw, io.RawIOBase):
        return stream
    return io.TextIOWrapper(
        _EntireWrites(raw), stream.encoding, stream.errors, line_buffering=stream.line_buffering, write_through=True
    )


def _nowhere() -> Any:
    return open(os.devnull, "w", encoding="utf-8")  # in place of a stream of the process


def _settle(stream: Any) -> None:
    """Flush a stream, and drop what it cannot write, since Python would try again at its end and exit with 120."""
    try:
        stream.flush()
    except OSError:
        with suppress(OSError), open(os.devnull, "wb") as nowhere:  # not every stream is a file of the system
            os.dup2(nowhere.fileno(), stream.fileno())

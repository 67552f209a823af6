"""Progress of long work on stderr: its stages, and how far a stream has come."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from time import monotonic
from typing import TYPE_CHECKING, Any

from whenabouts.cli.say import say

if TYPE_CHECKING:
    from whenabouts.core.hosting.stream_progress import StreamProgress

_SECONDS_BETWEEN_LINES = 2.0
_SECONDS_OF_RATE = 0.5


class ProgressDisplay:
    """Shows the current stage, and of a stream how far it has come. This class shows nothing."""

    def stage(self, name: str, rows: int | None = None) -> None:
        """A new stage begins, of `rows` rows if that is known."""

    def advanced(self, progress: StreamProgress) -> None:
        """The stream of this stage has come further. Engines call this from any thread."""


class _Rate:
    """Rows per second, over half a second or more: engines report many small steps close together."""

    def __init__(self) -> None:
        self._rows, self._at, self._rate = 0, monotonic(), 0.0

    def read(self, rows: int) -> float:
        passed = monotonic() - self._at
        if passed >= _SECONDS_OF_RATE or not self._rate:
            self._rate = (rows - self._rows) / max(passed, 1e-9)
            self._rows, self._at = rows, self._at + passed
        return self._rate


class _Bar(ProgressDisplay):
    """A bar on a terminal, and a line below it for a stream."""

    def __init__(self, bar: Any) -> None:
        self._bar = bar
        self._task = bar.add_task("starting", total=None, stream="")
        self._rate = _Rate()

    def stage(self, name: str, rows: int | None = None) -> None:
        self._rate = _Rate()
        self._bar.remove_task(self._task)  # a total that is known does not become unknown
        self._task = self._bar.add_task(name, total=rows, stream="")

    def advanced(self, progress: StreamProgress) -> None:
        text = f"{self._rate.read(progress.rows_in):,.0f} rows/s, {progress}"
        self._bar.update(self._task, completed=progress.rows_in, stream=text)


class _Lines(ProgressDisplay):
    """Lines in a log, not too many."""

    def __init__(self) -> None:
        self._name, self._last, self._rate = "", monotonic(), _Rate()

    def stage(self, name: str, rows: int | None = None) -> None:
        self._name, self._rate = name, _Rate()
        say(name if rows is None else f"{name}, {rows:,} rows", err=True)

    def advanced(self, progress: StreamProgress) -> None:
        if monotonic() - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = monotonic()
            say(f"{self._name}: {self._rate.read(progress.rows_in):,.0f} rows/s, {progress}", err=True)


@contextmanager
def progress(wanted: bool) -> Iterator[ProgressDisplay]:
    """A bar if stderr is a terminal, else lines if `wanted`, else nothing."""
    if not sys.stderr.isatty():
        with _compiling_noted() if wanted else nullcontext():
            yield _Lines() if wanted else ProgressDisplay()
        return
    from rich import progress as bars
    from rich.console import Console

    columns = (
        bars.SpinnerColumn(),
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeElapsedColumn(),
        bars.TextColumn("{task.fields[stream]}"),
    )
    with bars.Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar, _compiling_noted():
        yield _Bar(bar)


class _Note(logging.Handler):
    """Says once that kernels are compiled, which the first query on a machine waits for."""

    said = False

    def emit(self, record: logging.LogRecord) -> None:
        if not self.said:
            self.said = True
            say("note: compiling kernels, once on this machine: up to half a minute", err=True)


@contextmanager
def _compiling_noted() -> Iterator[None]:
    log, note = logging.getLogger("whenabouts.kernels"), _Note()
    before = log.level
    log.setLevel(logging.INFO)
    log.addHandler(note)
    try:
        yield
    finally:
        log.removeHandler(note)
        log.setLevel(before)

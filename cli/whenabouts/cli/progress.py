"""Progress of long work on stderr: stages of a batch, rows of a stream."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from whenabouts.cli.say import say

_SECONDS_BETWEEN_LINES = 5.0


class ProgressDisplay:
    """Shows the current stage and how many of its rows are done. This class shows nothing."""

    def stage(self, name: str, rows: int | None = None) -> None:
        """A new stage begins, of `rows` rows if that is known."""

    def rows_done(self, rows: int) -> None:
        """The number of rows of this stage that are done."""


class _Bar(ProgressDisplay):
    """A bar on a terminal."""

    def __init__(self, bar: Any) -> None:
        self._bar = bar
        self._task = bar.add_task("starting", total=None)

    def stage(self, name: str, rows: int | None = None) -> None:
        self._bar.reset(self._task, description=name, total=rows)

    def rows_done(self, rows: int) -> None:
        self._bar.update(self._task, completed=rows)


class _Lines(ProgressDisplay):
    """Lines in a log, not too many."""

    def __init__(self) -> None:
        self._name, self._rows, self._last = "", "", monotonic()

    def stage(self, name: str, rows: int | None = None) -> None:
        self._name, self._rows = name, "" if rows is None else f"{rows:,} rows"
        say(f"{name}, {self._rows}" if self._rows else name, err=True)

    def rows_done(self, rows: int) -> None:
        if monotonic() - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = monotonic()
            say(f"{self._name}: {rows:,} of {self._rows}", err=True)


@contextmanager
def progress(wanted: bool) -> Iterator[ProgressDisplay]:
    """A bar if stderr is a terminal, else lines if `wanted`, else nothing."""
    if not sys.stderr.isatty():
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
    )
    with bars.Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        yield _Bar(bar)

"""Progress of long work, on stderr: stages of a batch, rows of a stream."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Progress:
    """Tells the stage that is running and how many rows are done; a silent one does nothing."""

    def __init__(self, bar: Any = None) -> None:
        self._bar = bar
        self._task = None if bar is None else bar.add_task("starting", total=None)

    def stage(self, name: str, rows: int | None = None) -> None:
        """A new stage begins, of `rows` rows where that is known."""
        if self._bar is not None:
            self._bar.reset(self._task, description=name, total=rows)

    def rows_done(self, rows: int) -> None:
        """So many rows of this stage are done."""
        if self._bar is not None:
            self._bar.update(self._task, completed=rows)


@contextmanager
def progress(wanted: bool) -> Iterator[Progress]:
    """A progress display where it is wanted or stderr is a terminal."""
    if not wanted and not sys.stderr.isatty():
        yield Progress()
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
    console = Console(file=sys.stderr)
    with bars.Progress(*columns, console=console, transient=console.is_terminal) as bar:
        yield Progress(bar)

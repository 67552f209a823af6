"""Learned clocks in files: JSON with a version, so that a later release knows what it reads."""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path

from whenabouts.core.clocks.learned_clock import LearnedClock
from whenabouts.core.errors import Code, InputError


def write_clock(clock: LearnedClock, path: str | PathLike[str]) -> None:
    """Write a clock, found or not. Raises OSError where the file cannot be written."""
    Path(path).write_text(json.dumps(clock.to_dict(), indent=1, allow_nan=False) + "\n", encoding="utf-8")


def read_clock(path: str | PathLike[str]) -> LearnedClock:
    """The clock of a file.

    Raises InputError WA-1008 for a file that cannot be read as JSON, WA-1012 for one that holds no clock, or one of
    another version.
    """
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            Code.UNREADABLE_FILE,
            f"a clock cannot be read from {path}: {error}",
            "give a file that learn-delay or learn-clock wrote",
        ) from error
    try:
        return LearnedClock.from_dict(values)
    except InputError as error:
        raise InputError(error.code, f"{path}: {error.problem}", error.hint) from error

"""Whose line a warning is about."""

from __future__ import annotations

import sys


def users_level() -> int:
    """The `stacklevel` with which the caller's warning names the line outside of this package that led to it."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "whenabouts":
        frame, level = frame.f_back, level + 1
    return level

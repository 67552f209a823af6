"""Which extents a query asks for: its window, and when that is evaluated; the checks of these options."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from whenabouts.core.callers import users_level
from whenabouts.core.coalescing.window_ranges import Window
from whenabouts.core.durations import Duration, format_duration, parse_duration, whole_of
from whenabouts.core.errors import Code, LossyQueryWarning, QueryError
from whenabouts.core.runtime.option_checks import one_of, refused
from whenabouts.core.times.limits import FARTHEST_US

Instant = int | str | datetime

CLOSED = ("both", "right")
MOST_TUPLES = 2**62
"""So that sums of positions fit into 64 bits."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Extents:
    """A window, evaluated at multiples of `slide_us` since 1970, at every `slide_rows`-th tuple, at `at_us`, or at the
    end of the input.

    Without a window the whole history is one extent, whose runs are emitted one by one.
    """

    window: Window
    slide_us: int | None = None
    slide_rows: int | None = None
    at_us: int | None = None

    @property
    def is_history(self) -> bool:
        """Whether there is no window: runs are emitted one by one, as they become final."""
        return self.window.width_us is None and self.window.rows is None

    @property
    def described(self) -> str:
        """Window, slide or instant as text, each after a comma; empty without a window."""
        window = self.window
        width = None if window.width_us is None else format_duration(window.width_us)
        slide = self.slide_rows if self.slide_us is None else format_duration(self.slide_us)
        rows = None if window.rows is None else f"{window.rows} rows"
        parts = {"window": width if width is not None else rows, "slide": slide, "at": self.at_us}
        return "".join(f", {name} {part}" for name, part in parts.items() if part is not None)

    @property
    def slides(self) -> bool:
        """Whether there are many extents, which `window_end` identifies."""
        return self.slide_us is not None or self.slide_rows is not None


def extents_of(
    window: Duration | None,
    rows: int | None,
    per_group: bool,
    slide: Duration | None,
    at: Instant | None,
    closed: str,
) -> Extents:
    """The extents that the options ask for.

    `slide` of a window of rows is a number of tuples if it is an int, otherwise a duration. Raises QueryError WA-2021
    for a window or slide of zero or less, WA-2006 for options that exclude each other. Warns (`LossyQueryWarning`) of
    a slide longer than the window: no extent contains the tuples in between.
    """
    one_of("closed", closed, CLOSED)
    if window is not None and rows is not None:
        raise QueryError(
            Code.BAD_OPTION, "window and rows are both given", "a window is a duration or a number of rows"
        )
    if per_group and rows is None:
        raise QueryError(Code.BAD_OPTION, "per_group is given without rows", "only rows can be counted per group")
    if slide is not None and at is not None:
        raise QueryError(Code.BAD_OPTION, "slide and at are both given", "ask for one extent or for many")
    if slide is not None and window is None and rows is None:
        raise QueryError(Code.BAD_OPTION, "slide is given without a window", "give window= or rows=")
    width_us = None if window is None else _positive(parse_duration(window, name="window"), "window", window)
    if rows is not None:
        rows = _tuples("rows", rows)
    slide_rows = None if rows is None or whole_of(slide) is None else _tuples("slide", slide)
    slide_us = None
    if slide is not None and slide_rows is None:
        slide_us = _positive(parse_duration(slide, name="slide"), "slide", slide)
    for step, size in ((slide_us, width_us), (slide_rows, rows)):
        if step is not None and size is not None and step > size:
            warnings.warn(
                f"{Code.SLIDE_OVER_WINDOW}: the slide {slide!r} is longer than the window: "
                "no extent contains the tuples in between",
                LossyQueryWarning,
                stacklevel=users_level(),
            )
    return Extents(
        Window(width_us, rows, per_group, closed), slide_us, slide_rows, None if at is None else instant_us(at)
    )


def instant_us(at: Instant) -> int:
    """Microseconds since the epoch, from an int (unchanged), ISO 8601 text or a datetime (naive ones are in UTC).

    Raises QueryError WA-2006 for anything else, and for what is no time that a row may have.

    >>> instant_us("1970-01-01T00:00:01Z"), instant_us(5)
    (1000000, 5)
    """
    found = whole_of(at)
    if found is None:
        try:
            given: Any = datetime.fromisoformat(at) if isinstance(at, str) else at
            zoned = given.replace(tzinfo=UTC) if given.tzinfo is None else given
            found = int((zoned - _EPOCH) // timedelta(microseconds=1))  # NaT has no integer
        except (ValueError, AttributeError, TypeError):
            found = None
    if found is not None and abs(found) <= FARTHEST_US:
        return found
    raise QueryError(
        Code.BAD_OPTION,
        f"at is {at!r}",
        "give ISO 8601 text, a datetime, or microseconds since 1970, within 18,000 years of it",
    )


def _tuples(name: str, given: object) -> int:
    count = whole_of(given)
    if count is None or not 1 <= count <= MOST_TUPLES:
        raise refused(name, given, f"give a number of tuples, from 1 to {MOST_TUPLES:,}", Code.BAD_WINDOW)
    return count


def _positive(value: int, name: str, given: object) -> int:
    if value <= 0:
        raise QueryError(Code.BAD_WINDOW, f"{name} is {given!r}", "give more than zero")
    return value

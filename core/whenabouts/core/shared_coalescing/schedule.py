"""When a time-based window is looked at, and which rows can still count: for extents that many queries share."""

from __future__ import annotations

from whenabouts.core.coalescing.extent_evaluator import first_slide
from whenabouts.core.coalescing.window_log import FIRST, Progress
from whenabouts.core.coalescing.window_spec import Extents
from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK


def is_shareable(extents: Extents) -> bool:
    """Whether the rows that a query needs are told by time alone, so that it can look into an extent of others."""
    return extents.window.width_us is not None


def is_due(extents: Extents, was: Progress, now: Progress) -> bool:
    """Whether an extent becomes final between two clocks."""
    ending = now.until == END_OF_TIME
    if extents.at_us is not None:
        return was.until <= extents.at_us < now.until
    if extents.slide_us is None:
        return ending
    return ending or first_slide(was.until, extents.slide_us) < first_slide(now.until, extents.slide_us)


def slides_between(extents: Extents, was: Progress, now: Progress) -> tuple[int, int]:
    """The first and the last number of a slide whose extent becomes final between two clocks."""
    assert extents.slide_us is not None
    first, last = first_slide(was.until, extents.slide_us), first_slide(now.until, extents.slide_us) - 1
    return first, first_slide(now.latest, extents.slide_us) if now.until == END_OF_TIME else last


def floor_of(extents: Extents, clock: Progress) -> int:
    """Before this no row counts any more: it lies in no extent that comes out at the clock or later.

    >>> from whenabouts.core.coalescing.window_spec import extents_of
    >>> floor_of(extents_of(10, None, False, 5, None, "both"), Progress(until=23, latest=30))
    15
    """
    if clock.until == NO_WATERMARK:
        return FIRST
    if extents.at_us is not None and extents.at_us < clock.until:
        return clock.latest + 1
    if extents.at_us is not None:
        at = extents.at_us
    elif extents.slide_us is not None:
        at = first_slide(clock.until, extents.slide_us) * extents.slide_us
    else:
        at = clock.latest
    return max(at - extents.window.reach_us, FIRST)


def next_due(extents: Extents, clock: Progress, first_row_us: int | None) -> int | None:
    """The least watermark at which an extent can be final, where rows are held from `first_row_us` on."""
    if extents.at_us is not None:
        return extents.at_us + 1 if clock.until <= extents.at_us else None
    if extents.slide_us is None or first_row_us is None:
        return None
    return first_slide(max(clock.until, first_row_us), extents.slide_us) * extents.slide_us + 1

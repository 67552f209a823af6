"""When extents become final, and which tuples later extents can still contain."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.coalescing.window_spec import Extents
from whenabouts.core.runtime.output_memory import require_room
from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK

FIRST = NO_WATERMARK + 1
"""Before all times."""


class Progress(NamedTuple):
    """How far event time has advanced.

    `until`: all tuples before it are settled; `latest`: the greatest time seen; `counted`: tuples settled so far.
    """

    until: int = NO_WATERMARK
    latest: int = NO_WATERMARK
    counted: int = 0


def first_slide(us: int, slide_us: int) -> int:
    """The number k of the first slide at or after a time: the least k with `k * slide_us >= us`."""
    return -(-us // slide_us)


def is_due(extents: Extents, was: Progress, now: Progress) -> bool:
    """Whether an extent becomes final between two states of progress."""
    ending = now.until == END_OF_TIME
    if extents.at_us is not None:
        return was.until <= extents.at_us and (extents.is_history or extents.at_us < now.until)
    if extents.slide_us is not None:
        return ending or first_slide(was.until, extents.slide_us) < first_slide(now.until, extents.slide_us)
    return ending or extents.is_history or extents.slide_rows is not None


def slides_between(extents: Extents, was: Progress, now: Progress) -> tuple[int, int]:
    """The numbers of the first and the last slide whose extents become final between two states of progress."""
    assert extents.slide_us is not None
    first, last = first_slide(was.until, extents.slide_us), first_slide(now.until, extents.slide_us) - 1
    return first, first_slide(now.latest, extents.slide_us) if now.until == END_OF_TIME else last


def instants_between(extents: Extents, first_us: int, was: Progress, now: Progress) -> IntArray:
    """The instants at which extents of row-count windows become final, starting no earlier than the first tuple."""
    assert extents.slide_us is not None
    first, last = slides_between(extents, was, now)
    first = max(first, first_slide(first_us, extents.slide_us))
    require_room(last + 1 - first, 2 * 8, "instants at which a window slides")
    return np.arange(first, max(first, last + 1)) * extents.slide_us


def floor_of(extents: Extents, progress: Progress) -> int:
    """The least time of a tuple that a later extent can contain.

    >>> from whenabouts.core.coalescing.window_spec import extents_of
    >>> floor_of(extents_of(10, None, False, 5, None, "both"), Progress(until=23, latest=30))
    15
    """
    if extents.window.width_us is None or progress.until == NO_WATERMARK:
        return FIRST
    if extents.at_us is not None and extents.at_us < progress.until:
        return progress.latest + 1
    if extents.at_us is not None:
        at = extents.at_us
    elif extents.slide_us is not None:
        at = first_slide(progress.until, extents.slide_us) * extents.slide_us
    else:
        at = progress.latest
    return max(at - extents.window.reach_us, FIRST)


def next_due(extents: Extents, progress: Progress, first_us: int | None) -> int | None:
    """The least watermark at which an extent in time can be final; None if there is none, or no tuple.

    `first_us`: no tuple lies before it; None without tuples.
    """
    if extents.slide_us is not None:
        if first_us is None:
            return None
        return first_slide(max(progress.until, first_us), extents.slide_us) * extents.slide_us + 1
    if extents.at_us is not None and not extents.is_history:
        return extents.at_us + 1 if progress.until <= extents.at_us else None
    return None

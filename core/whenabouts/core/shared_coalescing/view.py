"""What one query reads in the shared extent: how far back, when, and which of its extents are final.

A window that is a period of time begins at a time that follows from the progress of the stream. One that counts the
rows of the whole stream begins at a tuple. The extent is in time order, so all that matters begins at the time of the
first of the last `rows` tuples. Which one that is depends on the grouping (rows without a group and duplicates do not
count); so each query finds it out for itself, whenever the extent has doubled: O(1) amortised per row.
"""

from __future__ import annotations

import numpy as np

from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.coalescing.schedule import (
    FIRST,
    Progress,
    floor_of,
    instants_between,
    is_due,
    next_due,
    slides_between,
)
from whenabouts.core.coalescing.tuples import TemporalTuples
from whenabouts.core.coalescing.window_ranges import Ranges, ranges_at, ranges_of_row_slides, ranges_of_slides
from whenabouts.core.coalescing.window_spec import Extents
from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK
from whenabouts.core.shared_coalescing.catalog import Catalog, Entry
from whenabouts.core.shared_coalescing.extent import SharedExtent

LEAST_ROWS = 256
"""The extent may hold this many rows more than twice those that matter."""


class SharedView:
    """One query's view of the shared extent. `columns`: those of the stream; they decide which duplicate is taken."""

    def __init__(self, extents: Extents, group: tuple[str, ...], columns: list[str]) -> None:
        self._extents, self._group, self._columns = extents, group, columns
        self._rows = extents.window.rows

    def floor(self, entry: Entry, progress: Progress) -> int:
        """No row before this matters: none that an extent holds, and none that the watermark has not passed, since
        which of the latter lose against others is decided when it does."""
        floor = floor_of(self._extents, progress)
        if self._rows is not None:
            floor = progress.latest + 1 if self._is_over(progress) else entry.floor_us
        return min(floor, max(progress.until, FIRST))

    def is_covered(self, entry: Entry, catalog: Catalog, shared: SharedExtent, was: Progress) -> bool:
        """Whether the shared extent has every row that still matters."""
        if not catalog.shared or self._rows is None or self._is_over(was):
            return catalog.shared and catalog.covered_us <= self.floor(entry, was)
        if catalog.covered_us <= FIRST:
            return True
        if was.until <= catalog.covered_us or shared.rows_held < self._rows:
            return False
        return len(self._tuples(shared, catalog.covered_us, self._settled_until(was))) >= self._rows

    def settled(self, entry: Entry, shared: SharedExtent, was: Progress) -> int:
        """How many of the tuples that matter have been settled."""
        return 0 if was.until == NO_WATERMARK else len(self._tuples(shared, self.floor(entry, was), was.until))

    def trim(self, entry: Entry, shared: SharedExtent, now: Progress) -> None:
        """Find out where a window that counts rows begins now."""
        if self._rows is not None and now.until != NO_WATERMARK:
            self._move_floor(entry, self._tuples(shared, entry.floor_us, self._settled_until(now)))

    def timer(self, shared: SharedExtent, now: Progress) -> int | None:
        """The least watermark at which an extent can be final."""
        if self._extents.slide_rows is None:
            return next_due(self._extents, now, shared.first_row_us)
        waiting = shared.first_waiting_us(now.until)
        return None if waiting is None else waiting + 1

    def final(
        self, entry: Entry, shared: SharedExtent, was: Progress, now: Progress
    ) -> tuple[TemporalTuples, Ranges] | None:
        """The extents that become final between two states of progress, and the tuples in them; None if none does."""
        if self._rows is None:
            return self._final_in_time(shared, was, now) if is_due(self._extents, was, now) else None
        if now.until <= was.until:
            return None
        before, every = entry.counted, self._extents.slide_rows
        if every is not None:
            entry.counted += len(self._tuples(shared, was.until, now.until))
            if before // every == entry.counted // every:
                return None
        elif not is_due(self._extents, was, now):
            return None
        tuples = self._tuples(shared, entry.floor_us, now.until)
        ranges = self._ranges_of_rows(tuples, before, entry.counted, was, now)
        if self._extents.slides:
            self._move_floor(entry, tuples)
        return tuples, ranges

    def _final_in_time(self, shared: SharedExtent, was: Progress, now: Progress) -> tuple[TemporalTuples, Ranges]:
        extents = self._extents
        tuples = self._tuples(shared, floor_of(extents, was), now.until)
        if extents.slide_us is not None:
            slides = slides_between(extents, was, now)
            return tuples, ranges_of_slides(tuples, extents.window, extents.slide_us, *slides)
        return tuples, ranges_at(tuples, extents.window, self._instant(now), self._group)

    def _ranges_of_rows(
        self, tuples: TemporalTuples, counted_before: int, counted: int, was: Progress, now: Progress
    ) -> Ranges:
        """The final extents; there is no gap between `tuples`, and they include all that these extents hold."""
        extents = self._extents
        if extents.slide_rows is not None:
            before = counted - len(tuples)
            return ranges_of_row_slides(
                tuples, extents.window, extents.slide_rows, self._group, before=before, after=counted_before
            )
        instants = self._instant(now)
        if extents.slide_us is not None:
            instants = instants_between(extents, int(tuples.times.min(initial=END_OF_TIME)), was, now)
        return ranges_at(tuples, extents.window, instants, self._group)

    def _instant(self, now: Progress) -> IntArray:
        """The only instant of a query that does not slide: the given one, or the end of the input."""
        return np.array([now.latest if self._extents.at_us is None else self._extents.at_us])

    def _move_floor(self, entry: Entry, tuples: TemporalTuples) -> None:
        assert self._rows is not None
        before = len(tuples) - self._rows
        if before >= 0:
            entry.floor_us = int(np.partition(tuples.times, before)[before])

    def _is_over(self, progress: Progress) -> bool:
        """Whether the only extent has been evaluated, so that no row matters any more."""
        return self._extents.at_us is not None and self._extents.at_us < progress.until

    def _settled_until(self, progress: Progress) -> int:
        """The time before which settled tuples count: none does that is later than the only instant."""
        return progress.until if self._extents.at_us is None else min(progress.until, self._extents.at_us + 1)

    def _tuples(self, shared: SharedExtent, from_us: int, until_us: int) -> TemporalTuples:
        return shared.tuples(self._group, from_us, until_us, self._columns)

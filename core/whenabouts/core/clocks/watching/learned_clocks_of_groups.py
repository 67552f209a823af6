"""The learned clock of each group that is watched: one for all, or that of its key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.typing import FloatArray, IntArray
from whenabouts.core.clocks.calibration import distribution_function, quantiles
from whenabouts.core.clocks.watching.fit_alarm import FitAlarm
from whenabouts.core.clocks.watching.query import WatchClock
from whenabouts.core.runtime.keys import NULL_KEY, Keys
from whenabouts.core.times.learned import Learned


class Expected(NamedTuple):
    """Readings on the scale of the reference, median delay taken off, and the places of their delays within what was
    learned."""

    readings: IntArray
    places: FloatArray


@dataclass(frozen=True)
class Fit:
    """A learned clock, and the test of whether it still fits."""

    clock: Learned
    test: FitAlarm

    def expected(self, readings: IntArray, references: IntArray) -> Expected:
        """What the clock says of readings. O(rows)."""
        ((_, template),) = self.clock.templates
        corrected = self.clock.corrected(readings)
        phi = references - corrected
        below, above = (distribution_function(template, phi + more) for more in (0, 1))
        median = int(np.floor(quantiles(template, [0.5])[0]))
        return Expected(corrected + median, 1 - (below + above) / 2)  # a late reading has a low phi


class ClocksOfGroups:
    """The clocks of a query for the groups of a schema.

    Raises QueryError WA-2008 for clocks whose keys cannot be compared with the groups.
    """

    def __init__(self, query: WatchClock, groups: pa.Schema) -> None:
        clock = query.clock
        self._all = Fit(clock, FitAlarm(query.error or 0.0, query.every)) if isinstance(clock, Learned) else None
        self._each: tuple[Fit, ...] = ()
        if isinstance(clock, tuple):
            self._each = tuple(Fit(each.clock, FitAlarm(each.error, query.every)) for each in clock)
            columns = zip(*(each.key for each in clock), strict=True)
            self._known = pa.table(dict(zip(groups.names, map(list, columns), strict=True)))
            self._keys = Keys(groups.names, [self._known.schema, groups], ("clocks", "rows"))

    def of(self, groups: pa.Table | None, number: int) -> list[Fit | None]:
        """The clock of each of so many groups; none for those whose key has none."""
        if groups is None or not self._each:
            return [self._all] * number
        known, asked = self._keys.codes([self._known, groups])
        fits = dict(zip(known.tolist(), self._each, strict=True))
        return [None if code == NULL_KEY else fits.get(code) for code in asked.tolist()]

"""Integer times in another unit than microseconds: noticed by the years in which they would lie.

Seconds, milliseconds and dates written as numbers (20240101), read as microseconds, all lie within seven weeks of 1970;
nanoseconds lie far beyond the calendar. A stream of such instants is possible and rare, so nobody is refused: what most
rows look like is reported once, with the mend.
"""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from whenabouts.core.errors import Code, DoubtfulTimesWarning

FIRST_S, LAST_S = 631_152_000, 4_133_980_799
"""The years 1990 to 2100."""

DATES = "dates such as 20240131"
RANGES = {
    DATES: (19_900_101, 21_001_231),
    "seconds": (FIRST_S, LAST_S),
    "milliseconds": (FIRST_S * 1_000, LAST_S * 1_000),
    "nanoseconds": (FIRST_S * 10**9, LAST_S * 10**9),
}
"""What integers may be, by the range in which such times lie. No two ranges meet, nor those of 1990 to 2100 in us."""

MENDS = {
    DATES: "read them as dates first",
    "seconds": "multiply them by 1,000,000",
    "milliseconds": "multiply them by 1,000",
    "nanoseconds": "divide them by 1,000",
}

_PLAIN = RANGES["milliseconds"][1] + 1, RANGES["nanoseconds"][0] - 1
"""Between these ends nothing is doubtful."""

_LOG = logging.getLogger("whenabouts")


class UnitCounts:
    """How many integer times of a column there were, and what they may be instead of microseconds.

    >>> counts = UnitCounts()
    >>> counts.take(pa.array([1_700_000_000, 1_700_000_060, -1, None]))
    2
    >>> counts.likely()
    'seconds'
    """

    def __init__(self) -> None:
        self.values, self.example, self._by_unit = 0, 0, Counter[str]()

    def take(self, column: pa.Array) -> int:
        """Count a column's values; gives back how many look like another unit. O(rows), mostly two comparisons."""
        ticks = np.asarray((column.drop_null() if column.null_count else column).to_numpy(), np.int64)
        self.values += len(ticks)
        if not len(ticks) or (ticks.min() >= _PLAIN[0] and ticks.max() <= _PLAIN[1]):
            return 0
        found = {unit: (ticks >= low) & (ticks <= high) for unit, (low, high) in RANGES.items()}
        numbers = Counter({unit: int(np.count_nonzero(mask)) for unit, mask in found.items()})
        self._by_unit += numbers
        unit, most = numbers.most_common(1)[0]
        if most:
            self.example = int(ticks[np.argmax(found[unit])])
        return numbers.total()

    def likely(self) -> str | None:
        """What more than half of the values look like; None where they may well be microseconds."""
        for unit, number in self._by_unit.items():
            if 2 * number > self.values:
                return unit
        return None

    def told(self, column: str, input: str) -> str | None:
        """What to say of the column; None where there is nothing to say."""
        unit = self.likely()
        if unit is None:
            return None
        return (
            f"{Code.DOUBTFUL_UNIT}: time column {column!r} of the {input} input holds integers such as {self.example}, "
            f"and integers are read as microseconds since 1970; {self._by_unit[unit]:,} of {self.values:,} look like "
            f"{unit}: {MENDS[unit]}, or make the column a timestamp"
        )


class DoubtfulTimes:
    """Watches the integer time columns of one input. `rows`: how many rows looked like another unit so far."""

    def __init__(self, name: str, schema: pa.Schema, columns: tuple[str, ...]) -> None:
        self.rows = 0
        self._name = name
        self._counts = {c: UnitCounts() for c in dict.fromkeys(columns) if pa.types.is_int64(schema.field(c).type)}
        self._told = set[str]()

    def take(self, rows: pa.RecordBatch) -> None:
        """Look at a batch."""
        self.rows += max((counts.take(rows.column(column)) for column, counts in self._counts.items()), default=0)

    def news(self, least: int = 1) -> dict[tuple[str, str], str]:
        """What is to be said, once, of columns with at least so many values so far, by input and column."""
        found = {}
        for column, counts in self._counts.items():
            told = counts.told(column, self._name) if counts.values >= least and column not in self._told else None
            if told is not None:
                self._told.add(column)
                found[self._name, column] = told
        return found

    def warn(self, least: int = 1) -> None:
        """Say it (`DoubtfulTimesWarning`)."""
        warn_of(self.news(least))

    def tell(self, least: int = 1) -> None:
        """Say it in a worker, of which no warning may make an end."""
        tell_of(self.news(least))


ENOUGH = 100
"""Values of a column after which a stream, whose end nobody sees, is judged by those that came."""


def tell_of(news: Mapping[tuple[str, str], str]) -> None:
    """Give the warnings where they must not end anything, though warnings may be errors here: then they are logged."""
    try:
        warn_of(news)
    except DoubtfulTimesWarning as error:
        _LOG.warning("%s", error)


def warn_of(news: Mapping[tuple[str, str], str]) -> None:
    """Give the warnings."""
    for told in news.values():
        warnings.warn(told, DoubtfulTimesWarning, stacklevel=3)

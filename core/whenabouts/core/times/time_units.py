"""Detects integer times in another unit than microseconds, by the years that they would mean.

Seconds, milliseconds and dates written as numbers (20240101), read as microseconds, all lie within seven weeks of 1970;
nanoseconds lie far beyond the year 9999. Such instants are possible but rare, so they are not refused: a warning names
the unit, or the units, that most rows look like, once, and how to fix it.
"""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.extremes import extremes
from whenabouts.core.callers import users_level
from whenabouts.core.errors import Code, DoubtfulTimesWarning

FIRST_S, LAST_S = 631_152_000, 4_133_980_799
"""The years 1990 to 2100, in seconds since 1970."""

DATES = "dates such as 20240131"
RANGES = {
    DATES: (19_900_101, 21_001_231),
    "seconds": (FIRST_S, LAST_S),
    "milliseconds": (FIRST_S * 1_000, LAST_S * 1_000),
    "nanoseconds": (FIRST_S * 10**9, LAST_S * 10**9),
}
"""The range of each unit's integers for 1990 to 2100. The ranges are disjoint, also from the range in microseconds."""

FIXES = {
    DATES: "read them as dates first",
    "seconds": "multiply them by 1,000,000",
    "milliseconds": "multiply them by 1,000",
    "nanoseconds": "divide them by 1,000",
}

_LOG = logging.getLogger("whenabouts")


def _like(least: int, greatest: int) -> dict[str, tuple[int, int]]:
    """The units whose range meets that of some times."""
    return {unit: (low, high) for unit, (low, high) in RANGES.items() if least <= high and greatest >= low}


class UnitCounts:
    """Counts a column's integer times, and those that look like another unit than microseconds.

    >>> counts = UnitCounts()
    >>> counts.count(pa.array([1_700_000_000, 1_700_000_060, -1, None]))
    2
    >>> counts.likely()
    {'seconds': 2}
    """

    def __init__(self) -> None:
        self.values, self.example, self._by_unit = 0, 0, Counter[str]()

    def count(self, column: pa.Array, known: tuple[int, int] | None = None) -> int:
        """Count a column's values and return how many look like another unit. O(rows), usually two comparisons each.

        `known`: the least and the greatest value; not for a column with nulls.
        """
        self.values += len(column) - column.null_count
        if known is not None and not _like(*known):
            return 0
        ticks = np.asarray((column.drop_null() if column.null_count else column).to_numpy(), np.int64)
        found = {unit: (ticks >= low) & (ticks <= high) for unit, (low, high) in _like(*extremes(ticks)).items()}
        if not found:
            return 0
        numbers = Counter({unit: int(np.count_nonzero(mask)) for unit, mask in found.items()})
        self._by_unit += numbers
        unit, most = numbers.most_common(1)[0]
        if most:
            self.example = int(ticks[np.argmax(found[unit])])
        return numbers.total()

    def likely(self) -> dict[str, int]:
        """The units that more than half of the values look like together, with their numbers, the most frequent first;
        empty if the values may well be microseconds."""
        return dict(self._by_unit.most_common()) if 2 * self._by_unit.total() > self.values else {}

    def message(self, column: str, input: str) -> str | None:
        """A warning about the column, None if it needs none."""
        likely = self.likely()
        if not likely:
            return None
        first, *others = likely
        fix = "write them in one unit (`whenabouts.profile` shows rows of each)" if others else FIXES[first]
        return (
            f"{Code.DOUBTFUL_UNIT}: time column {column!r} of the {input} input holds integers such as {self.example}, "
            f"and integers are read as microseconds since 1970; {likely[first]:,} of {self.values:,} look like "
            f"{listed(likely)}: {fix}, or make the column a timestamp"
        )


def listed(likely: Mapping[str, int]) -> str:
    """Units in words, all but the first with their numbers.

    >>> listed({"seconds": 20, "milliseconds": 10})
    'seconds, 10 like milliseconds'
    """
    first, *others = likely
    return ", ".join([first, *(f"{likely[unit]:,} like {unit}" for unit in others)])


class DoubtfulTimes:
    """Watches the integer time columns of one input. `rows`: how many rows have looked like another unit so far."""

    def __init__(self, name: str, schema: pa.Schema, columns: tuple[str, ...]) -> None:
        self.rows = 0
        self._name = name
        self._counts = {c: UnitCounts() for c in dict.fromkeys(columns) if pa.types.is_int64(schema.field(c).type)}
        self._reported = set[str]()

    def observe(self, rows: pa.RecordBatch, known: Mapping[str, tuple[int, int]]) -> None:
        """Count the times of a batch. `known`: the least and the greatest of columns without nulls."""
        found = (counts.count(rows.column(name), known.get(name)) for name, counts in self._counts.items())
        self.rows += max(found, default=0)

    def new_messages(self, least: int = 1) -> dict[tuple[str, str], str]:
        """Warnings not reported before, about columns with at least `least` values so far, by input and column."""
        found = {}
        for column, counts in self._counts.items():
            if counts.values < least or column in self._reported:
                continue
            message = counts.message(column, self._name)
            if message is not None:
                self._reported.add(column)
                found[self._name, column] = message
        return found

    def warn(self, least: int = 1) -> None:
        """Issue the new warnings (`DoubtfulTimesWarning`)."""
        warn_about(self.new_messages(least))

    def report(self, least: int = 1) -> None:
        """Report the new warnings in a worker, which a warning must not end."""
        report_messages(self.new_messages(least))


ENOUGH_VALUES = 100
"""A stream's column is judged after this many values, since a stream may never end."""


def report_messages(messages: Mapping[tuple[str, str], str]) -> None:
    """Issue warnings where nothing may fail: they are logged if the process turns warnings into errors."""
    try:
        warn_about(messages)
    except DoubtfulTimesWarning as error:
        _LOG.warning("%s", error)


def warn_about(messages: Mapping[tuple[str, str], str]) -> None:
    """Issue the warnings."""
    for message in messages.values():
        warnings.warn(message, DoubtfulTimesWarning, stacklevel=users_level())

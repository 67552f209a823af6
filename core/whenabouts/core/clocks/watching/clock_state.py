"""What is known of the clock of each group between steps: its last readings, and the capitals of the test of its fit.

The state of a bucket is one record batch with a row for each group (`state.segment_codec`): the group's columns, how
many rows it has had, the row of its last step, the capitals, and its last `KEPT` readings and references.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.typing import FloatArray, IntArray
from whenabouts.core.clocks.profile.steps import level_steps
from whenabouts.core.clocks.watching.fit_alarm import Capital, FitAlarm

KEPT = 256
"""Rows in which a step is looked for."""

EVERY = 64
"""A step is looked for whenever a group has had so many rows more."""

STEP = "step"

OWN = ("rows", "stepped", "quiet", "late", "early", "scatter", "readings", "references")


def state_fields(groups: Sequence[pa.Field]) -> pa.Schema:
    """The columns of the state of a bucket."""
    numbers = [pa.field(f"_wa_{name}", pa.int64()) for name in OWN[:6]]
    lists = [pa.field(f"_wa_{name}", pa.list_(pa.int64())) for name in OWN[6:]]
    return pa.schema([*groups, *numbers, *lists])


@dataclass(frozen=True)
class Alarm:
    """What is said of a clock. `at_us`: the reference of the row that showed it; `row`: its number in the group, from
    1; `by_us`: how far readings stepped, or are off what was learned (above zero: they are ahead)."""

    at_us: int
    row: int
    kind: str
    by_us: int


@dataclass
class ClockState:
    """The clock of one group."""

    rows: int = 0
    stepped: int = -KEPT
    capital: Capital = field(default_factory=Capital)
    readings: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    references: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))

    def numbers(self) -> list[int]:
        """What the state has of it besides its last rows, in the order of its columns."""
        return [self.rows, self.stepped, self.capital.quiet, *self.capital.logs]

    def watch(
        self, readings: IntArray, references: IntArray, places: FloatArray | None, fit: FitAlarm | None
    ) -> Iterator[Alarm]:
        """The alarms of rows in the order of their references, on top of those before.

        `places`: of the readings within what was learned. How the rows are cut into calls does not matter. O(rows).
        """
        readings = np.concatenate([self.readings, readings])
        references = np.concatenate([self.references, references])
        first = self.rows - len(self.readings)  # the number of the first of these rows
        until = first + len(readings)
        found = list(self._steps(readings, references, first, until))
        if places is not None and fit is not None:
            self.capital, misfits = fit.alarms(self.capital, places)
            for at, kind in misfits:
                end = self.rows - first + at + 1
                last = slice(max(0, end - EVERY), end)
                by = int(np.floor(np.median(readings[last] - references[last])))
                found.append(Alarm(int(references[end - 1]), first + end, kind, by))
        self.rows = until
        self.readings, self.references = readings[-KEPT:], references[-KEPT:]
        yield from sorted(found, key=lambda each: (each.row, each.kind))

    def _steps(self, readings: IntArray, references: IntArray, first: int, until: int) -> Iterator[Alarm]:
        for end in range((self.rows // EVERY + 1) * EVERY, until + 1, EVERY):
            part = slice(max(0, end - KEPT - first), end - first)
            for step in level_steps(readings[part], references[part]):
                row = first + part.start + step.at
                if row >= self.stepped + EVERY:
                    self.stepped = row
                    yield Alarm(int(references[end - first - 1]), row + 1, STEP, step.by_us)

"""Does a learned clock still fit? A sequential test of where delays of a stream lie within the learned distribution.

While the clock fits, the place of a delay (the probability integral transform) is uniform in [0, 1]. Three bets are
laid against that, each with a capital that a fair game does not let grow: that places lie high, that they lie low, that
too many lie at either end. Bets restart when their capital is lost (an e-CUSUM: Shin, Ramdas and Rinaldo 2023,
"E-detectors"; Lorden 1971), so that a change is found however long the clock has fitted. If each place, given all
before it, has a mean within `error` of one half and lies at either end with at most the stated probability, the mean
number of rows to a false alarm is at least `every`.

Capitals are logarithms in units of 2^-32, whole numbers: their sums do not depend on how rows are cut into blocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from whenabouts.core.arrays.typing import BoolArray, FloatArray, IntArray

HIGH, LOW, ENDS = "late", "early", "scatter"
"""What no longer fits: readings are later than learned, or earlier, or both ends have too many."""
BETS = (HIGH, LOW, ENDS)

_UNIT = float(1 << 32)
_END = 0.01
"""A place within this of 0 or 1 lies at an end."""

QUIET_ROWS = 1_000
"""After an alarm so many rows of the group pass before the next one."""


class Capital(NamedTuple):
    """The logarithms of the capitals of `BETS`, and how many rows are still to pass without an alarm."""

    logs: tuple[int, ...] = (0, 0, 0)
    quiet: int = 0


@dataclass(frozen=True)
class FitAlarm:
    """The test. `error`: the bound of the learned distribution's error; `every`: rows to a false alarm, on average."""

    error: float
    every: int

    @property
    def threshold(self) -> int:
        """The logarithm of a capital at which there is an alarm."""
        return round(math.log(len(BETS) * self.every) * _UNIT)

    def gains(self, places: FloatArray) -> list[IntArray]:
        """By how much each place changes the logarithm of each bet's capital."""
        ends = 2 * _END + 2 * self.error
        bet = 0.25 / ends
        at_end = (places < _END) | (places > 1 - _END)
        # The stake 1 keeps each factor above zero: at least 1/2 - error.
        factors = [1 + (places - 0.5 - self.error), 1 + (0.5 - self.error - places), 1 + bet * (at_end - ends)]
        return [np.rint(np.log(factor) * _UNIT).astype(np.int64) for factor in factors]

    def alarms(self, capital: Capital, places: FloatArray) -> tuple[Capital, list[tuple[int, str]]]:
        """The alarms (the row's number, and what no longer fits) of places in order, and the capital after them.

        O(places), and again for those after each alarm.

        >>> test = FitAlarm(0.02, 1_000_000)
        >>> random = np.random.default_rng(0)
        >>> capital, found = test.alarms(Capital(), random.random(100_000))
        >>> found
        []
        >>> test.alarms(capital, 0.5 + random.random(300) / 2)[1]
        [(77, 'late')]
        """
        found: list[tuple[int, str]] = []
        gains = self.gains(places)
        at = min(capital.quiet, len(places))
        logs, quiet = capital.logs, capital.quiet - at
        while at < len(places):
            sums = [_cusum(log, gain[at:]) for log, gain in zip(logs, gains, strict=True)]
            over = [
                int(np.argmax(each >= self.threshold)) if (each >= self.threshold).any() else len(each) for each in sums
            ]
            first = min(over)
            if first == len(places) - at:
                return Capital(tuple(int(each[-1]) for each in sums), 0), found
            found.append((at + first, BETS[over.index(first)]))
            logs = Capital().logs
            passed = min(QUIET_ROWS, len(places) - at - first - 1)
            quiet = QUIET_ROWS - passed
            at += first + 1 + passed
        return Capital(logs, quiet), found


def _first(chosen: BoolArray) -> int:
    """The position of the first that is true, their number if none is."""
    return int(np.argmax(chosen)) if chosen.any() else len(chosen)


def _cusum(start: int, gains: IntArray) -> IntArray:
    """s[i] = max(0, s[i - 1]) + gains[i], from s[-1] = start."""
    sums = np.cumsum(gains)
    before = np.concatenate(([-max(start, 0)], sums[:-1]))
    return np.asarray(sums - np.minimum.accumulate(before), np.int64)

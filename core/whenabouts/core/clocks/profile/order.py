"""The order of rows by arrival: how far they lag behind, and the lateness that a stream of them needs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.durations import format_duration

QUANTILES = (0.5, 0.9, 0.99, 0.999, 1.0)
_CONFIDENCE = 0.99


@dataclass(frozen=True, slots=True)
class Order:
    """How rows lag behind the latest time that arrived before them.

    `behind`: the share of rows that lag. `inversions`: the share of rows before their predecessor. `lags_us`: the lags
    at the quantiles .5, .9, .99, .999 and 1 of all rows. `sorted`: none lags.
    """

    rows: int
    behind: float
    inversions: float
    lags_us: tuple[int, ...]
    lags: IntArray  # ascending, of the rows that lag

    @classmethod
    def of(cls, us: IntArray) -> Order:
        """The order of times as they arrived. O(n log n) of those that lag."""
        if not len(us):
            return cls(0, 0.0, 0.0, (0,) * len(QUANTILES), us)
        lags = np.maximum.accumulate(us) - us
        late = np.sort(lags[lags > 0])
        inversions = float(np.count_nonzero(us[1:] < us[:-1])) / len(us)
        found = cls(len(us), len(late) / len(us), inversions, (), late)
        quantiles = tuple(found.at(math.ceil(q * len(us))) for q in QUANTILES)
        return cls(len(us), found.behind, inversions, quantiles, late)

    def at(self, rank: int) -> int:
        """The lag of a rank from 1 among all rows, ascending; 0 for those that do not lag."""
        place = rank - (self.rows - len(self.lags)) - 1
        return int(self.lags[min(place, len(self.lags) - 1)]) if place >= 0 and len(self.lags) else 0

    @property
    def sorted(self) -> bool:
        """Whether no row lags."""
        return not len(self.lags)

    def lateness_us(self, share: float, granule_us: int) -> int:
        """The lateness at which at least `share` of rows are in time, with 99 % confidence, rounded up to two digits.

        It is an upper confidence bound of the quantile, an order statistic by the binomial distribution; where the rows
        are too few for one, the greatest lag. One granule is added for times that were cut.
        """
        rank = _upper_rank(self.rows, share)
        lag = self.at(rank)
        return 0 if not lag else _up_to_two_digits(lag + granule_us)

    def rejected(self, lateness_us: int) -> float:
        """The share of these rows that lag more."""
        return float(len(self.lags) - np.searchsorted(self.lags, lateness_us, side="right")) / max(1, self.rows)

    def to_dict(self) -> dict[str, Any]:
        """The order as JSON-safe values."""
        lags = {f"{q:g}": lag for q, lag in zip(QUANTILES, self.lags_us, strict=True)}
        return {"behind": self.behind, "inversions": self.inversions, "lags_us": lags, "sorted": self.sorted}

    def sentence(self, *, arrived: bool = False) -> str:
        """The order in words; `arrived`: times of arrival were given."""
        if self.sorted and arrived:
            return "The rows arrived in the order of their times."
        if self.sorted:
            return "The rows are sorted by time: on arrival, or later; which of the two, they do not show."
        shown = next(((q, lag) for q, lag in zip(QUANTILES, self.lags_us, strict=True) if lag and 0.99 <= q < 1), None)
        usual = f"{100 * shown[0]:g} % of all lag at most {format_duration(shown[1])}, " if shown else ""
        return (
            f"{100 * self.behind:.3g} % of the rows are behind an earlier one: "
            f"{usual}the last one lags {format_duration(self.lags_us[-1])}."
        )


def _upper_rank(rows: int, share: float) -> int:
    """The least rank r with P(Binomial(rows, share) < r) >= 99 %, at most `rows`."""
    if share >= 1 or rows < 2:
        return rows
    low, high = math.floor(rows * share), rows
    while low < high:
        middle = (low + high) // 2
        if _below(middle, rows, share) >= _CONFIDENCE:
            high = middle
        else:
            low = middle + 1
    return max(1, low)


def _below(rank: int, rows: int, share: float) -> float:
    """P(Binomial(rows, share) < rank), from the rows that are not in time, which are few."""
    least = rows - rank + 1  # at least so many are late
    rate = rows * (1 - share)
    term = rows * math.log(share)
    total = 0.0
    for late in range(least):
        total += math.exp(term)
        term += math.log((rows - late) / (late + 1)) + math.log1p(-share) - math.log(share)
        if late > rate + 20 * math.sqrt(rate) + 50:
            break
    return 1 - min(1.0, total)


def _up_to_two_digits(us: int) -> int:
    """A duration rounded up to two digits.

    >>> _up_to_two_digits(219_001), _up_to_two_digits(7)
    (220000, 7)
    """
    digit = int(10 ** max(0, len(str(us)) - 2))
    return -(-us // digit) * digit

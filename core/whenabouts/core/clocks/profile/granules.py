"""The granularities of a column, as a mixture: which share of rows was cut to milliseconds, to seconds, to minutes.

One minute in five is a multiple of five minutes by chance, so counting multiples does not answer that. Instead rows
fall into classes by the members of a ladder that they are multiples of. Rows of granularity h, taken uniformly from its
multiples, fall into each class with a known probability; the shares of the mixture are fitted to the counts of the
classes by expectation maximisation (Dempster, Laird and Rubin 1977).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from whenabouts.core.arrays.typing import BoolArray, FloatArray, IntArray

MS, SECOND, MINUTE, HOUR, DAY = 1_000, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000
LADDER: tuple[int, ...] = tuple(
    sorted(
        [
            *(1, 10, 100, MS, 10 * MS, 100 * MS, 500 * MS),
            *(n * SECOND for n in (1, 5, 10, 15, 30)),
            *(n * MINUTE for n in (1, 5, 10, 15, 30)),
            *(HOUR, 6 * HOUR, 12 * HOUR, DAY),
            *(SECOND // 2**n for n in range(2, 7)),  # ticks of binary clocks that are whole microseconds
            864 * MS,  # day numbers with five decimals
        ]
    )
)
"""The granularities that are distinguished, in microseconds."""

_GAIN = 6.0
"""A further granularity must raise the log likelihood by this much, and by half the logarithm of the rows."""

_LEAST_ROWS = 1.5
_DUST_US = 2
"""Times this near to a coarse lattice, but not on it, were converted from floats."""


class Share(NamedTuple):
    """A granularity in microseconds and the share of rows that have it."""

    granule_us: int
    share: float


class Lattice:
    """The classes of a ladder of granularities: which sets of members a time can be a multiple of.

    >>> lattice = Lattice((1, 2, 3))
    >>> lattice.multiples  # a time is a multiple of all members of its class, hence of their least common multiple
    (1, 2, 3, 6)
    >>> lattice.probabilities[:, 1].tolist()  # of classes, for a multiple of 2: a third of them are multiples of 6
    [0.0, 0.6666666666666667, 0.0, 0.3333333333333333]
    """

    def __init__(self, ladder: Sequence[int]) -> None:
        self.ladder = tuple(ladder)
        found = {1}
        for member in self.ladder:
            found |= {math.lcm(each, member) for each in found}
        self.multiples = tuple(sorted(found))
        self._divisor = [
            max((each for each in range(at) if member % self.ladder[each] == 0), default=-1)
            for at, member in enumerate(self.ladder)
        ]
        self.bits = np.array([self._members(multiple) for multiple in self.multiples], np.int64)
        if len(np.unique(self.bits)) < len(self.bits):
            raise AssertionError(ladder)  # 1 is a member of every ladder
        self.probabilities = self._probabilities()

    def _members(self, multiple: int) -> int:
        return sum(1 << at for at, member in enumerate(self.ladder) if multiple % member == 0)

    def _probabilities(self) -> FloatArray:
        """P(class | granule), classes by granules: the density of the multiples of lcm(class, granule) among those of
        the granule, less that of all finer classes (inclusion and exclusion from the greatest multiple downward)."""
        multiples = self.multiples
        table = np.zeros((len(multiples), len(self.ladder)))
        finer = [
            [j for j in range(i + 1, len(multiples)) if multiples[j] % multiples[i] == 0] for i in range(len(multiples))
        ]
        for column, granule in enumerate(self.ladder):
            for i in range(len(multiples) - 1, -1, -1):
                if multiples[i] % granule == 0:
                    table[i, column] = granule / multiples[i] - math.fsum(table[finer[i], column])
        return np.maximum(table, 0.0)

    def classes(self, us: IntArray) -> IntArray:
        """The class of each time, as a position in `multiples`. O(rows) per member that finer members leave open."""
        found = np.zeros(len(us), np.int64)
        rows: list[IntArray | None] = []  # by member, the rows that are multiples of it; None: all of them
        for at, member in enumerate(self.ladder):
            within = rows[self._divisor[at]] if self._divisor[at] >= 0 else None
            values = us if within is None else us[within]
            on = values % member == 0
            if on.all():
                rows.append(within)
                found[slice(None) if within is None else within] |= 1 << at
                continue
            chosen = np.flatnonzero(on) if within is None else within[on]
            rows.append(chosen)
            found[chosen] |= 1 << at
        order = np.argsort(self.bits)
        return order[np.searchsorted(self.bits, found, sorter=order)]

    def mixture(self, counts: IntArray) -> list[Share]:
        """The granularities of rows, given how many are in each class, coarsest first.

        Granularities are added while the log likelihood rises by more than 6 + ln(n)/2, and dropped again if it falls
        by less without them. Empty without rows. O(classes x granularities) per round.
        """
        rows = int(counts.sum())
        if not rows:
            return []
        there = np.flatnonzero(counts)
        n, p = counts[there].astype(float), self.probabilities[there]
        gain = _GAIN + math.log(rows) / 2
        alone = [float(n @ np.log(p[:, h])) if p[:, h].all() else -math.inf for h in range(len(self.ladder))]
        chosen = [int(np.argmax(alone))]
        weights, best = np.ones(1), alone[chosen[0]]
        while True:
            slope = n @ (p / (p[:, chosen] @ weights)[:, None]) - rows  # bounds what a granularity can gain
            tried = []
            for h in sorted(np.flatnonzero(slope > gain).tolist(), key=lambda h: -slope[h])[:4]:
                if h not in chosen:
                    tried.append((*_fit(n, p[:, [*chosen, h]]), h))
            # One time can be a multiple of anything by chance, as 0 is.
            tried = [each for each in tried if each[1][-1] * rows >= _LEAST_ROWS]
            likelihood, new, added = max(tried, key=lambda found: found[0], default=(-math.inf, weights, -1))
            if likelihood <= best + gain:
                break
            chosen, weights, best = [*chosen, added], new, likelihood
        for h in list(chosen):
            rest = [each for each in chosen if each != h]
            if rest and (p[:, rest].max(axis=1) > 0).all():
                likelihood, new = _fit(n, p[:, rest])
                if likelihood > best - gain:
                    chosen, weights, best = rest, new, likelihood
        found = [Share(self.ladder[h], float(w)) for h, w in zip(chosen, weights, strict=True)]
        return sorted(found, reverse=True)


@lru_cache(maxsize=1)
def the_lattice() -> Lattice:
    """The classes of `LADDER`, made once."""
    return Lattice(LADDER)


def dust(us: IntArray, shares: Sequence[Share]) -> BoolArray | None:
    """Rows near a lattice of a millisecond or more but not on it, if they are more than chance puts there.

    Times that were floats once are off by a microsecond or two. None if there are no such rows.
    """
    coarse = [share.granule_us for share in shares if share.granule_us >= MS and share.share > 0.05]
    if not coarse or coarse[-1] == min(share.granule_us for share in shares):
        return None
    residue = us % coarse[-1]
    near = (residue > 0) & ((residue <= _DUST_US) | (residue >= coarse[-1] - _DUST_US))
    off = np.count_nonzero(residue)
    expected = off * 2 * _DUST_US / coarse[-1]
    return near if np.count_nonzero(near) > expected + 6 * math.sqrt(expected) + 3 else None


def _fit(n: FloatArray, p: FloatArray) -> tuple[float, FloatArray]:
    """The greatest log likelihood and the weights where it is, by expectation maximisation."""
    total, weights, before = n.sum(), np.full(p.shape[1], 1 / p.shape[1]), -math.inf
    for _ in range(2_000):
        mixed = p @ weights
        likelihood = float(n @ np.log(mixed))
        if likelihood - before < 1e-6:
            break
        before = likelihood
        weights = weights * (n @ (p / mixed[:, None])) / total
    return likelihood, weights

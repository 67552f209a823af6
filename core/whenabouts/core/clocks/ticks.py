"""The tick of a column of times, and the dither that hides it.

Times that were cut to a tick lie on a lattice. Differences of two such columns lie on one, too, and a fit to fine cells
would take its points for a line without jitter. A uniform random part of a tick for each time removes the lattice and
adds nothing that the times did not leave open.
"""

from __future__ import annotations

import numpy as np

from whenabouts.core.arrays.typing import FloatArray, IntArray
from whenabouts.core.clocks.profile.granules import LADDER

_MOST = 0.8
"""The share of rows that must lie on the lattice."""

_DUST_US = 2
"""On it is what lies this near, so that times that went through floats count."""

_FINEST_WITH_DUST = 100
"""The shortest granularity, in microseconds, for which that holds."""


def tick_of(times: IntArray) -> int:
    """The longest granularity, in microseconds, with a lattice near which four in five times lie, 1 if there is none.

    The lattice may begin anywhere: a constant added to all times changes nothing. Cost: for each granularity whose
    divisors all have a lattice (three of random times), O(n) if it has at most n microseconds, else O(n log n).

    >>> seconds = 1_000_000 * np.random.default_rng(0).integers(0, 86_400, 1000)
    >>> tick_of(seconds), tick_of(seconds + 17), tick_of(seconds + 51 * np.arange(1000))
    (1000000, 1000000, 1)
    """
    since = times - times[0]
    found: list[int] = []
    for tick in LADDER:
        # What is near a lattice is near those of its divisors.
        divisors = (shorter for shorter in LADDER if _FINEST_WITH_DUST <= shorter < tick and tick % shorter == 0)
        if all(shorter in found for shorter in divisors) and _most_near(since, tick) >= _MOST * len(since):
            found.append(tick)
    return found[-1]


def _most_near(since: IntArray, tick: int) -> int:
    """The number of times near the best lattice: places from some first one to the dust above it, around the tick."""
    near = _DUST_US if tick >= _FINEST_WITH_DUST else 0
    place = since % tick
    if tick <= len(place):
        counts = np.bincount(place, minlength=tick)
        return int(np.max(sum((np.roll(counts, -more) for more in range(1, near + 1)), counts)))
    place = np.sort(place)
    ends = np.searchsorted(np.concatenate([place, place + tick]), place + near, side="right")
    return int(np.max(ends - np.arange(len(place))))


def dithered(times: IntArray, tick: int, rng: np.random.Generator, *, centred: bool = False) -> FloatArray:
    """Sorted times, each later by a random part of a tick; `centred`: from half a tick earlier to half a tick later.

    >>> dithered(np.array([0, 100]), 10, np.random.default_rng(0)).round(1).tolist()
    [6.4, 102.7]
    """
    parts = rng.random(len(times)) - 0.5 * centred
    return np.sort(times + parts * tick)

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


def tick_of(times: IntArray) -> int:
    """The longest granularity, in microseconds, with a lattice near which four in five times lie, 1 if there is none.

    The lattice may begin anywhere: a constant added to all times changes nothing. Cost: O(n log n) for each of some
    thirty granularities.

    >>> seconds = 1_000_000 * np.random.default_rng(0).integers(0, 86_400, 1000)
    >>> tick_of(seconds), tick_of(seconds + 17), tick_of(seconds + 51 * np.arange(1000))
    (1000000, 1000000, 1)
    """
    for tick in reversed(LADDER):
        place = np.sort((times - times[0]) % tick)
        near = _DUST_US if tick >= 100 else 0
        ends = np.searchsorted(np.concatenate([place, place + tick]), place + near, side="right")
        if np.max(ends - np.arange(len(place))) >= _MOST * len(place):
            return tick
    return 1


def dithered(times: IntArray, tick: int, rng: np.random.Generator, *, centred: bool = False) -> FloatArray:
    """Sorted times, each later by a random part of a tick; `centred`: from half a tick earlier to half a tick later.

    >>> dithered(np.array([0, 100]), 10, np.random.default_rng(0)).round(1).tolist()
    [6.4, 102.7]
    """
    parts = rng.random(len(times)) - 0.5 * centred
    return np.sort(times + parts * tick)

"""Time slots for window joins: they spread the rows of one key, or of a join without a key, over many buckets.

One stream is the home stream: each of its rows goes to the bucket of its slot. A row of any other stream is copied to
the buckets of all slots in which the tightened graph allows a home row. A combination has one home row, so it is found
in exactly one bucket.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.runtime.time_slots import LEAST_WIDTH_US
from whenabouts.core.window_join.graph import OPEN_US, WindowGraph


@dataclass(frozen=True)
class WindowSlots:
    """Slots of width `width_us`; `spans[j]`: the range of (home anchor) - (anchor of stream j), (0, 0) if j is home.

    >>> slots = WindowSlots(width_us=10, spans=((0, 0), (-5, 12)))
    >>> [slots.of(input, np.array([18]), np.array([18]), 64) for input in (0, 1)]
    [(array([1]), array([1])), (array([1]), array([3]))]
    """

    width_us: int
    spans: tuple[tuple[int, int], ...]

    def of(self, input: int, t_min: IntArray, t_max: IntArray, most: int) -> tuple[IntArray, IntArray]:
        """The first slot of each row, and how many slots it goes to, at most `most`."""
        before, after = self.spans[input]
        first = (t_max + before) // self.width_us
        return first, np.minimum((t_max + after) // self.width_us - first + 1, most)

    def copies(self, input: int) -> float:
        """How many slots a row goes to on average."""
        before, after = self.spans[input]
        return 1 + (after - before) / self.width_us


def window_slots(graph: WindowGraph, width_us: int | None) -> WindowSlots:
    """Slots for a graph; by default as wide as the widest range in which home rows can lie.

    The home stream is the one that the others are nearest to, so that they are copied least. Raises QueryError WA-2041
    if nothing bounds how far apart two streams are.
    """
    k = range(len(graph.streams))
    spans = [[(-graph.reach[home][j], graph.reach[j][home]) for j in k] for home in k]
    widest = [max(after - before for before, after in spans[home]) for home in k]
    home = min(k, key=lambda stream: sum(after - before for before, after in spans[stream]))
    if widest[home] >= OPEN_US:
        raise QueryError(
            Code.NOT_SLOTTED,
            "time slots are asked for, but nothing bounds how far apart the rows of a combination are",
            "give windows with two ends, and max_uncertainty= for intervals",
        )
    return WindowSlots(width_us or max(widest[home], LEAST_WIDTH_US), tuple(spans[home]))

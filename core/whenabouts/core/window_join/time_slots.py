"""Time slots for window joins: how combinations of one key, or of none, are spread over many buckets (`time_slots`).

One stream is at home: each of its rows goes to the bucket of its slot, and a row of any other stream to the buckets of
all slots in which the tightened graph allows a home row. A combination has one home row, so it is found in one bucket.
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
    """Slots of `width_us`; `spans[j]`: the range of (home anchor) - (anchor of stream j), (0, 0) for the home stream.

    >>> slots = WindowSlots(width_us=10, spans=((0, 0), (-5, 12)))
    >>> [slots.of(input, np.array([18]), np.array([18]), 64) for input in (0, 1)]
    [(array([1]), array([1])), (array([1]), array([3]))]
    """

    width_us: int
    spans: tuple[tuple[int, int], ...]

    def of(self, input: int, t_min: IntArray, t_max: IntArray, most: int) -> tuple[IntArray, IntArray]:
        """First slot of each row, and how many it goes to, at most `most`."""
        before, after = self.spans[input]
        first = (t_max + before) // self.width_us
        return first, np.minimum((t_max + after) // self.width_us - first + 1, most)

    def copies(self, input: int) -> float:
        """To how many slots a row goes on average."""
        before, after = self.spans[input]
        return 1 + (after - before) / self.width_us


def window_slots(graph: WindowGraph, width_us: int | None) -> WindowSlots:
    """Slots for a graph; without a width they are as wide as the widest stretch in which home rows can lie.

    At home is the stream to which the others are nearest: they are copied least. Raises QueryError WA-2041 where
    nothing bounds how far apart two streams are.
    """
    k = range(len(graph.streams))
    spans = [[(-graph.reach[home][j], graph.reach[j][home]) for j in k] for home in k]
    stretch = [max(after - before for before, after in spans[home]) for home in k]
    home = min(k, key=lambda place: sum(after - before for before, after in spans[place]))
    if stretch[home] >= OPEN_US:
        raise QueryError(
            Code.NOT_SLOTTED,
            "time slots, and no bound on how far apart the rows of a combination are",
            "give windows with two ends, and max_uncertainty= for intervals",
        )
    return WindowSlots(width_us or max(stretch[home], LEAST_WIDTH_US), tuple(spans[home]))

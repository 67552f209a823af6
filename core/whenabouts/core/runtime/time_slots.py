"""Time slots: how a join without a key, or with one hot key, is spread over many buckets.

By key alone all rows of a key meet in one bucket. With slots the rows of one input, the *home* input, go to the bucket
of their key and slot, a slot being a stretch of `t_max`; a row of the other input is copied to the buckets of all
slots in which it can have a partner. A home row is in one bucket, and so is each pair: nothing is found twice, and
whatever is decided about home rows (which found no partner, which is the best one) is decided where all their partners
are. The other input's rows meet some of their partners here and some there, so modes that decide about them too cannot
be spread.

The copies are `reach / width + 1` on average, never more than there are buckets. Consecutive slots go to consecutive
buckets. The idea is fragment and replicate (Epstein, Stonebraker, Wong 1978) along the time axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.typing import IntArray

LEAST_WIDTH_US = 10_000
"""Slots are not chosen narrower than this: a slot should hold many rows."""


class Place(NamedTuple):
    """Rows `at` of a block go to `bucket`; `copied`: another bucket has them too, and accounts for them."""

    bucket: int
    at: IntArray
    copied: bool


class Slots(Protocol):
    """Which slots a row goes to."""

    def of(self, input: int, t_min: IntArray, t_max: IntArray, most: int) -> tuple[IntArray, IntArray]:
        """First slot of each row of an input, and how many it goes to, at most `most`."""

    def copies(self, input: int) -> float:
        """To how many slots a row of an input goes on average, if its time is a point."""


@dataclass(frozen=True)
class TimeSlots:
    """Slots of `width_us` for the input `home`.

    `before_us`, `after_us`: the partners of a row of the other input have `t_max` in
    `[t_min - before_us, t_max + after_us]` of that row.

    >>> slots = TimeSlots(width_us=10, home=0, before_us=5, after_us=5)
    >>> first, count = slots.of(1, np.array([18, 30]), np.array([23, 30]), 64)
    >>> first.tolist(), count.tolist()
    ([1, 2], [2, 2])
    """

    width_us: int
    home: int
    before_us: int
    after_us: int

    def of(self, input: int, t_min: IntArray, t_max: IntArray, most: int) -> tuple[IntArray, IntArray]:
        """First slot of each row, and how many it goes to, at most `most`."""
        if input == self.home:
            return t_max // self.width_us, np.ones(len(t_max), np.int64)
        first = (t_min - self.before_us) // self.width_us
        return first, np.minimum((t_max + self.after_us) // self.width_us - first + 1, most)

    def copies(self, input: int) -> float:
        """To how many slots a row goes on average, if its time is a point."""
        return 1.0 if input == self.home else 1 + (self.before_us + self.after_us) / self.width_us


def place_rows(hashes: NDArray[np.uint64], first: IntArray, count: IntArray, buckets: int) -> list[Place]:
    """Where rows with these hashes of keys go, by bucket: row i to the slots `first[i] .. first[i] + count[i] - 1`.

    `count` must not exceed `buckets`, so that a row comes to a bucket once; it is accounted for in the first one.
    O(copies).
    """
    row = np.repeat(np.arange(len(first)), count)
    further = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    of_key = (hashes % np.uint64(buckets)).astype(np.int64)
    bucket = (of_key[row] + first[row] + further) % buckets  # no wrapping around: next slots are in next buckets
    return by_bucket(bucket, further > 0, row)


def by_bucket(bucket: IntArray, copied: NDArray[np.bool_] | None = None, at: IntArray | None = None) -> list[Place]:
    """Places from the bucket of each row (of row `at[i]`); rows keep their order. O(rows).

    >>> [(place.bucket, place.at.tolist()) for place in by_bucket(np.array([2, 0, 2]))]
    [(0, [1]), (2, [0, 2])]
    """
    order_by = bucket if copied is None else 2 * bucket + copied
    if not len(order_by):
        return []
    if order_by.max() < 2**15:
        order_by = order_by.astype(np.int16)  # numpy sorts 16 bits by radix
    order = np.argsort(order_by, kind="stable")
    ends = np.flatnonzero(np.diff(order_by[order])) + 1
    places = []
    for rows in np.split(order, ends):
        first = rows[0]
        is_copy = copied is not None and bool(copied[first])
        places.append(Place(int(bucket[first]), rows if at is None else at[rows], is_copy))
    return places

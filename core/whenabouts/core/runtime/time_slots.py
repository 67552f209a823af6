"""Time slots: spread a join without a key, or with one hot key, over many buckets.

Without slots, all rows of a key are in one bucket. With slots, a row of one input, the *home* input, goes to the bucket
of its key and slot, where a slot is an interval of `t_max`. A row of the other input is copied to the buckets of all
slots in which it can have a partner. A home row is in one bucket, and so is each pair: no pair is found twice, and
decisions about home rows (which have no partner, which partner is the best) are made in a bucket with all their
partners. The other input's rows have their partners in several buckets, so modes that decide about them cannot use
slots.

There are `reach / width + 1` copies on average, never more than buckets. Consecutive slots go to consecutive buckets.
The idea is fragment and replicate (Epstein, Stonebraker, Wong 1978) along the time axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.typing import BoolArray, IntArray

LEAST_WIDTH_US = 10_000
"""The least width chosen for slots: a slot should hold many rows."""


class BucketRows(NamedTuple):
    """The rows `at` of a block that go to `bucket`; `copied`: another bucket has them too, and counts them."""

    bucket: int
    at: IntArray
    copied: bool


class Slots(Protocol):
    """The slots of each row."""

    def of(self, input: int, t_min: IntArray, t_max: IntArray, most: int) -> tuple[IntArray, IntArray]:
        """The first slot of each row of an input, and how many slots it goes to, at most `most`."""

    def copies(self, input: int) -> float:
        """How many slots a row of an input goes to on average, if its time is a point."""


@dataclass(frozen=True)
class TimeSlots:
    """Slots of width `width_us` for the input `home`.

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
        """The first slot of each row, and how many slots it goes to, at most `most`."""
        if input == self.home:
            return t_max // self.width_us, np.ones(len(t_max), np.int64)
        first = (t_min - self.before_us) // self.width_us
        return first, np.minimum((t_max + self.after_us) // self.width_us - first + 1, most)

    def copies(self, input: int) -> float:
        """How many slots a row goes to on average, if its time is a point."""
        return 1.0 if input == self.home else 1 + (self.before_us + self.after_us) / self.width_us


def partition_copies(hashes: NDArray[np.uint64], first: IntArray, count: IntArray, buckets: int) -> list[BucketRows]:
    """The rows of each bucket, if row i with its key's hash goes to slots `first[i] .. first[i] + count[i] - 1`.

    `count` must not exceed `buckets`, so that a bucket has a row at most once. The first copy is the one that counts.
    O(copies).
    """
    row = np.repeat(np.arange(len(first)), count)
    further = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    of_key = (hashes % np.uint64(buckets)).astype(np.int64)
    bucket = (of_key[row] + first[row] + further) % buckets  # consecutive slots, consecutive buckets
    return group_by_bucket(bucket, further > 0, row)


def group_by_bucket(bucket: IntArray, copied: BoolArray | None = None, at: IntArray | None = None) -> list[BucketRows]:
    """The rows of each bucket, given the bucket of each row (of row `at[i]`); rows keep their order. O(rows).

    >>> [(part.bucket, part.at.tolist()) for part in group_by_bucket(np.array([2, 0, 2]))]
    [(0, [1]), (2, [0, 2])]
    """
    order_by = bucket if copied is None else 2 * bucket + copied
    if not len(order_by):
        return []
    if order_by.max() < 2**15:
        order_by = order_by.astype(np.int16)  # numpy sorts 16 bits by radix
    order = np.argsort(order_by, kind="stable")
    ends = np.flatnonzero(np.diff(order_by[order])) + 1
    parts = []
    for rows in np.split(order, ends):
        first = rows[0]
        is_copy = copied is not None and bool(copied[first])
        parts.append(BucketRows(int(bucket[first]), rows if at is None else at[rows], is_copy))
    return parts

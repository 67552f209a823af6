"""What buckets are called in Spark, so that each lands in a shuffle partition of its own.

Spark sends a row to partition `pmod(murmur3(label, 42), partitions)`. The labels 0 and 1 meet in one of two partitions,
and the other core idles; so the hash is inverted: bucket b of n gets the least label that goes to partition b of n. The
labels follow from n alone, since state is kept under them.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import count

CONTROL = -1
"""The label of no bucket: what a micro-batch says to the host itself, and the rows that readers refused."""

_SEED = 42
_MASK = 0xFFFFFFFF


@lru_cache
def bucket_labels(buckets: int) -> tuple[int, ...]:
    """The labels of buckets 0..n-1, all distinct and not negative. About n log n hashes.

    >>> bucket_labels(2), bucket_labels(4)
    ((2, 0), (12, 6, 2, 0))
    """
    found: dict[int, int] = {}
    for label in count():
        found.setdefault(partition_of(label, buckets), label)
        if len(found) == buckets:
            return tuple(found[bucket] for bucket in range(buckets))
    raise AssertionError("unreachable")


def partition_of(label: int, partitions: int) -> int:
    """Where Spark sends a row with this INT: `pmod(hash(label), partitions)`.

    MurmurHash3 x86 32 of one word (Appleby, public domain).

    >>> partition_of(0, 2), partition_of(1, 2)
    (1, 1)
    """
    k = _rotated(label * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    h = (_rotated(_SEED ^ k, 13) * 5 + 0xE6546B64) & _MASK
    h ^= 4
    h = (h ^ h >> 16) * 0x85EBCA6B & _MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & _MASK
    h ^= h >> 16
    return (h - (1 << 32) if h >> 31 else h) % partitions


def _rotated(word: int, by: int) -> int:
    return (word << by | word >> (32 - by)) & _MASK

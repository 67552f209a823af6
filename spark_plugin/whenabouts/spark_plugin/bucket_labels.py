"""The labels of buckets in Spark, chosen so that each bucket has a shuffle partition of its own.

Spark sends a row to partition `pmod(murmur3(label, 42), partitions)`. Bucket b of n has the least label that is sent
to partition b of n. The labels depend on n alone, since they are the keys of the state.
"""

from __future__ import annotations

from functools import lru_cache

from whenabouts.core.hosting.bucket_labels import least_labels, murmur3

_SEED = 42


@lru_cache
def bucket_labels(buckets: int) -> tuple[int, ...]:
    """The labels of buckets 0..n-1, all distinct and not negative. About n log n hashes.

    >>> bucket_labels(2), bucket_labels(4)
    ((2, 0), (12, 6, 2, 0))
    """
    return least_labels(range(buckets), lambda label: partition_of(label, buckets))


def partition_of(label: int, partitions: int) -> int:
    """The partition to which Spark sends a row with this INT: `pmod(hash(label), partitions)`.

    >>> partition_of(0, 2), partition_of(1, 2)
    (1, 1)
    """
    return murmur3(label, _SEED) % partitions

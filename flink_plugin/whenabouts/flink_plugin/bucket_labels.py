"""The keys of the buckets, chosen so that Flink spreads them evenly over subtasks.

Flink hashes a key to one of `max_parallelism` key groups, and assigns a range of groups to each subtask. Each bucket
has a group of its own, in the middle of its share: if the parallelism divides the number of buckets, all subtasks have
equally many.
"""

from __future__ import annotations

from pyflink.datastream import StreamExecutionEnvironment

from whenabouts.core.hosting.bucket_labels import least_labels, murmur3


def labels(buckets: int, groups: int) -> tuple[int, ...]:
    """The key of each bucket, all different. O((buckets + groups) log groups) numbers are tried on average.

    >>> labels(4, 128), [key_group(label, 128) for label in labels(4, 128)]
    ((299, 238, 8, 101), [16, 48, 80, 112])
    """
    middles = [(2 * bucket + 1) * groups // (2 * buckets) for bucket in range(buckets)]
    return least_labels(middles, lambda label: key_group(label, groups))


def key_group(label: int, groups: int) -> int:
    """The key group of a row of one integer: `KeyGroupRangeAssignment.assignToKeyGroup(Row.of(label), groups)`."""
    code = murmur3(62 + label)  # 62: what a row adds to the hash of its only field
    return (abs(code) if code != -(1 << 31) else 0) % groups  # as Flink's MathUtils.murmurHash


def groups_of(env: StreamExecutionEnvironment) -> int:
    """The job's greatest parallelism: the number of key groups, fixed in its savepoints."""
    given = env.get_max_parallelism()
    if given > 0:
        return int(given)
    parallelism = int(env.get_parallelism())
    return min(max(1 << (parallelism + parallelism // 2 - 1).bit_length(), 128), 1 << 15)

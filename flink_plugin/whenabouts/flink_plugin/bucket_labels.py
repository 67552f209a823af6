"""Which keys stand for the buckets: such that Flink spreads them evenly over subtasks.

Flink hashes a key to one of `max_parallelism` key groups, and gives each subtask a range of groups. Few small numbers
fall into few of them; so each bucket gets the least number that falls into a group of its own, in the middle of its
share. At any parallelism that divides the number of buckets all subtasks then have as many.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import count

from pyflink.datastream import StreamExecutionEnvironment

_MASK = 0xFFFFFFFF


def labels(buckets: int, groups: int) -> tuple[int, ...]:
    """The key of each bucket, all different. O(buckets + groups) numbers are looked at on average, times a logarithm.

    >>> labels(4, 128), [key_group(label, 128) for label in labels(4, 128)]
    ((299, 238, 8, 101), [16, 48, 80, 112])
    """
    wanted = defaultdict(list)
    for bucket in reversed(range(buckets)):
        wanted[(2 * bucket + 1) * groups // (2 * buckets)].append(bucket)
    found = [0] * buckets
    left = buckets
    for label in count():
        if open_ := wanted[key_group(label, groups)]:
            found[open_.pop()] = label
            left -= 1
            if not left:
                break
    return tuple(found)


def key_group(label: int, groups: int) -> int:
    """The key group of a row of one integer: `KeyGroupRangeAssignment.assignToKeyGroup(Row.of(label), groups)`."""
    return _murmur(62 + label) % groups  # 62: what a row adds to the hash of its one field


def groups_of(env: StreamExecutionEnvironment) -> int:
    """The job's greatest parallelism: the number of key groups, fixed in its savepoints."""
    given = env.get_max_parallelism()
    if given > 0:
        return int(given)
    parallelism = int(env.get_parallelism())
    return min(max(1 << (parallelism + parallelism // 2 - 1).bit_length(), 128), 1 << 15)


def _murmur(code: int) -> int:
    """Flink's `MathUtils.murmurHash`: the finaliser of MurmurHash3 for one block of 32 bits."""
    code = code * 0xCC9E2D51 & _MASK
    code = _rotated(code, 15) * 0x1B873593 & _MASK
    code = (_rotated(code, 13) * 5 + 0xE6546B64) & _MASK
    code ^= 4
    code = (code ^ code >> 16) * 0x85EBCA6B & _MASK
    code = (code ^ code >> 13) * 0xC2B2AE35 & _MASK
    code ^= code >> 16
    return code if code < 1 << 31 else (1 << 32) - code & 0x7FFFFFFF


def _rotated(code: int, bits: int) -> int:
    return (code << bits | code >> 32 - bits) & _MASK

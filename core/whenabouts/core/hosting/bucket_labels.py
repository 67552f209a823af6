"""Which numbers stand for the buckets, such that the engine's hash spreads the buckets as we want.

Engines send a row to a partition by the MurmurHash3 of its key. Few small numbers fall into few partitions, and cores
idle; so each bucket gets the least number that falls where the bucket belongs. State is kept under these labels: they
must never change.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from itertools import count

_MASK = 0xFFFFFFFF


def least_labels(targets: Sequence[int], target_of: Callable[[int], int]) -> tuple[int, ...]:
    """For each bucket the least label, not negative and not used before, with `target_of(label) == targets[bucket]`.

    Loops for ever if no label has one of the targets. Cost: about p log p calls for p possible targets.

    >>> least_labels([1, 0, 1], lambda label: label % 2)
    (1, 0, 3)
    """
    open_: defaultdict[int, deque[int]] = defaultdict(deque)
    for bucket, target in enumerate(targets):
        open_[target].append(bucket)
    found = [0] * len(targets)
    left, labels = len(targets), count()
    while left:
        label = next(labels)
        if buckets := open_.get(target_of(label)):
            found[buckets.popleft()] = label
            left -= 1
    return tuple(found)


def murmur3(word: int, seed: int = 0) -> int:
    """MurmurHash3 x86 32 of one 32-bit word, as a signed number (Appleby, public domain).

    >>> murmur3(0, 42), murmur3(1, 42)
    (933211791, -559580957)
    """
    k = _rotated(word * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    h = (_rotated(seed ^ k, 13) * 5 + 0xE6546B64) & _MASK
    h ^= 4
    h = (h ^ h >> 16) * 0x85EBCA6B & _MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & _MASK
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> (32 - bits)) & _MASK

"""The least and the greatest of many integers, in one pass through memory."""

from __future__ import annotations

from whenabouts.core.arrays.typing import IntArray

_AT_ONCE = 1 << 16
"""So many values stay in the second-level cache until both are found."""


def extremes(values: IntArray) -> tuple[int, int]:
    """The least and the greatest value; (0, 0) if there is none. O(n).

    >>> import numpy as np
    >>> extremes(np.array([3, -1, 2])), extremes(np.zeros(0, np.int64))
    ((-1, 3), (0, 0))
    """
    if len(values) <= _AT_ONCE:
        return (int(values.min()), int(values.max())) if len(values) else (0, 0)
    parts = [values[at : at + _AT_ONCE] for at in range(0, len(values), _AT_ONCE)]
    found = [(int(part.min()), int(part.max())) for part in parts]
    return min(least for least, _ in found), max(greatest for _, greatest in found)

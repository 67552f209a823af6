"""The least and the greatest of many integers, in one pass through memory."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from whenabouts.core.arrays.typing import IntArray

_FEW = 1 << 16
"""So many values stay in the second-level cache until both are found: numpy, which takes two passes, has less to set
up."""


def extremes(values: IntArray) -> tuple[int, int]:
    """The least and the greatest value; (0, 0) if there is none. O(n).

    >>> import numpy as np
    >>> extremes(np.array([3, -1, 2])), extremes(np.zeros(0, np.int64)), extremes(np.arange(100_000))
    ((-1, 3), (0, 0), (0, 99999))
    """
    if len(values) <= _FEW:
        return (int(values.min()), int(values.max())) if len(values) else (0, 0)
    found = pc.min_max(pa.array(values))
    return found["min"].as_py(), found["max"].as_py()

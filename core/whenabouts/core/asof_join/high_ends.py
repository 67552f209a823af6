"""When left rows are settled: the latest instant at which a right row can begin and still be a candidate.

Looking ahead, a right row that surely lies after a left row prevails over all that begin after it ends. So the instant
can only come earlier as right rows arrive, and it is found by the walk that finds candidates (`asof_join.candidates`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.jit import BOOL, INT64, READ_INT32, READ_INT64, WRITE_INT64, compiled
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.asof_join.candidates import (
    RIGHT_INDEX,
    RightIndex,
    first_after,
    right_index,
    walk_backward,
    walk_nearest,
)

Ends = tuple[IntArray, IntArray]
"""The begins and ends of rows in microseconds."""


def high_ends(
    left: Ends,
    left_key: NDArray[np.int32],
    right: Ends,
    right_key: NDArray[np.int32],
    keys: int,
    *,
    direction: str,
    tolerance_us: int,
    allow_exact_matches: bool,
) -> IntArray:
    """For each left row the latest instant at which a candidate can begin, given these right rows, at most its end +
    `tolerance_us`. Looking backward that is its end.

    Keys are codes below `keys`, none of them null. O((n + m) log m + candidates).

    >>> right, keys = (np.array([3, 12, 30]), np.array([5, 14, 30])), np.zeros(3, np.int32)
    >>> left = np.array([10]), np.array([11])
    >>> given = left, keys[:1], right, keys, 1
    >>> [int(high_ends(*given, direction=direction, tolerance_us=50, allow_exact_matches=True)[0])
    ...  for direction in ("backward", "forward", "nearest")]
    [11, 14, 14]
    """
    if direction == "backward":
        return left[1]
    forward = direction == "forward"
    if forward:
        left, right = (-left[1], -left[0]), (-right[1], -right[0])
    (left_begin, left_end), (right_begin, right_end) = (
        tuple(np.ascontiguousarray(each, np.int64) for each in ends) for ends in (left, right)
    )
    nothing = np.zeros(len(right_begin), np.int32)
    index = right_index(right_begin, right_end, nothing, right_key, nothing.astype(np.int64), keys)
    high = np.empty(len(left_begin), np.int64)
    _fill(left_begin, left_end, left_key, index, not forward, tolerance_us, not allow_exact_matches, high)
    return -high if forward else high


@compiled((READ_INT64, READ_INT64, READ_INT32, RIGHT_INDEX, BOOL, INT64, BOOL, WRITE_INT64))
def _fill(
    begin: IntArray,
    end: IntArray,
    left_key: NDArray[np.int32],
    index: RightIndex,
    nearest: bool,
    tolerance: int,
    strict: bool,
    high: IntArray,
) -> None:
    # Nearest the high end of the stretch that candidates meet, else the low one: forward is mirrored.
    found, bounds = np.empty(64, np.int32), np.empty(2, np.int64)
    guess = index.starts.copy()
    for i in range(begin.size):
        a, b, key = begin[i], end[i], left_key[i]
        first, beyond = index.starts[key], index.starts[key + 1]
        at = first_after(guess[key], first, beyond, b, index.begin)
        guess[key] = at
        no_exact = strict and a == b
        while True:
            if nearest:
                c0, c1 = walk_nearest(at, first, beyond, a, b, tolerance, no_exact, index, found, bounds)
            else:
                c0, c1 = walk_backward(at, first, a, b, tolerance, no_exact, index, found, bounds)
            if c0 >= 0:
                break
            found = np.empty(c1, np.int32)
        high[i] = bounds[1] if nearest else bounds[0]

"""Columns whose values lie side by side, four to a row, so that a row in memory is one place and not four.

To gather rows in no order costs one miss of the caches for each row and column; of columns side by side, one for each
row (decision 0039). The copy of the columns costs about as much as to gather each row once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from whenabouts.core.arrays.jit import INT64, READ_INT32, READ_INT64, WRITE_INT64, compiled
from whenabouts.core.arrays.large_arrays import large_array
from whenabouts.core.arrays.past_caches import put
from whenabouts.core.arrays.prefetch import prefetch
from whenabouts.core.arrays.threads import cuts, each
from whenabouts.core.arrays.typing import IntArray

WIDTH = 4
"""Columns in a group: 32 bytes a row, so that none lies across two lines of a cache."""

_AHEAD = 64
"""So many rows before it is written, a row is requested."""

_Four = tuple[IntArray, IntArray, IntArray, IntArray]
_READ_FOUR: Any = types.UniTuple(READ_INT64, WIDTH)  # type: ignore[no-untyped-call]  # numba ships no types
_WRITE_FOUR: Any = types.UniTuple(WRITE_INT64, WIDTH)  # type: ignore[no-untyped-call]  # as above


@compiled((_READ_FOUR, INT64, INT64, WRITE_INT64))
def _lay(columns: _Four, start: int, stop: int, out: IntArray) -> None:
    first, second, third, fourth = columns
    for i in range(np.uint64(start), np.uint64(stop)):
        out[4 * i] = first[i]
        out[4 * i + 1] = second[i]
        out[4 * i + 2] = third[i]
        out[4 * i + 3] = fourth[i]


@compiled((READ_INT64, READ_INT32, INT64, _WRITE_FOUR))
def _gather(rows: IntArray, at: NDArray[np.int32], columns: int, out: _Four) -> None:
    first, second, third, fourth = out
    last: Any = np.uint64(at.size - 1)
    for i in range(np.uint64(at.size)):
        prefetch(rows, np.uint64(4) * np.uint64(np.uint32(at[min(i + np.uint64(_AHEAD), last)])))
        place = np.uint64(4) * np.uint64(np.uint32(at[i]))
        put(first, i, rows[place])
        put(second, i, rows[place + np.uint64(1)])
        if columns > 2:
            put(third, i, rows[place + np.uint64(2)])
        if columns > 3:
            put(fourth, i, rows[place + np.uint64(3)])


def laid(columns: Sequence[IntArray]) -> IntArray:
    """Two to four columns of the same length, side by side; where fewer than four, the last one again.

    >>> laid([np.array([1, 2]), np.array([3, 4])]).tolist()
    [1, 3, 3, 3, 2, 4, 4, 4]
    """
    rows = len(columns[0])
    out = large_array(rows * WIDTH, np.int64)
    four = _four(columns)
    each(lambda part: _lay(four, part.start, part.stop, out), cuts(rows), rows)
    return out


def gathering(rows: IntArray, at: NDArray[np.int32], out: Sequence[IntArray]) -> list[Callable[[], None]]:
    """The work that writes the rows `at`, which must be valid, to the columns `out`; for threads to share.

    >>> out = np.empty(3, np.int64), np.empty(3, np.int64)
    >>> for work in gathering(laid([np.array([1, 2]), np.array([3, 4])]), np.array([1, 0, 1], np.int32), out):
    ...     work()
    >>> [column.tolist() for column in out]
    [[2, 1, 2], [4, 3, 4]]
    """
    return [
        partial(_gather, rows, at[part], len(out), _four([column[part] for column in out])) for part in cuts(len(at))
    ]


def _four(columns: Sequence[IntArray]) -> _Four:
    first, second, third, fourth = [*columns, *[columns[-1]] * (WIDTH - len(columns))]
    return first, second, third, fourth

"""The as-of join of exact times: one sweep over both sides in time order.

Looking backward, the right rows up to the time of a left row are noted as the last of their key, and that note is the
answer. Looking forward is the same with time and order reversed, and nearest compares both answers. O(n + m) after
sorting by time, without a sort or a search for each key.

A step of the sweep takes either the next right row or the next left row. Which one cannot be predicted, so steps have
no branch: the work of both is done, and counts for one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.jit import INT64, READ_INT32, READ_INT64, WRITE_INT32, compiled
from whenabouts.core.arrays.key_time_order import is_ascending, sorted_values
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.asof_join.right_order import Ties
from whenabouts.core.times.limits import ALWAYS_US

Positions32 = NDArray[np.int32]

NOBODY = -1
"""The answer of a left row that has no partner."""

_IN_ORDER = np.empty(0, np.int32)


class Points(NamedTuple):
    """The rows of a side: times in microseconds, and dense codes of their keys, -1 for a null; None: one key."""

    t: IntArray
    key: Positions32 | None


_ONE, _NONE = np.uint64(1), np.uint64(0)  # unsigned: numba omits the test for negative indices


@compiled((READ_INT64, READ_INT64, INT64, WRITE_INT32))
def _sweep(left_t: IntArray, right_t: IntArray, apart: int, place: Positions32) -> None:
    """The place of the last right row up to each left one, -1 if there is none; times ascend on both sides.

    `apart`: the least distance, 1 if exact matches do not count.
    """
    rows, others = np.uint64(left_t.size), np.uint64(right_t.size)
    i, taken = _NONE, _NONE
    while i < rows and taken < others:
        takes = np.uint64(right_t[taken] <= left_t[i] - apart)
        place[i] = np.int32(taken) - np.int32(1)
        taken += takes
        i += _ONE - takes
    while i < rows:
        place[i] = np.int32(taken) - np.int32(1)
        i += _ONE


@compiled((READ_INT64, READ_INT32, READ_INT64, READ_INT32, INT64, WRITE_INT32, WRITE_INT32))
def _sweep_keys(
    left_t: IntArray,
    left_key: Positions32,
    right_t: IntArray,
    right_key: Positions32,
    apart: int,
    last: Positions32,
    place: Positions32,
) -> None:
    """As `_sweep` for each key. `last`: -1 for each key and two more, which null keys of the right and the left use."""
    rows, others = np.uint64(left_t.size), np.uint64(right_t.size)
    nobody = np.uint32(last.size - 1)
    i, taken = _NONE, _NONE
    while i < rows and taken < others:
        takes = right_t[taken] <= left_t[i] - apart
        key = np.uint32(right_key[taken] + 1)
        last[key] = np.int32(taken) if takes else last[key]
        own = np.uint32(left_key[i] + 1)
        place[i] = last[own if own else nobody]
        taken += np.uint64(takes)
        i += _ONE - np.uint64(takes)
    while i < rows:
        own = np.uint32(left_key[i] + 1)
        place[i] = last[own if own else nobody]
        i += _ONE


@compiled((READ_INT64, READ_INT32, READ_INT64, READ_INT32, INT64, READ_INT32, WRITE_INT32))
def _finish(
    left_t: IntArray,
    left_row: Positions32,
    right_t: IntArray,
    right_row: Positions32,
    tolerance: int,
    place: Positions32,
    answer: Positions32,
) -> None:
    """From places in time order to row numbers, -1 for no place and for rows beyond the tolerance.

    `*_row`: the rows in time order, empty if they are in it themselves.
    """
    for i in range(left_t.size):
        found = place[i]
        row = left_row[i] if left_row.size else np.int32(i)
        if found >= 0 and left_t[i] - right_t[found] <= tolerance:
            answer[row] = right_row[found] if right_row.size else found
        else:
            answer[row] = -1


@compiled((READ_INT64, READ_INT64, READ_INT32, WRITE_INT32))
def _closer(left_t: IntArray, right_t: IntArray, after: Positions32, answer: Positions32) -> None:
    """Replace answers, which look backward, by those `after` the row that are closer."""
    for i in range(left_t.size):
        ahead = after[i]
        if ahead < 0:
            continue
        behind = answer[i]
        if behind < 0 or right_t[ahead] - left_t[i] < left_t[i] - right_t[behind]:
            answer[i] = ahead


def prevailing_points(
    left: Points,
    right: Points,
    *,
    keys: int,
    direction: str,
    tolerance_us: int | None,
    allow_exact_matches: bool,
    ties: Callable[[], Ties],
) -> Positions32:
    """The number of the right row that prevails for each left row, `NOBODY` if none does.

    `keys`: one more than the greatest code. `ties`: the right rows that share their key and their time, called only if
    some share their time.

    >>> points = [Points(np.array(t), None) for t in ([1, 5, 9], [5, 6])]
    >>> same = {"keys": 1, "tolerance_us": None, "allow_exact_matches": True, "ties": None}
    >>> [prevailing_points(*points, direction=which, **same).tolist() for which in ("backward", "forward", "nearest")]
    [[-1, 0, 1], [0, 0, -1], [0, 0, 1]]
    """
    rows, others = _in_time_order(left), _in_time_order(right)
    found = ties() if (others.t[1:] == others.t[:-1]).any() else None
    apart, farthest = 0 if allow_exact_matches else 1, ALWAYS_US if tolerance_us is None else tolerance_us

    def swept(rows: _InOrder, others: _InOrder, *, forward: bool) -> Positions32:
        place = np.empty(len(rows.t), np.int32)
        if rows.key is None or others.key is None:
            _sweep(rows.t, others.t, apart, place)
        else:
            _sweep_keys(rows.t, rows.key, others.t, others.key, apart, np.full(keys + 2, NOBODY, np.int32), place)
        answer = place
        if len(rows.row) or len(others.row) or tolerance_us is not None:
            answer = np.empty(len(rows.t), np.int32)
            _finish(rows.t, rows.row, others.t, others.row, farthest, place, answer)
        return answer if found is None else found.decided(answer, len(others.t), last=not forward)

    if direction == "backward":
        return swept(rows, others, forward=False)
    ahead = swept(rows.reversed(), others.reversed(), forward=True)
    if direction == "forward":
        return ahead
    answer = swept(rows, others, forward=False)
    _closer(left.t, right.t, ahead, answer)
    return answer


class _InOrder(NamedTuple):
    """Ascending times with their keys, and the number of each one's row; none if the rows are in order themselves."""

    t: IntArray
    key: Positions32 | None
    row: Positions32

    def reversed(self) -> _InOrder:
        """The same in reversed time."""
        row = self.row if len(self.row) else np.arange(len(self.t), dtype=np.int32)
        key = None if self.key is None else np.ascontiguousarray(self.key[::-1])
        return _InOrder(-self.t[::-1], key, np.ascontiguousarray(row[::-1]))


def _in_time_order(side: Points) -> _InOrder:
    if is_ascending(side.t):
        return _InOrder(side.t, side.key, _IN_ORDER)
    t, order = sorted_values(side.t)
    key = None if side.key is None else side.key.take(order, mode="clip")  # not checked: a permutation
    return _InOrder(t, key, order.astype(np.int32))

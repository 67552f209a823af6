"""The as-of join of exact times: one sweep over both sides in time order.

Looking backward, the right rows up to the time of a left row are noted as the last of their key, and that note is the
answer. Looking forward is the same with time and order reversed, and nearest compares both answers. O(n + m) after
sorting by time, without a sort or a search for each key.

A step of the sweep takes either the next right row or the next left row. Which one cannot be predicted, so steps have
no branch: the work of both is done, and counts for one.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.jit import INT32, INT64, READ_INT32, READ_INT64, WRITE_INT32, compiled
from whenabouts.core.arrays.key_time_order import is_ascending
from whenabouts.core.arrays.threads import cuts, each
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.arrays.value_order import sorted_values
from whenabouts.core.asof_join.right_order import Ties

Positions32 = NDArray[np.int32]

NOBODY = -1
"""The answer of a left row that has no partner."""

_IN_ORDER = np.empty(0, np.int32)


class Points(NamedTuple):
    """The rows of a side: times in microseconds, and dense codes of their keys, -1 for a null; None: one key."""

    t: IntArray
    key: Positions32 | None


_ONE, _NONE = np.uint64(1), np.uint64(0)  # unsigned: numba omits the test for negative indices


@compiled((READ_INT64, READ_INT32, READ_INT64, READ_INT32, INT64, INT32, INT64, WRITE_INT32))
def _sweep(
    left_t: IntArray,
    left_row: Positions32,
    right_t: IntArray,
    right_row: Positions32,
    first: int,
    before: int,
    apart: int,
    answer: Positions32,
) -> None:
    """The last right row up to each left one, `before` if there is none; times ascend on both sides.

    `*_row`: the rows' numbers; empty: they are consecutive, on the left from 0 on, on the right from `first` on.
    `apart`: the least distance, 1 if exact matches do not count.
    """
    rows, others = np.uint64(left_t.size), np.uint64(right_t.size)
    i, taken = _NONE, _NONE
    last: Any = before
    while i < rows and taken < others:
        takes = right_t[taken] <= left_t[i] - apart
        answer[np.uint32(left_row[i]) if left_row.size else i] = last
        last = (right_row[taken] if right_row.size else np.int32(first + np.int64(taken))) if takes else last
        taken += np.uint64(takes)
        i += _ONE - np.uint64(takes)
    while i < rows:
        answer[np.uint32(left_row[i]) if left_row.size else i] = last
        i += _ONE


@compiled(
    (READ_INT32, READ_INT64, READ_INT32, READ_INT32, READ_INT64, READ_INT32, INT64, INT64, WRITE_INT32, WRITE_INT32)
)
def _sweep_keys(
    left_key: Positions32,
    left_t: IntArray,
    left_row: Positions32,
    right_key: Positions32,
    right_t: IntArray,
    right_row: Positions32,
    first: int,
    apart: int,
    last: Positions32,
    answer: Positions32,
) -> None:
    """As `_sweep` for each key, -1 if there is none. `last`: -1 for each key and two more, which null keys of the right
    and the left use; then the number of the last right row of each key."""
    rows, others = np.uint64(left_t.size), np.uint64(right_t.size)
    nobody = np.uint32(last.size - 1)
    i, taken = _NONE, _NONE
    while i < rows and taken < others:
        takes = right_t[taken] <= left_t[i] - apart
        key = np.uint32(right_key[taken] + 1)
        number = right_row[taken] if right_row.size else np.int32(first + np.int64(taken))
        last[key] = number if takes else last[key]
        own = np.uint32(left_key[i] + 1)
        answer[np.uint32(left_row[i]) if left_row.size else i] = last[own if own else nobody]
        taken += np.uint64(takes)
        i += _ONE - np.uint64(takes)
    while i < rows:
        own = np.uint32(left_key[i] + 1)
        answer[np.uint32(left_row[i]) if left_row.size else i] = last[own if own else nobody]
        i += _ONE


@compiled((READ_INT32, READ_INT32, READ_INT32, WRITE_INT32))
def _carry(left_key: Positions32, left_row: Positions32, last: Positions32, answer: Positions32) -> None:
    """Left rows without an answer get the last right row of their key before the range."""
    for i in range(left_key.size):
        row = np.uint32(left_row[i]) if left_row.size else np.uint32(i)
        if answer[row] < 0 and left_key[i] >= 0:
            answer[row] = last[left_key[i] + 1]


@compiled((READ_INT64, READ_INT64, INT64, WRITE_INT32))
def _drop_far(left_t: IntArray, right_t: IntArray, tolerance: int, answer: Positions32) -> None:
    """Drop answers beyond the tolerance."""
    for i in range(left_t.size):
        found = answer[i]
        if found >= 0 and abs(left_t[i] - right_t[found]) > tolerance:
            answer[i] = -1


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
    apart = 0 if allow_exact_matches else 1

    def swept(rows: _InOrder, others: _InOrder, *, forward: bool) -> Positions32:
        answer = _swept(rows, others, keys, apart)
        if tolerance_us is not None:
            each(lambda part: _drop_far(left.t[part], right.t, tolerance_us, answer[part]), cuts(len(answer)))
        return answer if found is None else found.decided(answer, len(right.t), last=not forward)

    if direction == "backward":
        return swept(rows, others, forward=False)
    ahead = swept(rows.reversed(), others.reversed(), forward=True)
    if direction == "forward":
        return ahead
    answer = swept(rows, others, forward=False)
    each(lambda part: _closer(left.t[part], right.t, ahead[part], answer[part]), cuts(len(answer)))
    return answer


def _swept(rows: _InOrder, others: _InOrder, keys: int, apart: int) -> Positions32:
    """The last right row of its key up to each left row, -1 if there is none.

    Threads take ranges of left rows, each with the right rows since the last left row of the range before. Where these
    have no answer, it is the last right row of the key in the ranges before.
    """
    answer = np.empty(len(rows.t), np.int32)
    parts = cuts(len(rows.t))
    begins = [0, *(int(np.searchsorted(others.t, rows.t[part.start - 1] - apart, side="right")) for part in parts[1:])]
    of_right = [slice(*ends) for ends in pairwise([*begins, len(others.t)])]
    lefts = [(rows.t[part], rows.row[part]) for part in parts]
    rights = [(others.t[part], others.row[part]) for part in of_right]
    answers = [answer if len(rows.row) else answer[part] for part in parts]
    if rows.key is None or others.key is None:

        def sweep(n: int) -> None:
            before = begins[n] - 1
            if before >= 0 and len(others.row):
                before = int(others.row[before])
            _sweep(*lefts[n], *rights[n], begins[n], before, apart, answers[n])

        each(sweep, range(len(parts)))
        return answer
    last = np.full((len(parts), keys + 2), NOBODY, np.int32)
    left_keys, right_keys = [rows.key[part] for part in parts], [others.key[part] for part in of_right]

    def sweep_keys(n: int) -> None:
        _sweep_keys(left_keys[n], *lefts[n], right_keys[n], *rights[n], begins[n], apart, last[n], answers[n])

    each(sweep_keys, range(len(parts)))
    for earlier, later in pairwise(last):
        np.copyto(later, earlier, where=later < 0)
    each(lambda n: _carry(left_keys[n], lefts[n][1], last[n - 1], answers[n]), range(1, len(parts)))
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
    found = sorted_values(side.t, side.key)
    return _InOrder(found.values, found.key, found.position)

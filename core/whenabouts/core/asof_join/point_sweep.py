"""The as-of join of exact times: one sweep over both sides in time order.

Looking backward, the right rows up to the time of a left row are noted as the last of their key, and that note is the
answer. Looking forward is the same with time and order reversed, and nearest compares both answers. O(n + m) after
sorting by time, without a sort or a search for each key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.jit import BOOL, INT64, READ_INT32, READ_INT64, WRITE_INT32, WRITE_INT64, compiled
from whenabouts.core.arrays.key_time_order import Times, is_ascending, order_rows
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.times.limits import ALWAYS_US

Positions32 = NDArray[np.int32]

NOBODY = -1
"""The answer of a left row that has no partner."""

_UNRANKED = np.empty(0, np.int64)


class Points(NamedTuple):
    """The rows of a side: times in microseconds, and dense codes of their keys, -1 for a null; None: one key."""

    t: IntArray
    key: Positions32 | None


@compiled(
    BOOL(
        READ_INT64, READ_INT32, READ_INT32, READ_INT64, READ_INT32, READ_INT32, READ_INT64, INT64, INT64, INT64,
        WRITE_INT64, WRITE_INT32, WRITE_INT32,
    )
)  # fmt: skip
def _sweep_keys(
    left_t: IntArray,
    left_row: Positions32,
    left_key: Positions32,
    right_t: IntArray,
    right_row: Positions32,
    right_key: Positions32,
    rank: IntArray,
    sign: int,
    apart: int,
    tolerance: int,
    done: IntArray,
    last: Positions32,
    answer: Positions32,
) -> bool:
    """Answer the left rows; False if right rows of a key share their time and there are no ranks: call it again then.

    Both sides are sorted by time; `*_row` are the rows' numbers, empty if they are in order already. With `sign` -1 the
    sweep goes from the last row down, in reversed time and order. `apart`: the least distance, 1 if exact matches do
    not count. `done`: how many left and right rows are behind, and where the right rows of the present time begin.
    `last`: the last right row of each key, -1 at first.
    """
    rows, others = left_t.size, right_t.size
    left_first, right_first = (0, 0) if sign > 0 else (rows - 1, others - 1)
    first, taken, run = done[0], done[1], done[2]
    run_t = sign * right_t[right_first + sign * run] if run < others else np.int64(0)
    for i in range(first, rows):
        at = left_first + sign * i
        until = sign * left_t[at] - apart
        while taken < others:
            place = right_first + sign * taken
            t = sign * right_t[place]
            if t > until:
                break
            if t != run_t:
                run, run_t = taken, t
            row = np.int64(right_row[place]) if right_row.size else place
            key = right_key[row]
            if key >= 0:
                before = last[key]
                better = True
                if before >= run:  # a row of the same key and time
                    if rank.size == 0:
                        done[0], done[1], done[2] = i, taken, run
                        return False
                    other = right_first + sign * before
                    if right_row.size:
                        other = np.int64(right_row[other])
                    better = sign * rank[other] <= sign * rank[row]
                if better:
                    last[key] = taken
            taken += 1
        row = np.int64(left_row[at]) if left_row.size else at
        key = left_key[row]
        found = last[key] if key >= 0 else -1
        if found >= 0:
            place = right_first + sign * found
            if until + apart - sign * right_t[place] <= tolerance:
                found = right_row[place] if right_row.size else np.int32(place)
            else:
                found = -1
        answer[row] = found
    return True


@compiled(
    BOOL(
        READ_INT64, READ_INT32, READ_INT64, READ_INT32, READ_INT64, INT64, INT64, INT64, WRITE_INT64, WRITE_INT32,
    )
)  # fmt: skip
def _sweep(
    left_t: IntArray,
    left_row: Positions32,
    right_t: IntArray,
    right_row: Positions32,
    rank: IntArray,
    sign: int,
    apart: int,
    tolerance: int,
    done: IntArray,
    answer: Positions32,
) -> bool:
    """As `_sweep_keys`, for rows that all have the same key. `done`: how many left and right rows are behind, and one
    more than the place of the present answer."""
    rows, others = left_t.size, right_t.size
    left_first, right_first = (0, 0) if sign > 0 else (rows - 1, others - 1)
    first, taken, found = done[0], done[1], done[2] - 1
    found_t = sign * right_t[found] if found >= 0 else np.int64(0)
    for i in range(first, rows):
        at = left_first + sign * i
        until = sign * left_t[at] - apart
        while taken < others:
            place = right_first + sign * taken
            t = sign * right_t[place]
            if t > until:
                break
            better = True
            if found >= 0 and t == found_t:
                if rank.size == 0:
                    done[0], done[1], done[2] = i, taken, found + 1
                    return False
                row = np.int64(right_row[place]) if right_row.size else place
                other = np.int64(right_row[found]) if right_row.size else found
                better = sign * rank[other] <= sign * rank[row]
            if better:
                found, found_t = place, t
            taken += 1
        row = np.int64(left_row[at]) if left_row.size else at
        if found >= 0 and until + apart - found_t <= tolerance:
            answer[row] = right_row[found] if right_row.size else np.int32(found)
        else:
            answer[row] = -1
    return True


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
    ranks: Callable[[], IntArray],
) -> Positions32:
    """The number of the right row that prevails for each left row, `NOBODY` if none does.

    `keys`: one more than the greatest code. `ranks`: the order of right rows that share their key and their time,
    called only if there are such rows.

    >>> points = [Points(np.array(t), None) for t in ([1, 5, 9], [5, 6])]
    >>> same = {"keys": 1, "tolerance_us": None, "allow_exact_matches": True, "ranks": lambda: np.zeros(2, np.int64)}
    >>> [prevailing_points(*points, direction=which, **same).tolist() for which in ("backward", "forward", "nearest")]
    [[-1, 0, 1], [0, 0, -1], [0, 0, 1]]
    """
    rows, others = (_in_time_order(side.t) for side in (left, right))
    rank = _UNRANKED

    def swept(sign: int) -> Positions32:
        nonlocal rank
        answer = np.empty(len(left.t), np.int32)
        apart, farthest = 0 if allow_exact_matches else 1, ALWAYS_US if tolerance_us is None else tolerance_us
        sweep = _sweep_of(left, right, rows, others, keys)
        if not sweep(rank, sign, apart, farthest, answer):
            rank = ranks()
            sweep(rank, sign, apart, farthest, answer)
        return answer

    answer = swept(1 if direction != "forward" else -1)
    if direction == "nearest":
        _closer(left.t, right.t, swept(-1), answer)
    return answer


class _InOrder(NamedTuple):
    """Times in ascending order, and the number of each one's row; none if the rows are in order themselves."""

    t: IntArray
    row: Positions32


def _in_time_order(t: IntArray) -> _InOrder:
    if is_ascending(t):
        return _InOrder(t, np.empty(0, np.int32))
    ordered = order_rows(Times(t, t), "t_max", 1)
    return _InOrder(ordered.axis, ordered.position)


def _sweep_of(left: Points, right: Points, rows: _InOrder, others: _InOrder, keys: int) -> Callable[..., bool]:
    """A sweep that continues where it stopped for want of ranks."""
    done = np.zeros(3, np.int64)
    if left.key is None or right.key is None:
        return lambda rank, sign, apart, farthest, answer: _sweep(
            *rows, *others, rank, sign, apart, farthest, done, answer
        )
    left_key, right_key, last = left.key, right.key, np.full(keys, NOBODY, np.int32)
    return lambda rank, sign, apart, farthest, answer: _sweep_keys(
        *rows, left_key, *others, right_key, rank, sign, apart, farthest, done, last, answer
    )

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

from whenabouts.core.arrays.jit import BOOL, INT64, READ_INT32, READ_INT64, WRITE_INT32, compiled
from whenabouts.core.arrays.key_time_order import OrderedRows, Times, order_rows
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
        WRITE_INT32, WRITE_INT32,
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
    last: Positions32,
    answer: Positions32,
) -> bool:
    """Answer the left rows; False, unfinished, if right rows of a key share their time and there are no ranks.

    Both sides are sorted by time; `*_row` are the rows' numbers. With `sign` -1 the sweep goes from the last row down,
    in reversed time and order. `apart`: the least distance, 1 if exact matches do not count. `last`: one for each key,
    filled with -1.
    """
    rows, others = left_t.size, right_t.size
    left_first, right_first = (0, 0) if sign > 0 else (rows - 1, others - 1)
    taken, run, run_t = 0, 0, np.int64(0)
    for i in range(rows):
        at = left_first + sign * i
        until = sign * left_t[at] - apart
        while taken < others:
            t = sign * right_t[right_first + sign * taken]
            if t > until:
                break
            if taken == 0 or t != run_t:
                run, run_t = taken, t
            row = right_row[right_first + sign * taken]
            key = right_key[row]
            if key >= 0:
                before = last[key]
                if before >= run:  # a row of the same key and time
                    if rank.size == 0:
                        return False
                    if sign * rank[right_row[right_first + sign * before]] <= sign * rank[row]:
                        last[key] = taken
                else:
                    last[key] = taken
            taken += 1
        row = left_row[at]
        key = left_key[row]
        found = last[key] if key >= 0 else -1
        if found >= 0 and until + apart - sign * right_t[right_first + sign * found] > tolerance:
            found = -1
        answer[row] = right_row[right_first + sign * found] if found >= 0 else -1
    return True


@compiled(
    BOOL(
        READ_INT64, READ_INT32, READ_INT64, READ_INT32, READ_INT64, INT64, INT64, INT64, WRITE_INT32,
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
    answer: Positions32,
) -> bool:
    """As `_sweep_keys`, for rows that all have the same key."""
    rows, others = left_t.size, right_t.size
    left_first, right_first = (0, 0) if sign > 0 else (rows - 1, others - 1)
    taken, found, found_t = 0, np.int32(-1), np.int64(0)
    for i in range(rows):
        at = left_first + sign * i
        until = sign * left_t[at] - apart
        while taken < others:
            t = sign * right_t[right_first + sign * taken]
            if t > until:
                break
            row = right_row[right_first + sign * taken]
            if found >= 0 and t == found_t:
                if rank.size == 0:
                    return False
                if sign * rank[found] <= sign * rank[row]:
                    found = row
            else:
                found, found_t = row, t
            taken += 1
        near = found >= 0 and until + apart - found_t <= tolerance
        answer[left_row[at]] = found if near else np.int32(-1)
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
    sides = [order_rows(Times(side.t, side.t), "t_max", 1) for side in (left, right)]
    rank = _UNRANKED

    def swept(sign: int) -> Positions32:
        nonlocal rank
        answer = np.empty(len(left.t), np.int32)
        limits = sign, 0 if allow_exact_matches else 1, ALWAYS_US if tolerance_us is None else tolerance_us
        if not _swept(left, right, sides, rank, limits, keys, answer):
            rank = ranks()
            _swept(left, right, sides, rank, limits, keys, answer)
        return answer

    answer = swept(1 if direction != "forward" else -1)
    if direction == "nearest":
        _closer(left.t, right.t, swept(-1), answer)
    return answer


def _swept(
    left: Points,
    right: Points,
    sides: list[OrderedRows],
    rank: IntArray,
    limits: tuple[int, int, int],
    keys: int,
    answer: Positions32,
) -> bool:
    rows, others = sides
    if left.key is None or right.key is None:
        return _sweep(rows.axis, rows.position, others.axis, others.position, rank, *limits, answer)
    last = np.full(keys, NOBODY, np.int32)
    return _sweep_keys(
        rows.axis, rows.position, left.key, others.axis, others.position, right.key, rank, *limits, last, answer
    )

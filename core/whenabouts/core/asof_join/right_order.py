"""The order of right rows that share their key and their times: by `order_by`, then by all columns.

The second criterion makes the order total, but for rows that are equal in everything. So the row that prevails does not
depend on how rows arrive, or how they are divided into files and steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core.arrays.key_time_order import is_ascending
from whenabouts.core.arrays.record_batches import take_table
from whenabouts.core.arrays.row_ranks import ranks_of_rows
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.arrays.value_order import sorted_values
from whenabouts.core.runtime.blocks import PREFIX, times


class Ties(NamedTuple):
    """The rows that share their key and their times with another one: `row` ascends by `group`, then in the order."""

    row: IntArray
    group: IntArray

    def ranks(self, rows: int) -> IntArray:
        """The place of each of all `rows` in its group, or any number that grows with it; 0 for those in none."""
        ranks = np.zeros(rows, np.int64)
        ranks[self.row] = np.arange(len(self.row))
        return ranks

    def decided(self, answer: NDArray[np.int32], rows: int, *, last: bool) -> NDArray[np.int32]:
        """Answers (row numbers, -1 for none), changed to the last, or the first, row of the group of each."""
        if not len(self.row):
            return answer
        ends = np.flatnonzero(np.diff(self.group)) + 1
        firsts, lasts = np.concatenate([[0], ends]), np.concatenate([ends, [len(self.row)]]) - 1
        winner = np.repeat(self.row[lasts if last else firsts], lasts - firsts + 1)
        by_row = np.argsort(self.row)
        tied = np.zeros(rows + 1, bool)  # one more for the answer -1
        tied[self.row] = True
        at = np.flatnonzero(tied[answer])
        answer[at] = winner[by_row[np.searchsorted(self.row[by_row], answer[at])]]
        return answer


def ties_of(rows: pa.Table, key: NDArray[np.integer[Any]] | None, order_by: Sequence[str]) -> Ties:
    """The block rows that share their key, `t_min` and `t_max`, in the order by `order_by`, then by all columns.

    `key`: codes of their keys; None: one key. Rows that are equal in everything are in any order. O(n) in time order,
    else a sort; columns are compared only where rows tie.

    >>> rows = pa.table({"_wa_t_min": [3, 5, 5], "_wa_t_max": [5, 5, 5], "v": [1, 3, 2], "w": [0, 0, 9]})
    >>> ties_of(rows, None, []).row.tolist(), ties_of(rows, None, ["w"]).row.tolist()
    ([2, 1], [1, 2])
    """
    t_min, t_max = times(rows)
    at, group = _tied([t_max, t_min, *([] if key is None else [key])])
    own = [name for name in rows.column_names if not name.startswith(PREFIX)]
    rank = np.zeros(len(at), np.int64)
    for names in (list(order_by), own):
        if names and len(at):
            again = _tied([group, rank])[0]  # `order_by` may have decided
            if len(again):
                further = ranks_of_rows(take_table(rows.select(names), at[again]))
                rank *= int(further.max()) + 1
                rank[again] += further
    order = np.lexsort((rank, group))
    return Ties(at[order], group[order])


def _tied(columns: Sequence[NDArray[np.integer[Any]]]) -> tuple[IntArray, IntArray]:
    """The rows that equal another one in all columns, and numbers of their groups.

    Sorts those only that share the first column.
    """
    first = np.asarray(columns[0], np.int64)
    if len(first) < 2:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    if is_ascending(first):
        at = np.flatnonzero(_either_side(first[1:] == first[:-1]))
    else:
        ordered = sorted_values(first)
        at = ordered.position[_either_side(ordered.values[1:] == ordered.values[:-1])].astype(np.int64)
    if not len(at):
        return at, at
    further = [column[at] for column in columns]
    order = np.lexsort(further[::-1])
    same = np.ones(len(order) - 1, bool)
    for column in further:
        same &= np.diff(column[order]) == 0
    tied = _either_side(same)
    group = np.concatenate([[0], np.cumsum(~same)])
    return at[order[tied]], group[tied]


def _either_side(same: BoolArray) -> BoolArray:
    """The items that equal the one before or after them, given which neighbours are equal."""
    both = np.zeros(len(same) + 1, bool)
    both[1:] |= same
    both[:-1] |= same
    return both

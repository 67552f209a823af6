"""The order of right rows that share their key and their times: by `order_by`, then by all columns.

The second criterion makes the order total, but for rows that are equal in everything. So the row that prevails does not
depend on how rows arrive, or how they are divided into files and steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core.arrays.key_time_order import Times, is_ascending, order_rows
from whenabouts.core.arrays.row_ranks import ranks_of_rows
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.runtime.blocks import PREFIX, times


def ranks_of_ties(rows: pa.Table, key: NDArray[np.integer[Any]] | None, order_by: Sequence[str]) -> IntArray:
    """Ranks of block rows, comparable among rows of one key with equal `t_min` and `t_max`; others have rank 0.

    `key`: codes of their keys; None: one key. O(n) in time order, else a sort; columns are
    compared only where rows tie.

    >>> rows = pa.table({"_wa_t_min": [3, 5, 5], "_wa_t_max": [5, 5, 5], "v": [1, 3, 2], "w": [0, 0, 9]})
    >>> ranks_of_ties(rows, None, []).tolist(), ranks_of_ties(rows, None, ["w"]).tolist()
    ([0, 1, 0], [0, 0, 1])
    """
    t_min, t_max = times(rows)
    columns: list[NDArray[np.integer[Any]]] = [t_max, t_min, *([] if key is None else [key])]
    ranks = np.zeros(rows.num_rows, np.int64)
    if len(ranks) < 2:
        return ranks
    own = [name for name in rows.column_names if not name.startswith(PREFIX)]
    for names in (list(order_by), own):
        at = _tied(columns) if names else ()
        if len(at):
            further = ranks_of_rows(rows.select(names).take(pa.array(at)))
            ranks *= int(further.max()) + 1
            ranks[at] += further
            columns = [*columns, ranks]
    return ranks


def _tied(columns: Sequence[NDArray[np.integer[Any]]]) -> IntArray:
    """The rows that equal another one in all columns, ascending. Sorts those only that share the first column."""
    first = np.asarray(columns[0], np.int64)
    if is_ascending(first):
        at = np.flatnonzero(_either_side(first[1:] == first[:-1]))
    else:
        ordered = order_rows(Times(first, first), "t_max", 1)
        at = np.asarray(ordered.position[_either_side(ordered.axis[1:] == ordered.axis[:-1])], np.int64)
    if len(at):
        further = [column[at] for column in columns]
        order = np.lexsort(further[::-1])
        same = np.ones(len(order) - 1, bool)
        for column in further:
            same &= np.diff(column[order]) == 0
        at = np.sort(at[order[_either_side(same)]])
    return at


def _either_side(same: BoolArray) -> BoolArray:
    """The items that equal the one before or after them, given which neighbours are equal."""
    both = np.zeros(len(same) + 1, bool)
    both[1:] |= same
    both[:-1] |= same
    return both

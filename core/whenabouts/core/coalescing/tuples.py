"""Tuples sorted by group and time, one for each instant: the input of every coalescing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.extremes import extremes
from whenabouts.core.arrays.record_batches import one_chunk, take_rows, take_table
from whenabouts.core.arrays.row_ranks import ranks_of_rows
from whenabouts.core.arrays.typing import BoolArray, IntArray, Positions
from whenabouts.core.coalescing.equivalence import Equivalence, comparable, linked, neighbours_linked
from whenabouts.core.runtime.keys import Keys


class Groups(NamedTuple):
    """The group of each row as a code, `low <= code < low + size`. `are_values`: the codes are those of the only
    column."""

    codes: IntArray
    low: int
    size: int
    are_values: bool = False


def groups_of(keys: Keys, table: pa.Table) -> Groups:
    """The groups of rows; without group columns there is one. Integers in a small range are their own codes."""
    if not keys.names:
        return Groups(np.zeros(table.num_rows, np.int64), 0, 1)
    if len(keys.names) == 1 and pa.types.is_int64(keys.types[0]):
        column = one_chunk(table.column(keys.of(0)[0]))
        column = column if pa.types.is_int64(column.type) else column.cast(pa.int64())
        if len(column) and not column.null_count:
            codes = column.to_numpy()
            low, high = extremes(codes)
            if high - low < max(4 * len(column), 1024):
                return Groups(codes, low, high - low + 1, are_values=True)
    codes = keys.codes([table])[0]
    return Groups(codes, 0, int(codes.max(initial=-1)) + 1)


@dataclass(frozen=True, slots=True)
class TemporalTuples:
    """Tuples sorted by (group, time): tuple i is row `rows[i]` of `table` and begins at `times[i]`.

    Group g is `[starts[g], starts[g + 1])`. `joined[i]`: tuple i is known to extend tuple i - 1, because it did when
    both were stored (eager); None if nothing is known.
    """

    table: pa.Table
    rows: Positions
    times: IntArray
    starts: IntArray
    joined: BoolArray | None = None

    def __len__(self) -> int:
        return len(self.times)

    def taken(self, at: IntArray | None, names: Sequence[str]) -> list[pa.Array]:
        """Columns of the tuples at these indices (None: of all)."""
        if not names:
            return []
        rows = self.rows if at is None else self.rows[at]
        return [take_rows(self.table.column(name), rows) for name in names]

    @property
    def heads(self) -> BoolArray:
        """The first tuple of each group."""
        found = np.zeros(len(self), bool)
        found[self.starts[:-1][self.starts[:-1] < self.starts[1:]]] = True
        return found


class ListTuples(NamedTuple):
    """Tuples sorted by list and time: their lists, times and values (row i of `values` is tuple i)."""

    lists: IntArray
    times: IntArray
    values: pa.Table

    def at(self, indices: IntArray) -> ListTuples:
        """The tuples at these indices, each at most once and in order."""
        if len(indices) == len(self.times):
            return self
        return ListTuples(self.lists[indices], self.times[indices], take_table(self.values, indices))


class Duplicates(NamedTuple):
    """Rows of a group that share their time with another one: the indices of rejected rows, a count of repeats, and
    the times that are shared."""

    rejected: IntArray
    replayed: int
    times: IntArray


class Order(NamedTuple):
    """Rows by group and time: their indices, their times, where groups start; whether a group has two equal times."""

    at: Positions
    times: IntArray
    starts: IntArray
    has_ties: bool


def order_of(times: IntArray, groups: Groups) -> Order:
    """Sorts rows by group and time, stably. O(n)."""
    from whenabouts.core.arrays.grouped_sort import sorted_in_groups  # numba: imported when first needed
    from whenabouts.core.coalescing.kernels import rows_in_order

    starts = np.zeros(groups.size + 1, np.int64)
    at, in_groups = np.empty(len(times), np.int32), np.empty(len(times), np.int64)
    if rows_in_order(times, groups.codes, groups.low, starts, at, in_groups):
        return Order(at, in_groups, starts, has_ties=False)
    found = sorted_in_groups(times, None, groups.codes, groups.low, groups.size)
    return Order(found.pairs[:, 1].astype(np.int32), found.pairs[:, 0].copy(), found.starts, found.has_ties)


def without_duplicates(tuples: TemporalTuples, columns: Sequence[str]) -> tuple[TemporalTuples, Duplicates]:
    """One tuple for each group and time: the smallest row in the order of `columns`. `joined` must be None.

    Rows equal to another one are repeats; the other rows that are dropped are rejected. O(n + ties log ties).
    """
    same = np.zeros(len(tuples), bool)
    same[1:] = (np.diff(tuples.times) == 0) & ~tuples.heads[1:]
    tied = same.copy()
    tied[:-1] |= same[1:]
    at = np.flatnonzero(tied)
    tie = np.cumsum(~same[at])  # the number of the tie that a row is in
    ranks = ranks_of_rows(take_table(tuples.table.select(columns), tuples.rows[at]))
    order = np.lexsort((ranks, tie))
    tie, ranks, at = tie[order], ranks[order], at[order]
    smallest = np.diff(tie, prepend=-1) != 0
    repeated = ~smallest & (np.diff(ranks, prepend=-1) == 0)
    keep = np.ones(len(tuples), bool)
    keep[at[~smallest]] = False
    rejected = tuples.rows[at[~smallest & ~repeated]].astype(np.int64)
    before = np.concatenate([[0], np.cumsum(keep)])
    kept = TemporalTuples(tuples.table, tuples.rows[keep], tuples.times[keep], before[tuples.starts])
    return kept, Duplicates(rejected, int(repeated.sum()), tuples.times[same])


def links_of(tuples: TemporalTuples, values: Sequence[str], equivalence: Equivalence) -> tuple[BoolArray, int]:
    """Whether each tuple extends the run of its predecessor, and how many comparisons that took. O(n).

    The first tuple of a group extends nothing. Known links are not compared again.
    """
    heads = tuples.heads
    if tuples.joined is None and equivalence.predicate is None and len(tuples):
        # No link is known: fetch each value once, and compare whole columns.
        columns = [comparable(tuples.table.column(name)).take(tuples.rows) for name in values]
        found = np.empty(len(tuples), bool)
        found[1:] = linked([c.slice(0, -1) for c in columns], [c.slice(1, None) for c in columns], equivalence)
        found[heads] = False
        return found, len(tuples) - int(heads.sum())
    found = np.zeros(len(tuples), bool) if tuples.joined is None else tuples.joined & ~heads
    after = np.flatnonzero(~found & ~heads)
    earlier, later = tuples.rows[after - 1], tuples.rows[after]
    if not len(after):
        return found, 0
    found[after] = neighbours_linked(tuples.table.select(values), equivalence, earlier, later)
    return found, len(after)


class PredecessorLinks(NamedTuple):
    """How new tuples continue the tuples already held.

    `linked[i]`: whether new tuple i extends its predecessor. `compared`: comparisons made.
    """

    linked: BoolArray
    compared: int


def predecessors(held: int, new: int, continued: IntArray) -> IntArray:
    """The predecessor of each new tuple among the last tuples held, `0 .. held - 1`, and the new ones after these.

    `continued`: the indices of new tuples that directly follow those held. That of the first tuple of any other group
    is arbitrary.

    >>> predecessors(2, 4, np.array([0, 2])).tolist()
    [0, 2, 1, 4]
    """
    earlier = np.arange(held - 1, held + new - 1)
    earlier[continued] = np.arange(held)
    return earlier


def links_to_predecessors(
    last: pa.Table, new: pa.Table, firsts: IntArray, continued: IntArray, equivalence: Equivalence
) -> PredecessorLinks:
    """Which new tuples extend their predecessor, if they come group by group and after all tuples held. O(new).

    `firsts`: the indices of the first new tuple of each group; `continued`: of those whose group has a last tuple,
    which is a row of `last`.
    """
    rows, held = pa.concat_tables([last, new]), last.num_rows
    found = np.zeros(new.num_rows, bool)
    if equivalence.predicate is not None:
        known = np.ones(len(found), bool)
        known[firsts] = False
        known[continued] = True
        later = np.flatnonzero(known)
        earlier = predecessors(held, len(found), continued)[later]
        found[later] = neighbours_linked(rows, equivalence, earlier, held + later)
    elif len(found):
        # Most tuples directly follow their predecessor: compare whole columns.
        columns = [comparable(column) for column in rows.columns]
        found[1:] = linked(
            [c.slice(held, -1) for c in columns], [c.slice(held + 1, None) for c in columns], equivalence
        )
        pairs = [c.slice(0, held) for c in columns], [c.take(held + continued) for c in columns]
        found[firsts] = False
        found[continued] = linked(*pairs, equivalence)
    return PredecessorLinks(found, len(found) - len(firsts) + len(continued))

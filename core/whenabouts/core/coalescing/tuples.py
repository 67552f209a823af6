"""Tuples of all groups in order of group and time, one for each instant: what every coalescing begins with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.record_batches import one_chunk
from whenabouts.core.arrays.row_ranks import ranks_of_rows
from whenabouts.core.arrays.typing import BoolArray, IntArray, Positions
from whenabouts.core.coalescing.equivalence import Equivalence, comparable, linked, neighbours_linked
from whenabouts.core.runtime.keys import Keys

_NO_ROWS = np.empty(0, np.int64)


class Groups(NamedTuple):
    """The group of each row, as a code `low <= code < low + size`."""

    codes: IntArray
    low: int
    size: int


def groups_of(keys: Keys, table: pa.Table) -> Groups:
    """The groups of rows; without group columns all are one. Integers that lie close are their own codes."""
    from whenabouts.core.coalescing.kernels import least_and_greatest  # numba: imported when first needed

    if not keys.names:
        return Groups(np.zeros(table.num_rows, np.int64), 0, 1)
    if len(keys.names) == 1 and pa.types.is_int64(keys.types[0]):
        column = one_chunk(table.column(keys.of(0)[0])).cast(pa.int64())
        low, high = (0, -1) if column.null_count else least_and_greatest(column.to_numpy())
        if low <= high and high - low < max(4 * len(column), 1024):
            return Groups(column.to_numpy(), int(low), int(high - low + 1))
    codes = keys.codes([table])[0]
    return Groups(codes, 0, int(codes.max(initial=-1)) + 1)


@dataclass(frozen=True, slots=True)
class TemporalTuples:
    """Tuples by (group, time): tuple i is row `rows[i]` of `table` and begins at `times[i]`.

    Group g is `[starts[g], starts[g + 1])`. `joined[i]`: known to go on tuple i - 1, since it did when both were
    stored (eager); None where nothing is known.
    """

    table: pa.Table
    rows: Positions
    times: IntArray
    starts: IntArray
    joined: BoolArray | None = None

    def __len__(self) -> int:
        return len(self.times)

    def taken(self, at: IntArray, names: Sequence[str]) -> list[pa.Array]:
        """The columns of the tuples at places."""
        rows = pa.array(self.rows[at])
        return [one_chunk(self.table.column(name)).take(rows) for name in names]

    @property
    def heads(self) -> BoolArray:
        """The first tuple of each group."""
        found = np.zeros(len(self), bool)
        found[self.starts[:-1][self.starts[:-1] < self.starts[1:]]] = True
        return found


class Rivals(NamedTuple):
    """What became of rows of a group with the same time: who lost (row positions), and how many were repetitions."""

    losers: IntArray
    replayed: int


class Order(NamedTuple):
    """Rows by group and time: their positions, their times, where groups start; whether two of a group are at once."""

    at: Positions
    times: IntArray
    starts: IntArray
    twins: bool


def order_of(times: IntArray, groups: Groups) -> Order:
    """O(n) where times rise within groups, else a radix sort of the groups in disorder; stable."""
    from whenabouts.core.coalescing.kernels import group_rows, sort_by_time

    at, ordered = np.empty(len(times), np.int32), np.empty(len(times), np.int64)
    starts = np.empty(groups.size + 1, np.int64)
    group_rows(groups.codes, groups.low, groups.size, at, starts)
    return Order(at, ordered, starts, bool(sort_by_time(times, starts, at, ordered)))


def without_rivals(tuples: TemporalTuples, columns: Sequence[str]) -> tuple[TemporalTuples, Rivals]:
    """One tuple for each group and time: the smallest row in the order of `columns`. Nothing may be `joined` yet.

    A row that equals one that was seen is a repetition; the other losers are given back. O(n + rivals log rivals).
    """
    same = np.zeros(len(tuples), bool)
    same[1:] = (np.diff(tuples.times) == 0) & ~tuples.heads[1:]
    among = same.copy()
    among[:-1] |= same[1:]
    at = np.flatnonzero(among)
    contest = np.cumsum(~same[at])  # rivals of one instant share a number
    ranks = ranks_of_rows(tuples.table.select(columns).take(pa.array(tuples.rows[at])))
    order = np.lexsort((ranks, contest))
    contest, ranks, at = contest[order], ranks[order], at[order]
    winner = np.diff(contest, prepend=-1) != 0
    repeated = ~winner & (np.diff(ranks, prepend=-1) == 0)
    keep = np.ones(len(tuples), bool)
    keep[at[~winner]] = False
    losers = tuples.rows[at[~winner & ~repeated]].astype(np.int64)
    before = np.concatenate([[0], np.cumsum(keep)])
    kept = TemporalTuples(tuples.table, tuples.rows[keep], tuples.times[keep], before[tuples.starts])
    return kept, Rivals(losers, int(repeated.sum()))


NO_RIVALS = Rivals(_NO_ROWS, 0)


def links_of(tuples: TemporalTuples, values: Sequence[str], equivalence: Equivalence) -> tuple[BoolArray, int]:
    """Whether each tuple goes on the one before it, and how many comparisons it took. O(n).

    The first tuple of a group goes on nothing; what is known already is not compared again.
    """
    heads = tuples.heads
    if tuples.joined is None and equivalence.predicate is None and len(tuples):
        # Of all neighbours none is known: each value is fetched once, and whole columns are compared.
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
    """New tuples behind those that are there: `rows` of values, first the last ones there and then the new ones; the
    row `earlier[i]` of the tuple before new tuple i; whether it goes on that one; how many comparisons it took."""

    rows: pa.Table
    earlier: IntArray
    linked: BoolArray
    compared: int


def links_behind(
    last: pa.Table, new: pa.Table, begins: BoolArray, goes_back: IntArray, equivalence: Equivalence
) -> PredecessorLinks:
    """Which new tuples go on the ones before them, where they come list by list behind all that are there. O(new).

    `begins`: the first ones of their lists; those of them at the places `goes_back` come behind the rows of `last`.
    """
    rows, held = pa.concat_tables([last, new]), last.num_rows
    earlier = np.arange(held - 1, held + new.num_rows - 1)
    earlier[goes_back] = np.arange(held)
    known = ~begins
    known[goes_back] = True
    found = np.zeros(new.num_rows, bool)
    if equivalence.predicate is not None:
        later = np.flatnonzero(known)
        found[later] = neighbours_linked(rows, equivalence, earlier[later], held + later)
    elif len(found):
        # Most stand behind their neighbour in the columns: these are compared as a whole.
        columns = [comparable(column) for column in rows.columns]
        found[1:] = linked(
            [c.slice(held, -1) for c in columns], [c.slice(held + 1, None) for c in columns], equivalence
        )
        back = [c.take(earlier[goes_back]) for c in columns], [c.take(held + goes_back) for c in columns]
        found[begins] = False
        found[goes_back] = linked(*back, equivalence)
    return PredecessorLinks(rows, earlier, found, int(known.sum()))

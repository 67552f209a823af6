"""One bucket's sliding window in memory: settled tuples are appended, and the oldest ones are dropped.

Settled tuples arrive in time order, so each group is a contiguous part of the arrays that grows at one end and shrinks
at the other (`coalescing.sliding_kernels`). A step costs the tuples added and dropped, and its output; a lazy window
also compares all its tuples in each evaluation. The window is a copy of the tuples in the state
(`coalescing.window_log`), and is rebuilt from it if the cache (`state.window_cache`) does not have it.
`coalescing.sliding_ranges` says which tuples an extent contains.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core.arrays.group_ids import GroupIds
from whenabouts.core.arrays.record_batches import one_chunk, take_rows
from whenabouts.core.arrays.row_pool import RowPool
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.coalescing.aggregate_needs import AggregateNeeds
from whenabouts.core.coalescing.equivalence import Equivalence, neighbours_linked, same_bits
from whenabouts.core.coalescing.tuples import TemporalTuples, links_to_predecessors, predecessors
from whenabouts.core.state.window_cache import Cacheable

_NOTHING = np.zeros(0, np.int64)
_ALL = 2**62
"""More than any number of tuples, and later than any time."""


class SlidingWindow:
    """Tuples by group: those of a group are contiguous in `times`, with gaps between groups.

    `linked[i]`: tuple i extends tuple i - 1; `passes[i]`: it passes the filter of `needs`. `numbers[i]`: its number in
    the stream, in (time, group) order from 1, if the window is `numbered` (otherwise empty). Under the equivalence
    `equal` the tuples of a run share one row of values, as long as their bits are the same. `eager`: tuples are
    compared once, when they are appended; otherwise by `compare`, and each has its own row of values. `last_instant`:
    what a join carries over to the next step.
    """

    def __init__(
        self,
        schema: pa.Schema,
        group: Sequence[str],
        values: Sequence[str],
        equivalence: Equivalence,
        needs: AggregateNeeds | None = None,
        *,
        eager: bool = True,
        numbered: bool = False,
    ) -> None:
        from whenabouts.core.coalescing.sliding_aggregates import WIDTH  # numba: imported when first needed
        from whenabouts.core.coalescing.sliding_kernels import LEAST, SPACE, TOP

        self.group, self.values, self._equivalence = tuple(group), tuple(values), equivalence
        self.eager = eager
        self.needs = needs = AggregateNeeds() if needs is None else needs
        plain = {name: schema.field(name).remove_metadata() for name in (*group, *values)}
        # 0.0 and -0.0 are the same group but are shown differently: float groups are stored with every tuple.
        shown = [name for name in group if pa.types.is_floating(plain[name].type)]
        self.groups = GroupIds(pa.schema([plain[name] for name in group]))
        self._rows = RowPool(pa.schema([plain[name] for name in (*shown, *values)]))
        self._space = np.full(SPACE, -1, np.int64)
        self._space[TOP] = 0
        self.state = np.zeros((0, WIDTH), np.int64)
        self._least = LEAST
        self._owners = np.zeros(64, np.int64)
        self.times, self._data, self._high, self._low, self._ordered = (
            np.zeros(64 * LEAST * wanted, np.int64) for wanted in (1, 1, needs.extremes, needs.extremes, needs.median)
        )
        self.numbers = np.zeros(64 * LEAST * numbered, np.int64)
        self.linked, self.passes = np.zeros(64 * LEAST, bool), np.ones(64 * LEAST, bool)
        self._held = np.zeros(2, np.int64)  # tuples, and links between them
        self.last_instant: Cacheable | None = None

    def __len__(self) -> int:
        return int(self._held[0])

    @property
    def coalesced(self) -> int:
        """How many tuples extend their predecessor."""
        return int(self._held[1])

    @property
    def first_us(self) -> int:
        """The least time of all tuples. O(groups)."""
        begins = self.spans()[1][0]
        return int(self.times[begins].min(initial=_ALL))

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        arrays = [self.times, self._data, self.numbers, *self.queues, self.linked, self.passes, self._owners]
        of_join = 0 if self.last_instant is None else self.last_instant.nbytes
        of_groups = self.state.nbytes + 200 * len(self.groups)
        return sum(array.nbytes for array in arrays) + self._rows.nbytes + of_groups + of_join

    @property
    def queues(self) -> tuple[IntArray, IntArray, IntArray]:
        """What `coalescing.sliding_aggregates` maintains in addition to the tuples."""
        return self._high, self._low, self._ordered

    def append(
        self, new: TemporalTuples, linked: BoolArray | None = None, numbers: IntArray | None = None
    ) -> tuple[BoolArray, int]:
        """Append tuples that are later than all tuples held; returns which extend their predecessor, and comparisons.

        `linked`: which do, if that is known; `numbers`: their numbers in the stream. O(new tuples and their groups).
        """
        from whenabouts.core.coalescing.sliding_kernels import append

        if not len(new):
            return np.zeros(0, bool), 0
        size = np.diff(new.starts)
        held = np.flatnonzero(size)
        ids = self._ids_of(new, held)
        starts, size = new.starts[held], size[held]
        if linked is None and not self.eager:
            linked = np.zeros(len(new), bool)
        added = self._continuation(new, starts, ids, linked)
        data = self._put(added)
        self._make_room(ids, size)
        names = [*self.group, *self.values]
        passes = np.ones(len(new), bool)
        if self.needs.where is not None:
            passes = self.needs.passing(pa.table(new.taken(None, names), names=names))
        append(
            self.state, self.times, self._data, self.numbers, self.linked, self.passes, ids,
            starts, size, new.times, data, _NOTHING if numbers is None else numbers, added.linked,
            passes,
        )  # fmt: skip
        self._held[0] += len(new)
        self._held[1] += np.count_nonzero(added.linked)
        return added.linked, added.compared

    def compare(self) -> int:
        """Compare all tuples with their predecessors again; returns the number of comparisons. O(tuples)."""
        _, (begins, ends) = self.spans()
        indices = _concatenated(begins, ends)
        later = np.ones(len(indices), bool)
        later[np.cumsum(ends - begins)[:-1]] = False
        later[:1] = False
        later = np.flatnonzero(later)
        rows = self._rows.table(self._data[indices]).select(self.values)
        found = neighbours_linked(rows, self._equivalence, later - 1, later)
        self.linked[indices[later]] = found
        self._held[1] = int(found.sum())
        return len(later)

    def drop_before(self, us: int) -> None:
        """Drop tuples before a time, and groups that are then empty. O(groups + tuples dropped)."""
        self._drop(self.times, us, _ALL)

    def drop_below(self, number: int) -> None:
        """Drop tuples with lower numbers, and groups that are then empty. O(groups + tuples dropped)."""
        self._drop(self.numbers, number, _ALL)

    def drop_all_but(self, most: int) -> None:
        """Drop all but the last `most` tuples of each group. O(groups + tuples dropped)."""
        self._drop(self.times, -_ALL, most)

    def _drop(self, keys: IntArray, least: int, most: int) -> None:
        from whenabouts.core.coalescing.sliding_aggregates import BEGIN, END, leave_before
        from whenabouts.core.coalescing.sliding_kernels import drop_before, first_kept

        ids = self.groups.ids
        kept_from = np.empty(len(ids), np.int64)
        first_kept(self.state, keys, ids, least, most, kept_from)
        tuples = self.times, self.linked, self.passes
        leave_before(self.state, *tuples, *self.queues, ids, kept_from, self.needs.extremes, self.needs.median)
        freed, dropped = np.empty(len(self), np.int64), np.zeros(2, np.int64)
        count, empty = drop_before(
            self._space, self.state, self.times, self._data, self.linked, ids, kept_from, freed, dropped
        )
        self._rows.free(freed[:count])
        self._held -= dropped
        if empty:
            self.groups.drop(ids[self.state[ids, BEGIN] == self.state[ids, END]])

    def spans(self) -> tuple[IntArray, tuple[IntArray, IntArray]]:
        """The ids of all groups, and the indices at which the tuples of each begin and end."""
        from whenabouts.core.coalescing.sliding_aggregates import BEGIN, END

        ids = self.groups.ids
        begins, ends = (np.ascontiguousarray(self.state[ids, end]) for end in (BEGIN, END))
        return ids, (begins, ends)

    def counted(self) -> tuple[pa.Table, IntArray]:
        """The group columns of all groups, and how many tuples each has had so far."""
        from whenabouts.core.coalescing.sliding_aggregates import COUNTED

        ids = self.groups.ids
        return self.groups.table(ids), self.state[ids, COUNTED]

    def count_from(self, groups: pa.Table, counts: IntArray) -> None:
        """Set how many tuples groups have had so far. All these groups have tuples in the window."""
        from whenabouts.core.coalescing.sliding_aggregates import COUNTED

        self.state[self.groups.ids_of(groups, len(counts))[0], COUNTED] = counts

    def taken(self, at: IntArray, names: Sequence[str]) -> list[pa.Array]:
        """Columns of the tuples at these indices."""
        rows = self._rows.table(self._data[at])
        found = dict(zip(rows.column_names, rows.columns, strict=True))
        missing = [name for name in names if name not in found]
        if missing:
            groups = self.groups.table(self._owners[at // self._least])
            found |= {name: groups.column(name) for name in missing}
        return [one_chunk(found[name]) for name in names]

    def owner(self, at: IntArray) -> IntArray:
        """The group ids of the tuples at these indices."""
        return np.asarray(self._owners[at // self._least])

    def rows_of(self, ids: IntArray, us: IntArray) -> pa.Table:
        """The group and value columns of the tuples of groups at given times. O(these log tuples)."""
        from whenabouts.core.coalescing.sliding_kernels import indices_at

        indices = np.empty(len(us), np.int64)
        indices_at(self.state, self.times, ids, us, indices)
        names = [*self.group, *self.values]
        return pa.table(self.taken(indices, names), names=names)

    def since(self, us: int) -> tuple[TemporalTuples, BoolArray]:
        """The tuples at or after a time, and which of them extend another one of these. O(groups + these tuples)."""
        from whenabouts.core.coalescing.sliding_kernels import indices_from

        ids = self.groups.ids
        starts = np.empty(len(ids) + 1, np.int64)
        indices = np.empty(indices_from(self.state, self.times, ids, us, starts, _NOTHING), np.int64)
        indices_from(self.state, self.times, ids, us, starts, indices)
        names = [*self.group, *self.values]
        table = pa.table(self.taken(indices, names), names=names)
        tuples = TemporalTuples(table, np.arange(len(indices), dtype=np.int32), self.times[indices], starts)
        return tuples, self.linked[indices] & ~tuples.heads

    def _ids_of(self, new: TemporalTuples, held: IntArray) -> IntArray:
        """The ids of the groups that have tuples."""
        heads = pa.Table.from_arrays(new.taken(new.starts[held], self.group), schema=self.groups.schema)
        ids, _ = self.groups.ids_of(heads, len(held))
        most = int(ids.max(initial=-1)) + 1
        if most > len(self.state):
            more = max(most - len(self.state), len(self.state) // 2)
            self.state = np.concatenate([self.state, np.zeros((more, self.state.shape[1]), np.int64)])
        return ids

    def _continuation(
        self, new: TemporalTuples, starts: IntArray, ids: IntArray, linked: BoolArray | None
    ) -> _Continuation:
        from whenabouts.core.coalescing.sliding_aggregates import BEGIN, END

        known = self.state[ids, BEGIN] < self.state[ids, END]
        last = self._data[self.state[ids[known], END] - 1]
        names = self._rows.schema.names
        rows = pa.Table.from_arrays(new.taken(None, names), schema=self._rows.schema)
        if linked is None:
            found = links_to_predecessors(
                self._rows.table(last).select(self.values), rows.select(self.values), starts, starts[known],
                self._equivalence,
            )  # fmt: skip
            return _Continuation(rows, last, starts[known], found.linked, found.compared)
        return _Continuation(rows, last, starts[known], linked, 0)

    def _put(self, added: _Continuation) -> IntArray:
        """The slot in the row pool of each new tuple's values: its own, or that of its predecessor."""
        if self._equivalence.needs_all_values or not self.eager:
            return self._rows.put(added.rows)
        from whenabouts.core.arrays.gather import positions
        from whenabouts.core.coalescing.sliding_kernels import share_slots

        size, held = added.rows.num_rows, len(added.last)
        own = ~added.linked
        if any(pa.types.is_floating(field.type) for field in added.rows.schema):  # others that are equal look alike
            both = pa.concat_tables([self._rows.table(added.last), added.rows])
            later = np.flatnonzero(added.linked)
            earlier = predecessors(held, size, added.continued)[later]
            own[later] = ~same_bits(both, earlier, held + later)
        data, at = np.empty(size, np.int64), np.empty(size + 1, np.int32)
        at = at[: positions(own, at)]
        rows = [take_rows(column, at) for column in added.rows.columns]
        slots = self._rows.put(pa.Table.from_arrays(rows, schema=self._rows.schema))
        share_slots(own, slots, added.continued, added.last, data)
        return data

    def _make_room(self, ids: IntArray, more: IntArray) -> None:
        from whenabouts.core.coalescing.sliding_kernels import make_room

        done = 0
        while True:
            done = make_room(
                self._space, self.state, self._owners, self.times, self._data, self.numbers, self.linked, self.passes,
                *self.queues, ids, more, done,
            )  # fmt: skip
            if done == len(ids):
                return
            (
                self.times, self._data, self.numbers, self._high, self._low, self._ordered, self.linked, self.passes,
                self._owners,
            ) = (
                _doubled(array)
                for array in (
                    self.times, self._data, self.numbers, *self.queues, self.linked, self.passes, self._owners,
                )
            )  # fmt: skip

    def _check(self) -> None:
        """Raise AssertionError unless all invariants hold, recomputed from scratch. O(all)."""
        from whenabouts.core.coalescing.sliding_aggregates import BASE, BEGIN, END, ROOM

        ids = self.groups.ids
        held = [np.arange(*self.state[of, [BEGIN, END]]) for of in ids]
        for of, indices in zip(ids, held, strict=True):
            base, room = self.state[of, [BASE, ROOM]]
            assert len(indices), "a group without tuples"
            assert base <= indices[0] <= indices[-1] < base + room, "tuples outside of their group's block"
            assert (self.owner(indices) == of).all(), "a block has the wrong owner"
            assert (np.diff(self.times[indices]) > 0).all(), "a group is not sorted by time"
            rows = self._rows.table(self._data[indices]).select(self.values)
            later = np.arange(1, len(indices))
            extends = neighbours_linked(rows, self._equivalence, later - 1, later)
            known = self.linked[indices[1:]]  # a lazy window has not compared new tuples yet
            assert (known == extends if self.eager else known <= extends).all(), "a wrong link"
            if len(self.numbers):
                assert (np.diff(self.numbers[indices]) > 0).all(), "numbers do not increase"
            self._check_inside(self.state[of], indices)
        every = np.concatenate([*held, _NOTHING])
        assert self._held.tolist() == [len(every), sum(int(self.linked[indices[1:]].sum()) for indices in held)], (
            "the counts of tuples or links are wrong"
        )
        used = set(self._data[every].tolist())
        assert len(used) == self._rows.used, "a row of values is lost, or a free one is in use"
        assert not used & set(self._rows.free_slots.tolist()), "a row is both free and in use"

    def _check_inside(self, state: IntArray, indices: IntArray) -> None:
        """Check what aggregates maintain for one group: the runs inside its last range."""
        from whenabouts.core.coalescing.sliding_aggregates import (
            BASE,
            HEAD,
            HIGH_FROM,
            INSIDE,
            LOW_FROM,
            NEXT,
            ROOM,
            SCANNED,
            SUM,
        )

        if state[SCANNED] <= indices[0]:
            return
        heads = [at for at in range(state[NEXT], state[SCANNED]) if not self.linked[at]]
        assert (heads[-1] if heads else state[HEAD]) == state[HEAD], "the last head is wrong"
        found = [int(self.times[b] - self.times[a]) for a, b in pairwise(heads) if self.passes[a]]
        assert (len(found), sum(found)) == (state[INSIDE], state[SUM]), "the count or sum of runs inside is wrong"
        if self.needs.median:
            assert self._ordered[state[BASE] : state[BASE] + len(found)].tolist() == sorted(found), "not sorted"
        if self.needs.extremes and found:
            ends = [
                queue[state[BASE] + state[at] % state[ROOM]]
                for queue, at in zip(self.queues[:2], (HIGH_FROM, LOW_FROM), strict=True)
            ]
            assert ends == [max(found), min(found)], "a queue lost its greatest or least value"


def _doubled(array: NDArray[Any]) -> NDArray[Any]:
    grown = np.zeros(2 * len(array), array.dtype)
    grown[: len(array)] = array
    return grown


def _concatenated(begins: IntArray, ends: IntArray) -> IntArray:
    """The indices of all spans `[begins[i], ends[i])`, one span after the other.

    >>> _concatenated(np.array([5, 2]), np.array([7, 3])).tolist()
    [5, 6, 2]
    """
    size = ends - begins
    return np.asarray(np.arange(int(size.sum())) + np.repeat(begins - np.cumsum(size) + size, size))


class _Continuation(NamedTuple):
    """New tuples after those held.

    `rows`: their values; `last`: the slots of the values of the last tuple of each group held; `continued`: the indices
    of the new tuples that directly follow these; `linked`: which new tuples extend their predecessor; `compared`:
    comparisons made.
    """

    rows: pa.Table
    last: IntArray
    continued: IntArray
    linked: BoolArray
    compared: int

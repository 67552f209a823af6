"""The tuples of one bucket's sliding window in memory, from step to step: settled ones come, the oldest ones go.

Settled tuples come in order of time, so that each group is a stretch of arrays that grows at one end and is cut at the
other (`coalescing.sliding_kernels`). What a step costs follows the tuples that come and go, and what it gives out; a
lazy window compares all of its tuples at each look beside. The window stands in for the kept tuples of the state
(`coalescing.window_log`), of which it is made where a process has none (`state.window_cache`). Which of them an extent
holds: `coalescing.sliding_ranges`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from whenabouts.core.arrays.group_ids import GroupNumbers
from whenabouts.core.arrays.row_pool import ValueRows
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.coalescing.equivalence import Equivalence, neighbours_linked, same_bits
from whenabouts.core.coalescing.tuples import TemporalTuples, links_behind
from whenabouts.core.expressions.tree import Expression, holds
from whenabouts.core.runtime.event_reader import PREFIX
from whenabouts.core.state.window_cache import InMemory

_NOTHING = np.zeros(0, np.int64)
_ALL = 2**62
"""More tuples than there are, and later than all times."""


@dataclass(frozen=True)
class Keeps:
    """What a window keeps beside its tuples for aggregates of durations: what tells greatest and least ones, what
    tells medians, and which tuples pass a filter."""

    extremes: bool = False
    median: bool = False
    where: pc.Expression | Expression | None = None

    def same(self, other: Keeps) -> bool:
        """Whether both keep the same."""
        one, another = self.where, other.where
        if isinstance(one, pc.Expression) and isinstance(another, pc.Expression):
            same = bool(one.equals(another))
        else:
            same = type(one) is type(another) and one == another
        return same and (self.extremes, self.median) == (other.extremes, other.median)

    def passing(self, tuples: pa.Table) -> BoolArray:
        """Which tuples pass the filter, by their group and value columns."""
        if self.where is None:
            return np.ones(tuples.num_rows, bool)
        if isinstance(self.where, Expression):
            return holds(self.where, tuples)
        place = PREFIX + "place"
        found = np.zeros(tuples.num_rows, bool)
        passed = tuples.append_column(place, pa.array(np.arange(len(found)))).filter(self.where)
        found[passed.column(place).to_numpy()] = True
        return found


class MovingWindow:
    """Tuples of groups, those of a group side by side in `times`, with gaps between groups.

    `linked[i]`: tuple i goes on tuple i - 1; `passes[i]`: it passes the filter of `keeps`. `numbers[i]`: which tuple of
    the stream it is, in order of (time, group) and from 1, where the window is `numbered` (else there are none). Where
    equal values make a run its tuples share a row of values, as far as they look the same. `eager`: tuples are compared
    as they come, once; else by `compare`, and each has its own row of values. `last_instant`: what a join leaves to the
    next step.
    """

    def __init__(
        self,
        schema: pa.Schema,
        group: Sequence[str],
        values: Sequence[str],
        equivalence: Equivalence,
        keeps: Keeps | None = None,
        *,
        eager: bool = True,
        numbered: bool = False,
    ) -> None:
        from whenabouts.core.coalescing.sliding_aggregates import WIDTH  # numba: imported when first needed
        from whenabouts.core.coalescing.sliding_kernels import LEAST, SPACE, TOP

        self.group, self.values, self._equivalence = tuple(group), tuple(values), equivalence
        self.eager = eager
        self.keeps = keeps = Keeps() if keeps is None else keeps
        plain = {name: schema.field(name).remove_metadata() for name in (*group, *values)}
        # Groups of 0.0 and -0.0 are one and look different: then each tuple has a look of its own.
        looks = [name for name in group if pa.types.is_floating(plain[name].type)]
        self.groups = GroupNumbers(pa.schema([plain[name] for name in group]))
        self._rows = ValueRows(pa.schema([plain[name] for name in (*looks, *values)]))
        self._space = np.full(SPACE, -1, np.int64)
        self._space[TOP] = 0
        self.state = np.zeros((0, WIDTH), np.int64)
        self._least = LEAST
        self._owners = np.zeros(64, np.int64)
        self.times, self._data, self._high, self._low, self._ordered = (
            np.zeros(64 * LEAST * wanted, np.int64) for wanted in (1, 1, keeps.extremes, keeps.extremes, keeps.median)
        )
        self.numbers = np.zeros(64 * LEAST * numbered, np.int64)
        self.linked, self.passes = np.zeros(64 * LEAST, bool), np.ones(64 * LEAST, bool)
        self._held = np.zeros(2, np.int64)  # tuples, and links among them
        self.last_instant: InMemory | None = None

    def __len__(self) -> int:
        return int(self._held[0])

    @property
    def coalesced(self) -> int:
        """Tuples that go on the one before them."""
        return int(self._held[1])

    @property
    def first_us(self) -> int:
        """The first time of all tuples. O(groups)."""
        begins = self.stretches()[1][0]
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
        """What `coalescing.sliding_aggregates` keeps beside the tuples."""
        return self._high, self._low, self._ordered

    def append(
        self, new: TemporalTuples, linked: BoolArray | None = None, numbers: IntArray | None = None
    ) -> tuple[BoolArray, int]:
        """Take in tuples that come behind all that are here: which go on the one before, and comparisons made.

        `linked`: which of them go on the ones before them, where it is known; `numbers`: theirs in the stream. O(tuples
        and groups that come).
        """
        from whenabouts.core.coalescing.sliding_kernels import append

        if not len(new):
            return np.zeros(0, bool), 0
        held = np.flatnonzero(np.diff(new.starts))
        which = self._numbers(new, held)
        starts, size = new.starts[held], np.diff(new.starts)[held]
        if linked is None and not self.eager:
            linked = np.zeros(len(new), bool)
        behind = self._behind(new, starts, which, linked)
        data = self._put(behind, starts)
        self._make_room(which, size)
        names = [*self.group, *self.values]
        passes = np.ones(len(new), bool)
        if self.keeps.where is not None:
            passes = self.keeps.passing(pa.table(new.taken(np.arange(len(new)), names), names=names))
        append(
            self.state, self.times, self._data, self.numbers, self.linked, self.passes, which,
            np.append(starts, len(new)), new.times, data, _NOTHING if numbers is None else numbers, behind.linked,
            passes,
        )  # fmt: skip
        self._held += len(new), int(behind.linked.sum())
        return behind.linked, behind.compared

    def compare(self) -> int:
        """Find out anew which tuples go on the one before them; the comparisons that it took. O(tuples)."""
        _, (begins, ends) = self.stretches()
        places = _side_by_side(begins, ends)
        later = np.ones(len(places), bool)
        later[np.cumsum(ends - begins)[:-1]] = False
        later[:1] = False
        later = np.flatnonzero(later)
        rows = self._rows.table(self._data[places]).select(self.values)
        found = neighbours_linked(rows, self._equivalence, later - 1, later)
        self.linked[places[later]] = found
        self._held[1] = int(found.sum())
        return len(later)

    def drop_before(self, us: int) -> None:
        """Drop tuples before a time, and groups of which none is left. O(groups + tuples that go)."""
        self._drop(self.times, us, _ALL)

    def drop_below(self, number: int) -> None:
        """Drop tuples of lower numbers, and groups of which none is left. O(groups + tuples that go)."""
        self._drop(self.numbers, number, _ALL)

    def drop_but(self, most: int) -> None:
        """Drop all but the last tuples of each group. O(groups + tuples that go)."""
        self._drop(self.times, -_ALL, most)

    def _drop(self, keys: IntArray, least: int, most: int) -> None:
        from whenabouts.core.coalescing.sliding_aggregates import BEGIN, END, leave_before
        from whenabouts.core.coalescing.sliding_kernels import drop_before, places_that_stay

        which = self.groups.numbers
        stays = np.empty(len(which), np.int64)
        places_that_stay(self.state, keys, which, least, most, stays)
        if self.keeps.extremes or self.keeps.median:
            tuples = self.times, self.linked, self.passes
            leave_before(self.state, *tuples, *self.queues, which, stays, self.keeps.extremes, self.keeps.median)
        freed, dropped = np.empty(len(self), np.int64), np.zeros(2, np.int64)
        count, empty = drop_before(
            self._space, self.state, self.times, self._data, self.linked, which, stays, freed, dropped
        )
        self._rows.free(freed[:count])
        self._held -= dropped
        if empty:
            self.groups.drop(which[self.state[which, BEGIN] == self.state[which, END]])

    def stretches(self) -> tuple[IntArray, tuple[IntArray, IntArray]]:
        """The numbers of all groups, and where the tuples of each begin and end."""
        from whenabouts.core.coalescing.sliding_aggregates import BEGIN, END

        which = self.groups.numbers
        begins, ends = (np.ascontiguousarray(self.state[which, end]) for end in (BEGIN, END))
        return which, (begins, ends)

    def counted(self) -> tuple[pa.Table, IntArray]:
        """The group columns of all groups, and how many tuples each has had."""
        from whenabouts.core.coalescing.sliding_aggregates import COUNTED

        which = self.groups.numbers
        return self.groups.table(which), self.state[which, COUNTED]

    def count_from(self, groups: pa.Table, counts: IntArray) -> None:
        """So many tuples have groups had by now, all of which are here."""
        from whenabouts.core.coalescing.sliding_aggregates import COUNTED

        self.state[self.groups.numbers_of(groups, len(counts))[0], COUNTED] = counts

    def taken(self, at: IntArray, names: Sequence[str]) -> list[pa.Array]:
        """The columns of the tuples at places."""
        rows = self._rows.table(self._data[at]).combine_chunks()
        found = {name: rows.column(name).chunk(0) if len(at) else rows.column(name) for name in rows.column_names}
        missing = [name for name in names if name not in found]
        if missing:
            groups = self.groups.table(self._owners[at // self._least])
            found |= {name: groups.column(name) for name in missing}
        columns = [found[name] for name in names]
        return [c if isinstance(c, pa.Array) else pa.concat_arrays(c.chunks or [pa.array([], c.type)]) for c in columns]

    def owner(self, at: IntArray) -> IntArray:
        """The numbers of the groups of the tuples at places."""
        return np.asarray(self._owners[at // self._least])

    def rows_of(self, numbers: IntArray, us: IntArray) -> pa.Table:
        """The group and value columns of the tuples of groups at times. O(these log tuples)."""
        from whenabouts.core.coalescing.sliding_kernels import places_at

        places = np.empty(len(us), np.int64)
        places_at(self.state, self.times, numbers, us, places)
        names = [*self.group, *self.values]
        return pa.table(self.taken(places, names), names=names)

    def since(self, us: int) -> tuple[TemporalTuples, BoolArray]:
        """The tuples at or after a time, and which of them go on one of these. O(groups + these tuples)."""
        from whenabouts.core.coalescing.sliding_kernels import places_from

        which = self.groups.numbers
        starts = np.empty(len(which) + 1, np.int64)
        places = np.empty(places_from(self.state, self.times, which, us, starts, _NOTHING), np.int64)
        places_from(self.state, self.times, which, us, starts, places)
        names = [*self.group, *self.values]
        table = pa.table(self.taken(places, names), names=names)
        tuples = TemporalTuples(table, np.arange(len(places), dtype=np.int32), self.times[places], starts)
        return tuples, self.linked[places] & ~tuples.heads

    def _numbers(self, new: TemporalTuples, held: IntArray) -> IntArray:
        """The numbers of groups of tuples."""
        heads = pa.Table.from_arrays(new.taken(new.starts[held], self.group), schema=self.groups.schema)
        numbers, _ = self.groups.numbers_of(heads, len(held))
        most = int(numbers.max(initial=-1)) + 1
        if most > len(self.state):
            more = max(most - len(self.state), len(self.state) // 2)
            self.state = np.concatenate([self.state, np.zeros((more, self.state.shape[1]), np.int64)])
        return numbers

    def _behind(self, new: TemporalTuples, starts: IntArray, numbers: IntArray, linked: BoolArray | None) -> _Behind:
        from whenabouts.core.coalescing.sliding_aggregates import BEGIN, END

        known = self.state[numbers, BEGIN] < self.state[numbers, END]
        last = self._data[self.state[numbers[known], END] - 1]
        names = self._rows.schema.names
        rows = pa.Table.from_arrays(new.taken(np.arange(len(new)), names), schema=self._rows.schema)
        if linked is None:
            found = links_behind(
                self._rows.table(last).select(self.values), rows.select(self.values), new.heads, starts[known],
                self._equivalence,
            )  # fmt: skip
            return _Behind(rows, last, starts[known], found.linked, found.compared)
        return _Behind(rows, last, starts[known], linked, 0)

    def _put(self, behind: _Behind, starts: IntArray) -> IntArray:
        """The row of values of each new tuple: one of its own, or that of the tuple before it."""
        if self._equivalence.needs_all_values or not self.eager:
            return self._rows.put(behind.rows)
        size, held = behind.rows.num_rows, len(behind.last)
        both = pa.concat_tables([self._rows.table(behind.last), behind.rows])
        earlier = np.arange(held - 1, held + size - 1)
        earlier[behind.goes_back] = np.arange(held)
        later = np.flatnonzero(behind.linked)
        own = np.ones(size, bool)
        own[later] = ~same_bits(both, earlier[later], held + later)
        row = np.empty(size, np.int64)
        row[own] = self._rows.put(behind.rows.filter(pa.array(own)))
        joins = ~own[behind.goes_back]
        row[behind.goes_back[joins]] = behind.last[joins]
        own[behind.goes_back[joins]] = True
        data: IntArray = row[np.maximum.accumulate(np.where(own, np.arange(size), 0))]
        return data

    def _make_room(self, numbers: IntArray, more: IntArray) -> None:
        from whenabouts.core.coalescing.sliding_kernels import make_room

        done = 0
        while True:
            done = make_room(
                self._space, self.state, self._owners, self.times, self._data, self.numbers, self.linked, self.passes,
                *self.queues, numbers, more, done,
            )  # fmt: skip
            if done == len(numbers):
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
        """Assert every invariant, from scratch. O(all)."""
        from whenabouts.core.coalescing.sliding_aggregates import BASE, BEGIN, END, ROOM

        which = self.groups.numbers
        held = [np.arange(*self.state[of, [BEGIN, END]]) for of in which]
        for of, places in zip(which, held, strict=True):
            base, room = self.state[of, [BASE, ROOM]]
            assert len(places), "a group without tuples"
            assert base <= places[0] <= places[-1] < base + room, "tuples outside of their group's places"
            assert (self.owner(places) == of).all(), "places of another group"
            assert (np.diff(self.times[places]) > 0).all(), "a group out of order"
            rows = self._rows.table(self._data[places]).select(self.values)
            later = np.arange(1, len(places))
            goes_on = neighbours_linked(rows, self._equivalence, later - 1, later)
            known = self.linked[places[1:]]  # a lazy window has not compared new ones
            assert (known == goes_on if self.eager else known <= goes_on).all(), "a run is parted or joined wrongly"
            if len(self.numbers):
                assert (np.diff(self.numbers[places]) > 0).all(), "numbers out of order"
            self._check_inside(self.state[of], places)
        every = np.concatenate([*held, _NOTHING])
        assert self._held.tolist() == [len(every), sum(int(self.linked[places[1:]].sum()) for places in held)], (
            "tuples or links are miscounted"
        )
        used = set(self._data[every].tolist())
        assert len(used) == self._rows.used, "rows of values are lost, or free ones in use"
        assert not used & set(self._rows.free_places.tolist()), "a row is both free and in use"

    def _check_inside(self, state: IntArray, places: IntArray) -> None:
        """Of one group, what aggregates keep of the runs inside its last range."""
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

        if state[SCANNED] <= places[0]:
            return
        heads = [at for at in range(state[NEXT], state[SCANNED]) if not self.linked[at]]
        assert (heads[-1] if heads else state[HEAD]) == state[HEAD], "the last head is another one"
        found = [int(self.times[b] - self.times[a]) for a, b in pairwise(heads) if self.passes[a]]
        assert (len(found), sum(found)) == (state[INSIDE], state[SUM]), "runs inside are miscounted"
        if self.keeps.median:
            assert self._ordered[state[BASE] : state[BASE] + len(found)].tolist() == sorted(found), "out of order"
        if self.keeps.extremes and found:
            ends = [
                queue[state[BASE] + state[at] % state[ROOM]]
                for queue, at in zip(self.queues[:2], (HIGH_FROM, LOW_FROM), strict=True)
            ]
            assert ends == [max(found), min(found)], "a queue has lost its greatest or least"


def _doubled(array: NDArray[Any]) -> NDArray[Any]:
    grown = np.zeros(2 * len(array), array.dtype)
    grown[: len(array)] = array
    return grown


def _side_by_side(begins: IntArray, ends: IntArray) -> IntArray:
    """All places of stretches, one stretch after the other.

    >>> _side_by_side(np.array([5, 2]), np.array([7, 3])).tolist()
    [5, 6, 2]
    """
    size = ends - begins
    return np.asarray(np.arange(int(size.sum())) + np.repeat(begins - np.cumsum(size) + size, size))


class _Behind(NamedTuple):
    """New tuples' rows of values, the rows of the last tuples of groups that are there, and the new ones behind these;
    which new ones go on what is before them, and comparisons made."""

    rows: pa.Table
    last: IntArray
    goes_back: IntArray
    linked: BoolArray
    compared: int

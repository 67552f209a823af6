"""The tuples that open extents can contain, in memory, for arrivals in any order: what early answers are read from.

It is a copy of the rows in the state, kept from step to step (`state.window_cache`), and rebuilt from them if it is not
in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.group_ids import GroupIds
from whenabouts.core.arrays.record_batches import one_chunk
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.coalescing.early_kernels import (
    COLUMNS,
    COUNT,
    LIST,
    NO_NEXT,
    ROW,
    START,
    VALUES,
    carry_settled,
    links_at,
    runs_in_extents,
    touched_runs,
)
from whenabouts.core.coalescing.run_lists import RunLists
from whenabouts.core.coalescing.schedule import FIRST
from whenabouts.core.coalescing.settings import CoalescingSpec
from whenabouts.core.coalescing.tuples import ListTuples, TemporalTuples
from whenabouts.core.runtime.output_memory import require_room

_ALL = 2**62


class Links(NamedTuple):
    """At some times: whether the tuple there begins a run, the time of the next one, whether that one does.

    1 or 0; -1 if there is no such tuple.
    """

    here: IntArray
    next_time: IntArray
    next_head: IntArray


class Reach(NamedTuple):
    """Extents `[k * slide - reach, k * slide]` for `low <= k <= high`, or `[low, high]` if slide is 0."""

    slide: int
    reach: int
    low: int
    high: int


class _Runs(NamedTuple):
    """Runs as the kernels take them, see `touched_runs`."""

    list: IntArray
    is_first: BoolArray
    next: IntArray
    starts: IntArray
    times: IntArray
    data: IntArray


class EarlyIndex:
    """Tuples by group, in sorted lists; `carry`: by list, what of its first run came before, and is not kept."""

    def __init__(self, schema: pa.Schema, spec: CoalescingSpec) -> None:
        self.group, self.values = spec.group, spec.values
        plain = {name: schema.field(name).remove_metadata() for name in (*spec.group, *spec.values)}
        # 0.0 and -0.0 are the same group but are shown differently: float groups are stored with every tuple.
        self._shown = [name for name in spec.group if pa.types.is_floating(plain[name].type)]
        self.groups = GroupIds(pa.schema([plain[name] for name in spec.group]))
        self.stored = [*self._shown, *spec.values]
        self.runs = RunLists(pa.schema([plain[name] for name in self.stored]), spec.values, spec.equivalence)
        self.carry = np.zeros((0, 3), np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.runs.nbytes + self.carry.nbytes + 200 * len(self.groups)

    def listed(self, tuples: TemporalTuples) -> ListTuples:
        """Tuples with the lists of their groups; new groups get one. O(tuples)."""
        held = np.flatnonzero(np.diff(tuples.starts))
        heads = pa.Table.from_arrays(tuples.taken(tuples.starts[held], self.group), schema=self.groups.schema)
        ids, are_new = self.groups.ids_of(heads, len(held))
        most = int(ids.max(initial=-1)) + 1
        self.runs.lists.need(most)
        self.runs.lists.reset(ids[are_new])
        if most > len(self.carry):
            more = np.zeros((max(most - len(self.carry), len(self.carry) // 2), 3), np.int64)
            self.carry = np.concatenate([self.carry, more])
        lists = np.repeat(ids, np.diff(tuples.starts)[held])
        values = tuples.taken(np.arange(len(tuples)), self.stored)
        return ListTuples(lists, tuples.times, pa.Table.from_arrays(values, schema=self.runs.values.schema))

    def held(self, new: ListTuples) -> IntArray:
        """The rows of values of the tuples that are held at these times; -1 if there is none."""
        found = np.full(len(new.times), -1)
        within = np.flatnonzero(new.times <= self.runs.lists.latest(new.lists))
        found[within] = self.runs.lists.look_up(new.lists[within], new.times[within])[1]
        return found

    def is_inside(self, new: ListTuples) -> BoolArray:
        """Which times are not later than all that their lists have had."""
        return np.asarray(new.times <= self.runs.lists.latest(new.lists))

    def add(self, new: ListTuples) -> int:
        """Add tuples; none of these times is held. Returns how many of those in order extend a run.

        O(1) amortised at the end of a list, else O(log n + the run).
        """
        inside = self.is_inside(new)
        if inside.any():
            self.runs.insert(new.at(np.flatnonzero(inside)))
            new = new.at(np.flatnonzero(~inside))
        return self.runs.append(new)

    def begin_with(self, settled: TemporalTuples, weight: IntArray) -> None:
        """Start with the two ends of the last run of each group; `weight`: how many tuples each represents."""
        new, lasts = self.listed(settled), settled.starts[1:][np.diff(settled.starts) > 0] - 1
        self.runs.append(new.at(lasts))
        before = np.setdiff1d(np.arange(len(settled)), lasts)
        rows = self.runs.put(new.values.take(pa.array(before)))
        of = new.lists[before]
        self.carry[of, START], self.carry[of, ROW], self.carry[of, COUNT] = new.times[before], rows, weight[before]

    def links(self, new: ListTuples) -> Links:
        """How the tuples at some times, and the ones after, are linked now. O(log n) each."""
        lists, size = self.runs.lists, len(new.times)
        found = Links(*(np.empty(size, np.int64) for _ in range(3)))
        links_at(*lists.arrays, new.lists, new.times, lists.heads, *found)
        return found

    def touched(self, new: ListTuples) -> _Runs:
        """The runs that contain a tuple at, right before or right after one of these times."""
        lists, size = self.runs.lists, 3 * len(new.times)
        most = int(lists.sizes[new.lists[np.append(True, np.diff(new.lists) != 0)[: len(new.lists)]]].sum())
        size = min(size, most)
        of, following, starts = (np.empty(length, np.int64) for length in (size, size, size + 1))
        times, data = np.empty(most, np.int64), np.empty(most, np.int64)
        is_first = np.empty(size, bool)
        runs, count = touched_runs(
            *lists.arrays, lists.heads, new.lists, new.times, of, is_first, following, starts, times, data
        )
        return _Runs(of[:runs], is_first[:runs], following[:runs], starts[: runs + 1], times[:count], data[:count])

    def all_runs(self) -> _Runs:
        """All runs. O(tuples)."""
        of = self.groups.ids
        times, data, heads, starts = self.runs.lists.read(of)
        at = np.flatnonzero(heads)
        is_first = np.zeros(len(times), bool)
        is_first[starts[:-1][np.diff(starts) > 0]] = True
        following = np.append(times, NO_NEXT)[np.append(at[1:], len(times))]
        following[np.append(is_first[at[1:]], True)] = NO_NEXT
        list_of = np.repeat(of, np.diff(starts))
        return _Runs(list_of[at], is_first[at], following, np.append(at, len(times)), times, data)

    def within(self, runs: _Runs, reach: Reach) -> IntArray:
        """Coalesced tuples: runs cut to extents. One row each, with the columns `LIST` to `LATEST`."""
        given = *runs, self.carry, *reach
        size = runs_in_extents(*given, np.empty((0, len(COLUMNS)), np.int64)) if len(runs.list) else 0
        require_room(size, len(COLUMNS) * 8, "coalesced rows of all extents")
        rows = np.empty((size, len(COLUMNS)), np.int64)
        if size:
            runs_in_extents(*given, rows)
        return rows

    def tuples(self) -> tuple[TemporalTuples, IntArray, IntArray, BoolArray]:
        """All tuples with their group columns, their lists, rows of values, and which begin a run. O(tuples)."""
        of = self.groups.ids
        times, data, heads, starts = self.runs.lists.read(of)
        number = np.repeat(np.arange(len(of), dtype=np.int32), np.diff(starts))
        return TemporalTuples(self.groups.table(of), number, times, starts), of[number], data, heads

    def columns(self, rows: IntArray) -> list[pa.Array]:
        """The group and value columns of coalesced tuples."""
        values, groups = self.runs.values.table(rows[:, VALUES]), self.groups.table(rows[:, LIST])
        return [
            one_chunk((values if name in self.stored else groups).column(name)) for name in (*self.group, *self.values)
        ]

    @property
    def first_us(self) -> int:
        """The least time of all tuples. O(groups)."""
        of = self.groups.ids
        of = of[self.runs.lists.sizes[of] > 0]
        return int(self.runs.lists.firsts(of)[0].min(initial=_ALL))

    def times_before(self, us: int) -> IntArray:
        """The times before an instant. O(tuples)."""
        found = self.runs.lists.read(self.groups.ids)[0]
        return found[found < us]

    def counts_from(self, us: int) -> IntArray:
        """How many tuples each group of `groups.ids` has at or after an instant. O(tuples)."""
        found, _, _, starts = self.runs.lists.read(self.groups.ids)
        later = np.append(0, np.cumsum(found >= us))
        return np.asarray(later[starts[1:]] - later[starts[:-1]])

    def drop_before(self, us: int) -> int:
        """Drop tuples before a time, then groups without tuples; returns how many leave a run that continues."""
        return self._drop(self.groups.ids, us, np.full(len(self.groups), _ALL))

    def drop_all_but(self, most: IntArray) -> int:
        """Drop all but the last tuples of each group, `most[i]` of the i-th of `groups.ids`. As `drop_before`."""
        return self._drop(self.groups.ids, FIRST, most)

    def carry_before(self, us: int) -> None:
        """Keep only the last tuple before a time of each group, and the beginning of its run. O(groups + these)."""
        of, lists = self.groups.ids, self.runs.lists
        passed, dropped = np.empty(len(of), np.int64), np.empty(int(lists.sizes[of].sum()) + len(of), np.int64)
        count = carry_settled(*lists.arrays, lists.heads, of, us, self.carry, passed, dropped)
        lists.drop_first(of, FIRST, lists.sizes[of] - passed)
        self.runs.release(dropped[:count])

    def _drop(self, of: IntArray, before_us: int, most: Sequence[int] | IntArray) -> int:
        lists = self.runs.lists
        runs = lists.heads_held
        dropped = lists.drop_first(of, before_us, np.asarray(most))
        self.runs.release(dropped)
        self.groups.drop(of[lists.sizes[of] == 0])
        return len(dropped) - (runs - lists.heads_held)

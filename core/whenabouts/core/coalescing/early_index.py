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
from whenabouts.core.arrays.record_batches import one_chunk, take_table
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
    ends_of_runs,
    runs_in_extents,
    touched_runs,
)
from whenabouts.core.coalescing.early_window_kernels import runs_in_window, times_from_the_end
from whenabouts.core.coalescing.run_lists import RunLists
from whenabouts.core.coalescing.schedule import FIRST
from whenabouts.core.coalescing.settings import CoalescingSpec
from whenabouts.core.coalescing.sorted_list_kernels import HEADS
from whenabouts.core.coalescing.sorted_lists import Neighbours
from whenabouts.core.coalescing.tuples import ListTuples, TemporalTuples
from whenabouts.core.coalescing.window_ranges import Window, ranges_at
from whenabouts.core.runtime.output_memory import require_room
from whenabouts.core.runtime.protocol import END_OF_TIME

_ALL = 2**62
_AT_ONCE = 2**18  # rows that are written without counting them first


class Links(NamedTuple):
    """At some times: whether the tuple there begins a run, the time of the next one, whether that one does.

    1 or 0; -1 if there is no such tuple.
    """

    here: IntArray
    next_time: IntArray
    next_head: IntArray


class Reach(NamedTuple):
    """Extents `[k * slide - reach, k * slide]` for `low <= k <= high`."""

    slide: int
    reach: int
    low: int
    high: int


class _Runs(NamedTuple):
    """Runs as the kernels take them, see `touched_runs`."""

    list: IntArray
    next: IntArray
    starts: IntArray
    times: IntArray
    data: IntArray


class Moves(NamedTuple):
    """Lists, which ascend, and for each the time from which a window has its tuples: before a step at `since`, after it
    at `up_to` or earlier."""

    lists: IntArray
    since: IntArray
    up_to: IntArray


class Beginning(NamedTuple):
    """From when on a window has the tuples of all lists; of some lists, not the tuple at this very time."""

    us: int
    without: IntArray

    def of_lists(self, of: IntArray) -> IntArray:
        """From when on it has the tuples of these lists."""
        return self.us + np.isin(of, self.without)


class Held(NamedTuple):
    """Tuples of lists at some moment, list by list: times, rows of values, where the run of each one ends.

    List `lists[i]` is `[starts[i], starts[i + 1])`.
    """

    lists: IntArray
    times: IntArray
    data: IntArray
    ends: IntArray
    starts: IntArray


class EarlyIndex:
    """Tuples by group, in sorted lists; `carry`: by list, what of its first run came before, and is not kept.

    `waiting`: how many tuples are not settled; `beginning`: where a window of the last rows of all groups begins, if
    that is known.
    """

    def __init__(self, schema: pa.Schema, spec: CoalescingSpec) -> None:
        self.group, self.values = spec.group, spec.values
        plain = {name: schema.field(name).remove_metadata() for name in (*spec.group, *spec.values)}
        # 0.0 and -0.0 are the same group but are shown differently: float groups are stored with every tuple.
        self._shown = [name for name in spec.group if pa.types.is_floating(plain[name].type)]
        self.groups = GroupIds(pa.schema([plain[name] for name in spec.group]))
        self.stored = [*self._shown, *spec.values]
        self.runs = RunLists(pa.schema([plain[name] for name in self.stored]), spec.values, spec.equivalence)
        self.carry = np.zeros((0, 3), np.int64)
        self.waiting = 0
        self.beginning: Beginning | None = None
        self._shared = np.zeros(0, np.int64)

    @property
    def lists_in_order(self) -> IntArray:
        """The lists of all groups, ascending."""
        return np.sort(self.groups.ids)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.runs.nbytes + self.carry.nbytes + self._shared.nbytes + 200 * len(self.groups)

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

    def share(self, when: IntArray) -> None:
        """Note times at which several rows of a group arrived, of which all but one are in no index."""
        self._shared = np.union1d(self._shared, when) if len(when) else self._shared

    def take_shared(self, before_us: int) -> IntArray:
        """Remove and return the times of `share` before an instant."""
        count = int(np.searchsorted(self._shared, before_us))
        found, self._shared = self._shared[:count], self._shared[count:]
        return found

    @property
    def size(self) -> int:
        """How many tuples it has. O(groups)."""
        return int(self.runs.lists.sizes[self.groups.ids].sum())

    def count_between(self, least_us: int, before_us: int) -> tuple[int, int | None]:
        """How many tuples have `least_us <= time < before_us`, and the least later time. O(groups log n)."""
        sums, later = self.runs.lists.count_between(self.groups.ids, least_us, before_us)
        return int(sums[-1]), None if later == NO_NEXT else later

    def tuples_between(self, least_us: int, before_us: int) -> tuple[TemporalTuples, BoolArray]:
        """The tuples that `count_between` counts with group and values, and which extend one of them.
        O(groups log n + these)."""
        of = self.groups.ids
        times, rows, heads, starts, _ = self.runs.lists.read_between(of, least_us, before_us)
        lists = np.repeat(of, np.diff(starts))
        own = np.append(True, (np.diff(rows) != 0) | (np.diff(lists) != 0))[: len(rows)]  # a run shares its values
        table = pa.Table.from_arrays(self._columns(lists[own], rows[own]), [*self.group, *self.values])
        found = TemporalTuples(table, (np.cumsum(own) - 1).astype(np.int32), times, starts)
        return found, ~heads & ~found.heads

    def is_inside(self, new: ListTuples) -> BoolArray:
        """Which times are not later than all that their lists have had."""
        return np.asarray(new.times <= self.runs.lists.latest(new.lists))

    def add(self, new: ListTuples) -> int:
        """Add tuples to an index that has none at or after their times. Returns how many of them extend a run."""
        return self.runs.append(new)

    def begin_with(self, settled: TemporalTuples, weight: IntArray) -> None:
        """Start with the two ends of the last run of each group; `weight`: how many tuples each represents."""
        new, lasts = self.listed(settled), settled.starts[1:][np.diff(settled.starts) > 0] - 1
        self.runs.append(new.at(lasts))
        before = np.setdiff1d(np.arange(len(settled)), lasts)
        rows = self.runs.put(take_table(new.values, before))
        of = new.lists[before]
        self.carry[of, START], self.carry[of, ROW], self.carry[of, COUNT] = new.times[before], rows, weight[before]

    def links(self, at: Neighbours) -> Links:
        """How the tuples at some places, and the ones after, are linked now."""
        lists = self.runs.lists
        return Links(
            np.where(at.here >= 0, lists.heads[at.here], -1),
            np.where(at.after >= 0, lists.times[at.after], NO_NEXT),
            np.where(at.after >= 0, lists.heads[at.after], -1),
        )

    def touched(self, of: IntArray, when: IntArray) -> _Runs:
        """The runs that contain a tuple at, right before or right after one of these times, which ascend by list."""
        return self._runs(of[np.append(True, np.diff(of) != 0)[: len(of)]], of, when, 3 * len(when), FIRST - 1)

    def in_window(self, lows: IntArray, moves: Moves, of_wanted: IntArray, wanted: IntArray) -> IntArray:
        """The coalesced tuples, as `within`, in a window that begins at `lows` in the lists of `moves`: those that
        change where it moves, and those that contain a tuple at, right before or right after one of the wanted times,
        which ascend by list."""
        lists = self.runs.lists
        out = np.empty((int(lists.lists[moves.lists, HEADS].sum()), len(COLUMNS)), np.int64)
        return out[
            : runs_in_window(
                *lists.arrays,
                lists.heads,
                moves.lists,
                lows,
                moves.since,
                moves.up_to,
                of_wanted,
                wanted,
                self.carry,
                out,
            )
        ]

    def runs_from(self, us: int) -> _Runs:
        """All runs from the one before a time on, by list. O(groups log n + their tuples)."""
        of = self.lists_in_order
        return self._runs(of, of, np.full(len(of), us), _ALL, NO_NEXT)

    def _runs(self, held: IntArray, of: IntArray, when: IntArray, most: int, up_to: int) -> _Runs:
        lists = self.runs.lists
        size = int(lists.sizes[held].sum())
        most = min(size, most)
        run_list, following, starts = (np.empty(length, np.int64) for length in (most, most, most + 1))
        times, data = np.empty(size, np.int64), np.empty(size, np.int64)
        runs, count = touched_runs(
            *lists.arrays, lists.heads, of, when, up_to, run_list, following, starts, times, data
        )
        return _Runs(run_list[:runs], following[:runs], starts[: runs + 1], times[:count], data[:count])

    def within(self, runs: _Runs, reach: Reach) -> IntArray:
        """Coalesced tuples: runs cut to extents. One row each, with the columns `LIST` to `LATEST`, in their order."""
        most = 0
        if len(runs.list):
            first, last = runs.times[runs.starts[:-1]], runs.times[runs.starts[1:] - 1]
            latest = np.minimum(reach.high, (last + reach.reach) // reach.slide)
            earliest = np.maximum(reach.low, -(-first // reach.slide))
            some = latest >= earliest  # before the first watermark no extent is open: their difference would overflow
            most = int((latest[some] - earliest[some] + 1).sum())
        rows = np.empty((min(most, _AT_ONCE), len(COLUMNS)), np.int64)
        given = *runs, *reach
        size = runs_in_extents(*given, rows)
        if size > len(rows):
            require_room(size, len(COLUMNS) * 8, "coalesced rows of all extents")
            rows = np.empty((size, len(COLUMNS)), np.int64)
            runs_in_extents(*given, rows)
        return rows[:size]

    def held(self, of: IntArray | None = None) -> Held:
        """The tuples of lists, by default of all. O(tuples)."""
        of = self.groups.ids if of is None else of
        times, data, heads, starts = self.runs.lists.read(of)
        ends = np.empty(len(times), np.int64)
        ends_of_runs(heads, ends)
        return Held(of, times, data, ends, starts)

    def ranges(self, held: Held, window: Window, instants: IntArray, most: int) -> tuple[IntArray, IntArray]:
        """The tuples of each list that a window contains at ascending instants; none at others, up to `most` in all.

        O(tuples + lists * instants), and sorting times if the window counts the rows of all groups.
        """
        number, groups = np.empty(0, np.int32), pa.table({})
        if window.over_all_groups:
            number = np.repeat(np.arange(len(held.lists), dtype=np.int32), np.diff(held.starts))
            groups = self.groups.table(held.lists)
        found = ranges_at(TemporalTuples(groups, number, held.times, held.starts), window, instants, self.group)
        wide = np.zeros((2, len(held.lists), most), np.int64)
        wide[0, :, : len(instants)] = found.lows.reshape(-1, len(instants)) if len(instants) else 0
        wide[1, :, : len(instants)] = found.highs.reshape(-1, len(instants)) if len(instants) else 0
        return wide[0].ravel(), wide[1].ravel()

    def columns(self, rows: IntArray) -> list[pa.Array]:
        """The group and value columns of coalesced tuples."""
        return self._columns(rows[:, LIST], rows[:, VALUES])

    def _columns(self, lists: IntArray, rows: IntArray) -> list[pa.Array]:
        values, groups = self.runs.values.table(rows), self.groups.table(lists)
        return [
            one_chunk((values if name in self.stored else groups).column(name)) for name in (*self.group, *self.values)
        ]

    @property
    def first_us(self) -> int:
        """The least time of all tuples. O(groups)."""
        of = self.groups.ids
        of = of[self.runs.lists.sizes[of] > 0]
        return int(self.runs.lists.firsts(of)[0].min(initial=_ALL))

    def times_from_the_end(self, of: IntArray, most: IntArray) -> IntArray:
        """The times of the tuples of lists with `most - 1` later ones, see the kernel `times_from_the_end`."""
        found = np.empty(len(of), np.int64)
        times_from_the_end(*self.runs.lists.arrays, of, most, found)
        return found

    def last_before(self, us: int, rows: int) -> int | None:
        """The time of the last but so many tuples before an instant, None if there are no more. O(tuples)."""
        of, lists = self.groups.ids, self.runs.lists
        found = lists.read_between(of, FIRST, us)[0]
        most = len(found) - rows
        return int(np.partition(found, most)[most]) if most > 0 else None

    def counts_from(self, us: int) -> IntArray:
        """How many tuples each group of `groups.ids` has at or after an instant. O(groups log n)."""
        return np.diff(self.runs.lists.count_between(self.groups.ids, us, END_OF_TIME)[0])

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

    def last_runs(self, before_us: int) -> tuple[TemporalTuples, BoolArray, IntArray]:
        """The two ends of the last run before a time of each group, after `carry_before`, as `begin_with` takes them.

        Also which of them begin a run. O(groups).
        """
        of = self.groups.ids
        of = of[self.runs.lists.sizes[of] > 0]
        times, rows = self.runs.lists.firsts(of)
        settled = times < before_us
        of, times, rows = of[settled], times[settled], rows[settled]
        carried = self.carry[of, COUNT] > 0
        starts = np.append(0, np.cumsum(1 + carried))
        number = np.repeat(np.arange(len(of), dtype=np.int32), 1 + carried)
        times, rows, weight = times[number], rows[number], np.ones(len(number), np.int64)
        heads = starts[:-1][carried]
        times[heads], rows[heads], weight[heads] = self.carry[of[carried]].T
        begins = np.zeros(len(number), bool)
        begins[starts[:-1]] = True
        table = pa.Table.from_arrays(self._columns(of[number], rows), [*self.group, *self.values])
        return TemporalTuples(table, np.arange(len(number), dtype=np.int32), times, starts), begins, weight

    def _drop(self, of: IntArray, before_us: int, most: Sequence[int] | IntArray) -> int:
        lists = self.runs.lists
        runs = lists.heads_held
        dropped = lists.drop_first(of, before_us, np.asarray(most))
        self.runs.release(dropped)
        self.groups.drop(of[lists.sizes[of] == 0])
        return len(dropped) - (runs - lists.heads_held)

"""A window's extent in memory: tuples come in any order, the oldest ones go, and a scan gives the coalesced tuples.

Al-Kateb 2010, section 4, with its slips mended (`tests/core/test_coalescing_paper.py` shows them). Each group has one
sorted list of timestamps (`window_extent.sorted_lists`), cut into runs where a tuple does not go on the one before it.
The eager scheme decides that when a tuple comes in, and where equal values make a run it keeps one row of values for
all of it; the lazy scheme keeps every tuple's values and compares them at each scan. Both give the same after any
sequence of arrivals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.arrays.group_ids import GroupNumbers
from whenabouts.core.arrays.row_pool import ValueRows
from whenabouts.core.arrays.row_ranks import ranks_of_rows
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.coalescing.equivalence import Equivalence, Places, Predicate, neighbours_linked, same_bits
from whenabouts.core.coalescing.operator import Coalesce, coalescing_reader
from whenabouts.core.coalescing.output import RunOutput, time_array
from whenabouts.core.coalescing.tuples import TemporalTuples, groups_of, links_behind, order_of, without_rivals
from whenabouts.core.coalescing.window_spec import Instant, instant_us
from whenabouts.core.durations import Duration
from whenabouts.core.errors import Code
from whenabouts.core.runtime.event_reader import times
from whenabouts.core.runtime.key_types import one_of_equals
from whenabouts.core.runtime.keys import Keys
from whenabouts.core.runtime.protocol import NO_WATERMARK, Rejected
from whenabouts.core.times.time_specs import TimeSpec
from whenabouts.core.times.time_units import ENOUGH_VALUES

_FIRST = NO_WATERMARK + 1
_ANY_NUMBER = 2**62


class Update(NamedTuple):
    """What became of rows: all of them = those `taken` + those `replayed` + those `rejected`.

    Where a new row takes the place of one that was there, the old one is rejected and the number taken is the same.
    """

    taken: int
    replayed: int
    rejected: list[Rejected]


class _Tuples(NamedTuple):
    """Tuples list by list in order of time: their lists, times and values (row i of `values` is tuple i)."""

    lists: IntArray
    times: IntArray
    values: pa.Table

    def at(self, places: IntArray) -> _Tuples:
        """Some of them."""
        return _Tuples(self.lists[places], self.times[places], self.values.take(pa.array(places)))


class WindowExtent:
    """The extent of one window over tuples of a schema; the options are those of `Coalesce`.

    The window ends at the greatest time there has been, or that `advance` told. Rejected are rows without a time
    (WA-1003) or group (WA-1021), rows that are older than the window when they come (WA-1010), and of different rows of
    one group and instant all but the one of the smallest values in the order of columns (WA-1022). What is given in one
    call comes at once. Columns other than time, groups and values are left aside. Of groups that are equal, as 0.0 and
    -0.0 are, 0.0 is shown: what is held does not depend on how rows were cut into calls.

    Cost of an update for each tuple: O(1) amortised at the end of its group and to expire, O(log n + its run) out of
    order. A call costs about half a millisecond beside: give it blocks. Raises QueryError and InputError as `Coalesce`.

    >>> extent = WindowExtent(pa.schema({"t": pa.int64(), "v": pa.int64()}), time="t", values="v", window="4us")
    >>> extent.update(pa.table({"t": [10, 12, 11], "v": [7, 7, 7]})).taken, extent.scan().to_pylist()
    (3, [{'v': 7, 'valid_from': 10, 'valid_to': 12, 'n': 3}])
    >>> extent.update(pa.table({"t": [15, 3], "v": [8, 8]})).taken, extent.scan().to_pylist()[0], extent.stored
    (1, {'v': 7, 'valid_from': 11, 'valid_to': 15, 'n': 2}, 2)
    """

    def __init__(
        self,
        schema: pa.Schema,
        *,
        time: str | TimeSpec,
        group: str | Sequence[str] = (),
        values: str | Sequence[str],
        window: Duration | None = None,
        rows: int | None = None,
        per_group: bool = False,
        equivalence: str | Equivalence | Predicate = "equal",
        scheme: str = "auto",
        closed: str = "both",
    ) -> None:
        from whenabouts.core.window_extent.sorted_lists import SortedLists  # numba: imported when first needed

        query = Coalesce(
            time=time, group=group, values=values, window=window, rows=rows, per_group=per_group,
            equivalence=equivalence, scheme=scheme, closed=closed,
        )  # fmt: skip
        self._how = query.coalescing
        self._window = self._how.extents.window
        self._reader = coalescing_reader(0, "events", schema, query.point, self._how)
        self._own = tuple(n for n in schema.names if n in (query.point.t, *self._how.group, *self._how.values))
        self._value_columns = [name for name in self._own if name in self._how.values]
        self._output = RunOutput(self._reader.schema, self._how, self._reader.schema.field(query.point.t).type)
        plain = self._reader.schema
        self._time = plain.field(query.point.t)
        self._groups = GroupNumbers(pa.schema([plain.field(name).remove_metadata() for name in self._how.group]))
        self._keys = Keys(self._how.group, [plain], query.inputs)
        self._values = ValueRows(pa.schema([plain.field(name).remove_metadata() for name in self._how.values]))
        # Where equal values make a run, all of it has one row of values; `_uses` counts the tuples of a row.
        self._shares = self._how.eager and not self._how.equivalence.needs_all_values
        self._uses = np.zeros(0, np.int64)
        self._lists = SortedLists()
        # Which tuples lie in a window of rows of the whole stream is told by the order of all of them.
        self._all = SortedLists() if self._window.over_all_groups else None
        if self._all is not None:
            self._all.need(1)
        self._unswept = 0
        self.latest_us = NO_WATERMARK
        self.metrics: Counter[str] = Counter()

    def __len__(self) -> int:
        """Tuples held. Those of groups that have fallen silent may be held a little longer than the window says."""
        return int(self._lists.sizes.sum())

    @property
    def stored(self) -> int:
        """What is held, in the form of the scheme: runs (eager), or tuples (lazy)."""
        return self._lists.heads_held if self._how.eager else len(self)

    @property
    def value_rows(self) -> int:
        """Rows of values held."""
        return self._values.used

    @property
    def nbytes(self) -> int:
        """Bytes of what is held: times, directories, rows of values."""
        of_all = 0 if self._all is None else self._all.nbytes
        return self._lists.nbytes + of_all + self._values.nbytes + 8 * self._values.used * self._shares

    def update(self, rows: pa.Table | pa.RecordBatch) -> Update:
        """Take rows in, in whatever order they come; see the class."""
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        events = [self._reader.read(batch) for batch in table.combine_chunks().to_batches()]
        self._reader.units.warn(ENOUGH_VALUES)
        rejected = [bad for event in events for bad in event.rejected]
        block = pa.Table.from_batches([event.block for event in events], self._reader.block_schema).combine_chunks()
        new, replayed = self._in_time(block, rejected)
        self.latest_us = max(self.latest_us, int(new.times.max(initial=NO_WATERMARK)))
        behind = new.times <= self._lists.latest(new.lists)
        taken, touched = len(new.times), new.lists
        if behind.any():
            there, repeated = self._insert(new.at(np.flatnonzero(behind)), rejected)
            taken, replayed = taken - there, replayed + repeated
            new = new.at(np.flatnonzero(~behind))
        self._append(new)
        self._unswept += len(touched)
        self._expire(np.unique(touched) if 2 * self._unswept < len(self._groups) else None)
        counts = {metrics.PROCESSED: taken, metrics.REPLAYED: replayed}
        self.metrics.update(counts | {metrics.REJECTED: sum(bad.rows.num_rows for bad in rejected)})
        return Update(taken, replayed, rejected)

    def advance(self, at: Instant) -> None:
        """Time has come to `at`; what is then older than the window goes. O(groups + what goes)."""
        self.latest_us = max(self.latest_us, instant_us(at))
        self._expire(None)

    def scan(self) -> pa.Table:
        """The coalesced extent: group and value columns of each run's first tuple, `valid_from`, `valid_to`, `n`.

        Eager: O(tuples), no value is compared. Lazy: O(tuples), all are compared.
        """
        self._expire(None)
        of = self._groups.numbers
        if self._how.eager:
            number, row, start, end, n = self._lists.read_runs(of)
        else:
            number, row, start, end, n = self._runs_of_tuples(of)
        columns = [*self._groups.table(number).columns, *self._values.table(row).columns]
        periods = [time_array(start, self._time.type), time_array(end, self._time.type)]
        return pa.Table.from_arrays([*columns, *periods, pa.array(n)], schema=self._output.schema)

    def _in_time(self, block: pa.Table, rejected: list[Rejected]) -> tuple[_Tuples, int]:
        """Tuples of a block, one for each group and instant and none that is too late, and how many were repeated."""
        order = order_of(times(block)[0], groups_of(self._keys, block))
        tuples, replayed = TemporalTuples(block, order.at, order.times, order.starts), 0
        if order.twins:
            tuples, rivals = without_rivals(tuples, self._value_columns)
            self._reject(Code.DUPLICATE_TIMESTAMP, block, rivals.losers, rejected)
            replayed = rivals.replayed
        held = np.flatnonzero(np.diff(tuples.starts))
        shown = [one_of_equals(column) for column in tuples.taken(tuples.starts[held], self._how.group)]
        heads = pa.Table.from_arrays(shown, schema=self._groups.schema)
        numbers, are_new = self._groups.numbers_of(heads, len(held))
        self._lists.need(int(numbers.max(initial=-1)) + 1)
        self._lists.forget(numbers[are_new])
        lists = np.repeat(numbers, np.diff(tuples.starts)[held])
        late = self._too_late(lists, tuples.times)
        at = tuples.rows
        if late.any():
            self._reject(Code.LATE, block, at[late], rejected)
            lists, at, when = lists[~late], at[~late], tuples.times[~late]
        else:
            when = tuples.times
        return _Tuples(lists, when, block.select(self._how.values).take(pa.array(at))), replayed

    def _too_late(self, lists: IntArray, when: IntArray) -> BoolArray:
        """Which tuples lie before the window as it was before they came."""
        late, window = np.zeros(len(when), bool), self._window
        if window.width_us is not None and self.latest_us != NO_WATERMARK:
            late = when < self.latest_us - window.reach_us
        elif self._all is not None and self._all.sizes[0] == window.rows:
            (first,), (number,) = self._all.firsts(np.zeros(1, np.int64))
            ranks = self._groups.ranks
            late = (when < first) | ((when == first) & (ranks[lists] < ranks[number]))
        elif window.per_group:
            full = np.flatnonzero(self._lists.sizes[lists] == window.rows)
            late[full] = when[full] < self._lists.firsts(lists[full])[0]
        return late

    def _insert(self, new: _Tuples, rejected: list[Rejected]) -> tuple[int, int]:
        """Take in tuples that are not behind the last of their list.

        Returns how many met one of their instant, and how many of these only repeat it.
        """
        here = self._lists.look_up(new.lists, new.times)[1]
        there = np.flatnonzero(here >= 0)
        both = pa.concat_tables([self._values.table(here[there]), new.values.take(pa.array(there))])
        ranks = ranks_of_rows(both.select(self._value_columns).combine_chunks())
        old, own = np.split(ranks, 2)
        losers, winners = there[own > old], there[own < old]
        self._reject_tuples(new.at(losers), rejected)
        self._reject_tuples(new.at(winners)._replace(values=self._values.table(here[winners])), rejected)
        fresh = np.flatnonzero(here < 0)
        rows = self._put(new.values.take(pa.array(np.concatenate([fresh, winners]))))
        self._lists.insert(new.lists[fresh], new.times[fresh], rows[: len(fresh)], np.full(len(fresh), True))
        self._enter(new.at(fresh))
        self._lists.replace(new.lists[winners], new.times[winners], rows[len(fresh) :])
        self._release(here[winners])
        if self._how.eager:
            changed = np.sort(np.concatenate([fresh, winners]))
            self._join_neighbours(new.lists[changed], new.times[changed])
        return len(there), int((own == old).sum())

    def _join_neighbours(self, lists: IntArray, when: IntArray) -> None:
        """Decide again which of these tuples, and of those after them, go on the ones before them."""
        before, here, after = self._lists.look_up(lists, when)
        with_before, with_after = np.flatnonzero(before >= 0), np.flatnonzero(after >= 0)
        n = len(here)
        rows = self._values.table(np.concatenate([before, here, after]))  # place -1 holds anything
        earlier = np.concatenate([with_before, n + with_after])
        later = np.concatenate([n + with_before, 2 * n + with_after])

        def of_each(known: BoolArray) -> tuple[BoolArray, BoolArray]:
            on, back = np.zeros(n, bool), np.zeros(n, bool)
            on[with_before], back[with_after] = np.split(known, [len(with_before)])
            return on, back

        goes_on, goes_before = of_each(neighbours_linked(rows, self._how.equivalence, earlier, later))
        same = same_bits(rows, earlier, later) if self._shares else np.zeros(len(later), bool)
        same_before, same_after = of_each(same)
        self.metrics[metrics.COMPARED] += len(later)
        freed = self._lists.join_neighbours(lists, when, goes_on, goes_before, same_before, same_after, self._uses)
        self._values.free(freed)

    def _append(self, new: _Tuples) -> None:
        """Take in tuples that lie behind the last ones of their lists."""
        size = len(new.times)
        if not size:
            return
        if not self._how.eager:
            self._lists.insert(new.lists, new.times, self._values.put(new.values), np.ones(size, bool))
            self._enter(new)
            return
        begins = np.append(True, np.diff(new.lists) != 0)
        firsts = np.flatnonzero(begins)
        goes_back = firsts[self._lists.sizes[new.lists[firsts]] > 0]  # on tuples that are there already
        last = self._lists.last_data(new.lists[goes_back])
        behind = links_behind(self._values.table(last), new.values, begins, goes_back, self._how.equivalence)
        rows, earlier, goes_on, compared = behind
        self.metrics[metrics.COMPARED] += compared
        data = self._rows_of(new, rows, earlier, goes_on, goes_back, last)
        self._lists.insert(new.lists, new.times, data, ~goes_on)
        self._enter(new)

    def _rows_of(
        self, new: _Tuples, rows: pa.Table, earlier: IntArray, goes_on: BoolArray, goes_back: IntArray, last: IntArray
    ) -> IntArray:
        """The row of values of each tuple: one of its own, or where a run shares one that of the tuple before it."""
        if not self._shares:
            return self._values.put(new.values)
        shared = np.flatnonzero(goes_on)
        goes_on = goes_on.copy()
        goes_on[shared] = same_bits(rows, earlier[shared], len(last) + shared)
        own = np.flatnonzero(~goes_on)
        row = np.empty(len(goes_on), np.int64)
        row[own] = self._put(new.values.take(pa.array(own)), uses=0)
        known = ~goes_on
        back = goes_on[goes_back]
        row[goes_back[back]], known[goes_back[back]] = last[back], True
        data: IntArray = row[np.maximum.accumulate(np.where(known, np.arange(len(row)), 0))]
        self._lists.count_uses(self._uses, data, 1)
        return data

    def _put(self, values: pa.Table, uses: int = 1) -> IntArray:
        at = self._values.put(values)
        if self._shares:
            if self._values.room > len(self._uses):
                self._uses = np.concatenate([self._uses, np.zeros(self._values.room - len(self._uses), np.int64)])
            self._uses[at] = uses
        return at

    def _release(self, data: IntArray) -> None:
        self._values.free(self._lists.count_uses(self._uses, data, -1) if self._shares else data)

    def _enter(self, new: _Tuples) -> None:
        """Number new tuples among those of all groups."""
        if self._all is not None and len(new.times):
            order = np.argsort(new.times, kind="stable")
            numbers = new.lists[order]
            self._all.insert(
                np.zeros(len(order), np.int64), new.times[order], numbers, np.ones(len(order), bool), self._groups.ranks
            )

    def _expire(self, touched: IntArray | None) -> None:
        """Drop what is no longer in the window, of some lists or (None) of all, and then the groups that are empty."""
        window = self._window
        of = self._groups.numbers if touched is None else touched
        if window.width_us is not None and self.latest_us != NO_WATERMARK:
            cut = max(self.latest_us - window.reach_us, _FIRST)
            self._release(self._lists.drop_first(of, cut, np.full(len(of), _ANY_NUMBER)))
        elif self._all is not None and window.rows is not None:
            none = np.zeros(1, np.int64)
            gone = np.bincount(self._all.drop_first(none, _FIRST, none + window.rows), minlength=1)
            of = np.flatnonzero(gone)
            self._release(self._lists.drop_first(of, _FIRST, self._lists.sizes[of] - gone[of]))
        elif window.per_group and window.rows is not None:
            self._release(self._lists.drop_first(of, _FIRST, np.full(len(of), window.rows)))
        if touched is None:
            self._unswept = 0
            numbers = self._groups.numbers
            self._groups.drop(numbers[self._lists.sizes[numbers] == 0])

    def _runs_of_tuples(self, of: IntArray) -> tuple[IntArray, ...]:
        """What the lazy scheme finds out at each scan: list, row, start, end and number of the runs."""
        from whenabouts.core.coalescing.kernels import runs_of_ranges

        when, row, _, starts = self._lists.read(of)
        goes_on, begins = np.zeros(len(when), bool), np.zeros(len(when), bool)
        begins[starts[:-1]] = True
        later = np.flatnonzero(~begins)
        goes_on[later] = neighbours_linked(self._values.table(row), self._how.equivalence, later - 1, later)
        self.metrics[metrics.COMPARED] += len(later)
        place, first, end, n = (np.empty(len(when), np.int64) for _ in range(4))
        found = runs_of_ranges(when, goes_on, starts[:-1], starts[1:], place, first, end, n) if len(when) else 0
        first = first[:found]
        return of[place[:found]], row[first], when[first], end[:found], n[:found]

    def _reject(self, code: Code, block: pa.Table, rows: Places, rejected: list[Rejected]) -> None:
        raw = [self._reader.raw(batch) for batch in block.take(pa.array(rows)).to_batches()]
        rejected += [Rejected(0, code, batch) for batch in raw if batch.num_rows]

    def _reject_tuples(self, tuples: _Tuples, rejected: list[Rejected]) -> None:
        """Reject tuples of which only time, group and values are known."""
        if len(tuples.times):
            known = {self._time.name: time_array(tuples.times, self._time.type)}
            for columns in (self._groups.table(tuples.lists), tuples.values):
                known |= dict(zip(columns.column_names, columns.columns, strict=True))
            rows = pa.table({name: known[name] for name in self._own})
            rejected += [Rejected(0, Code.DUPLICATE_TIMESTAMP, batch) for batch in rows.combine_chunks().to_batches()]

    def _check(self) -> None:
        """Assert every invariant, from scratch. O(all)."""
        self._lists._check()
        of = self._groups.numbers
        when, data, heads, starts = self._lists.read(of)
        assert len(when) == len(self), "tuples in lists of no group"
        assert (np.diff(when)[np.diff(np.repeat(np.arange(len(of)), np.diff(starts))) == 0] > 0).all(), (
            "an instant twice"
        )
        used, uses = np.unique(data, return_counts=True)
        assert len(used) == self._values.used, "rows of values are lost, or free ones in use"
        assert not set(used.tolist()) & set(self._values.free_places.tolist()), "a row is both free and in use"
        begins = np.zeros(len(when), bool)
        begins[starts[:-1][np.diff(starts) > 0]] = True
        if self._how.eager:
            later = np.flatnonzero(~begins)
            rows = self._values.table(data)
            goes_on = neighbours_linked(rows, self._how.equivalence, later - 1, later)
            assert (heads[later] != goes_on).all(), "a run is parted or joined wrongly"
            assert heads[begins].all(), "a list begins inside a run"
        if self._shares:
            assert (self._uses[used] == uses).all(), "uses are miscounted"
            shared = same_bits(rows, later - 1, later) & goes_on
            assert (data[later[shared]] == data[later[shared] - 1]).all(), "a run has two rows of values"
        elif len(uses):
            assert uses.max() == 1, "tuples share a row"
        if self._window.per_group:
            assert (np.diff(starts) <= self._window.rows).all(), "too many tuples of a group"
        if self._all is not None:
            self._all._check()
            both = self._all.read(np.zeros(1, np.int64))
            assert len(when) <= (self._window.rows or 0), "too many tuples"
            pairs = zip(when.tolist(), np.repeat(of, np.diff(starts)).tolist(), strict=True)
            ranks = self._groups.ranks
            assert sorted(pairs, key=lambda pair: (pair[0], ranks[pair[1]])) == list(
                zip(both[0].tolist(), both[1].tolist(), strict=True)
            ), "the order of all tuples is another one"

"""A window's extent in memory: tuples arrive in any order, the oldest ones expire, a scan gives the coalesced tuples.

Al-Kateb 2010, section 4, with its slips corrected (`tests/core/test_coalescing_paper.py` shows them). Each group has
one sorted list of timestamps (`coalescing.sorted_lists`); a run begins where a tuple does not extend its
predecessor. The eager scheme decides that when a tuple arrives, and under the equivalence `equal` it keeps one row of
values per run; the lazy scheme keeps the values of every tuple and compares them in each scan. Both give the same
result after any sequence of arrivals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.arrays.group_ids import GroupIds
from whenabouts.core.arrays.plain_types import plain_table
from whenabouts.core.arrays.row_ranks import ranks_of_rows
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.coalescing.columns import time_array
from whenabouts.core.coalescing.equivalence import Equivalence, Indices, Predicate, neighbours_linked, same_bits
from whenabouts.core.coalescing.output import RunOutput
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.coalescing.reader import coalescing_reader
from whenabouts.core.coalescing.tuples import (
    ListTuples,
    TemporalTuples,
    groups_of,
    order_of,
    without_duplicates,
)
from whenabouts.core.coalescing.window_spec import Instant, instant_us
from whenabouts.core.durations import Duration
from whenabouts.core.errors import Code, InputError
from whenabouts.core.frames.kinds import arrow_table
from whenabouts.core.runtime.blocks import times
from whenabouts.core.runtime.key_types import one_of_equals
from whenabouts.core.runtime.keys import Keys
from whenabouts.core.runtime.option_checks import columns_shown, refused
from whenabouts.core.runtime.protocol import NO_WATERMARK, Rejected
from whenabouts.core.times.time_specs import TimeSpec
from whenabouts.core.times.time_units import ENOUGH_VALUES

_FIRST = NO_WATERMARK + 1
_ANY_NUMBER = 2**62


class Update(NamedTuple):
    """The outcome of an update: its rows = `taken` + `replayed` + `rejected`.

    If a new row replaces an older one of its instant, the older one is rejected, and `taken` is not changed by it.
    """

    taken: int
    replayed: int
    rejected: list[Rejected]


class WindowExtent:
    """The extent of one window over tuples of a schema; the options are those of `Coalesce`.

    The window ends at the greatest time seen so far, or given to `advance`. Rejected are rows without a time (WA-1003)
    or group (WA-1021), rows that are older than the window when they arrive (WA-1010), and, of several different rows
    of one group and instant, all but the smallest in column order (WA-1022). The rows of one call arrive together.
    Columns other than time, groups and values are ignored. Equal groups such as 0.0 and -0.0 are shown as 0.0, so that
    the contents do not depend on how rows were divided into calls.

    Cost of an update per tuple: O(1) amortised at the end of its group, and to expire; O(log n + its run) out of order.
    A call also costs about half a millisecond: pass blocks of rows. Raises QueryError and InputError as `Coalesce`.

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
        from whenabouts.core.coalescing.run_lists import RunLists  # numba: imported when first needed
        from whenabouts.core.coalescing.sorted_lists import SortedLists

        if not isinstance(schema, pa.Schema):
            raise refused("schema", schema, "give the schema of the rows, as table.schema")
        query = Coalesce(
            time=time, group=group, values=values, window=window, rows=rows, per_group=per_group,
            equivalence=equivalence, scheme=scheme, closed=closed,
        )  # fmt: skip
        self._spec = query.coalescing
        self._window = self._spec.extents.window
        self._reader = coalescing_reader(0, "events", schema, query.point, self._spec)
        self._own = tuple(n for n in schema.names if n in (query.point.t, *self._spec.group, *self._spec.values))
        self._value_columns = [name for name in self._own if name in self._spec.values]
        self._output = RunOutput(self._reader.schema, self._spec, self._reader.schema.field(query.point.t).type)
        plain = self._reader.schema
        self._time = plain.field(query.point.t)
        self._groups = GroupIds(pa.schema([plain.field(name).remove_metadata() for name in self._spec.group]))
        self._keys = Keys(self._spec.group, [plain], query.inputs)
        values_schema = pa.schema([plain.field(name).remove_metadata() for name in self._spec.values])
        self._runs = RunLists(values_schema, self._spec.values, self._spec.equivalence, eager=self._spec.eager)
        self._lists, self._values = self._runs.lists, self._runs.values
        # A window over the last rows of the whole stream needs the order of all tuples.
        self._all = SortedLists() if self._window.over_all_groups else None
        if self._all is not None:
            self._all.need(1)
        self._unswept = 0
        self.latest_us = NO_WATERMARK
        self.metrics: Counter[str] = Counter()

    def __len__(self) -> int:
        """Tuples held. Those of silent groups may be held a little longer than the window requires."""
        return int(self._lists.sizes.sum())

    @property
    def stored(self) -> int:
        """The number of runs held (eager), or of tuples (lazy)."""
        return self._lists.heads_held if self._spec.eager else len(self)

    @property
    def value_rows(self) -> int:
        """The number of value rows held."""
        return self._values.used

    @property
    def nbytes(self) -> int:
        """Bytes held: times, directories, rows of values."""
        of_all = 0 if self._all is None else self._all.nbytes
        return self._runs.nbytes + of_all

    def update(self, rows: Any) -> Update:
        """Add the rows of a dataframe, in any order; see the class."""
        table = self._with_its_types(arrow_table("window extent's", rows))
        events = [self._reader.read(batch) for batch in table.combine_chunks().to_batches()]
        self._reader.units.warn(ENOUGH_VALUES)
        rejected = [bad for event in events for bad in event.rejected]
        block = pa.Table.from_batches([event.block for event in events], self._reader.block_schema).combine_chunks()
        new, replayed = self._in_time(block, rejected)
        self.latest_us = max(self.latest_us, int(new.times.max(initial=NO_WATERMARK)))
        out_of_order = new.times <= self._lists.latest(new.lists)
        taken, touched = len(new.times), new.lists
        if out_of_order.any():
            existing, repeated = self._insert(new.at(np.flatnonzero(out_of_order)), rejected)
            taken, replayed = taken - existing, replayed + repeated
            new = new.at(np.flatnonzero(~out_of_order))
        self._runs.append(new)
        self._add_to_stream(new)
        self._unswept += len(touched)
        self._expire(np.unique(touched) if 2 * self._unswept < len(self._groups) else None)
        counts = {metrics.PROCESSED: taken, metrics.REPLAYED: replayed, metrics.COMPARED: self._runs.comparisons}
        self._runs.comparisons = 0
        self.metrics.update(counts | {metrics.REJECTED: sum(bad.rows.num_rows for bad in rejected)})
        return Update(taken, replayed, rejected)

    def _with_its_types(self, table: pa.Table) -> pa.Table:
        """The columns of the extent's schema, with its types."""
        for field in self._reader.schema:
            if field.name not in table.column_names:
                problem = f"the window extent's input has no column {field.name!r}"
                raise InputError(Code.MISSING_COLUMN, problem, columns_shown(table.schema))
        try:
            return plain_table(table.select(self._reader.schema.names)).cast(self._reader.schema)
        except (pa.ArrowException, ValueError) as error:
            raise InputError(
                Code.WRONG_TYPE,
                f"rows of the window extent's input do not have its types: {error}",
                f"it was made for {', '.join(f'{field.name} {field.type}' for field in self._reader.schema)}",
            ) from error

    def advance(self, at: Instant) -> None:
        """Advance time to `at`; older tuples expire. O(groups + expired tuples)."""
        self.latest_us = max(self.latest_us, instant_us(at))
        self._expire(None)

    def scan(self) -> pa.Table:
        """The coalesced extent: group and value columns of each run's first tuple, `valid_from`, `valid_to`, `n`.

        O(tuples). Eager compares no values, lazy compares all.
        """
        self._expire(None)
        of = self._groups.ids
        if self._spec.eager:
            number, row, start, end, n = self._lists.read_runs(of)
        else:
            number, row, start, end, n = self._runs_of_tuples(of)
        columns = [*self._groups.table(number).columns, *self._values.table(row).columns]
        periods = [time_array(start, self._time.type), time_array(end, self._time.type)]
        return pa.Table.from_arrays([*columns, *periods, pa.array(n)], schema=self._output.schema)

    def _in_time(self, block: pa.Table, rejected: list[Rejected]) -> tuple[ListTuples, int]:
        """The tuples of a block that are not late, one for each group and instant, and how many were repeats."""
        order = order_of(times(block)[0], groups_of(self._keys, block))
        tuples, replayed = TemporalTuples(block, order.at, order.times, order.starts), 0
        if order.has_ties:
            tuples, duplicates = without_duplicates(tuples, self._value_columns)
            self._reject(Code.DUPLICATE_TIMESTAMP, block, duplicates.rejected, rejected)
            replayed = duplicates.replayed
        held = np.flatnonzero(np.diff(tuples.starts))
        shown = [one_of_equals(column) for column in tuples.taken(tuples.starts[held], self._spec.group)]
        heads = pa.Table.from_arrays(shown, schema=self._groups.schema)
        ids, are_new = self._groups.ids_of(heads, len(held))
        self._lists.need(int(ids.max(initial=-1)) + 1)
        self._lists.reset(ids[are_new])
        lists = np.repeat(ids, np.diff(tuples.starts)[held])
        late = self._is_late(lists, tuples.times)
        at = tuples.rows
        if late.any():
            self._reject(Code.LATE, block, at[late], rejected)
            lists, at, when = lists[~late], at[~late], tuples.times[~late]
        else:
            when = tuples.times
        return ListTuples(lists, when, block.select(self._spec.values).take(pa.array(at))), replayed

    def _is_late(self, lists: IntArray, when: IntArray) -> BoolArray:
        """Which tuples are older than the window was before they arrived."""
        late, window = np.zeros(len(when), bool), self._window
        if window.width_us is not None and self.latest_us != NO_WATERMARK:
            late = when < self.latest_us - window.reach_us
        elif self._all is not None and self._all.sizes[0] == window.rows:
            (first,), (group,) = self._all.firsts(np.zeros(1, np.int64))
            ranks = self._groups.ranks
            late = (when < first) | ((when == first) & (ranks[lists] < ranks[group]))
        elif window.per_group:
            full = np.flatnonzero(self._lists.sizes[lists] == window.rows)
            late[full] = when[full] < self._lists.firsts(lists[full])[0]
        return late

    def _insert(self, new: ListTuples, rejected: list[Rejected]) -> tuple[int, int]:
        """Insert tuples that are not later than the last one of their list.

        Returns how many have an instant that already has a tuple, and how many of these are repeats.
        """
        found = self._lists.neighbours(new.lists, new.times)
        existing, held = np.flatnonzero(found.here >= 0), self._lists.data[found.here]
        both = pa.concat_tables([self._values.table(held[existing]), new.values.take(pa.array(existing))])
        ranks = ranks_of_rows(both.select(self._value_columns).combine_chunks())
        old, own = np.split(ranks, 2)
        larger, smaller = existing[own > old], existing[own < old]
        self._reject_tuples(new.at(larger), rejected)
        self._reject_tuples(new.at(smaller)._replace(values=self._values.table(held[smaller])), rejected)
        added = np.flatnonzero(found.here < 0)
        self._runs.replace(new.at(smaller), found.at(smaller))
        self._runs.insert(new.at(added))
        self._add_to_stream(new.at(added))
        return len(existing), int((own == old).sum())

    def _add_to_stream(self, new: ListTuples) -> None:
        """Add new tuples to the order of all tuples, if the window needs that."""
        if self._all is not None and len(new.times):
            order = np.argsort(new.times, kind="stable")
            ids = new.lists[order]
            self._all.insert(
                np.zeros(len(order), np.int64), new.times[order], ids, np.ones(len(order), bool), self._groups.ranks
            )

    def _expire(self, touched: IntArray | None) -> None:
        """Drop tuples that left the window, from some lists or (None) from all; then also drop empty groups."""
        window = self._window
        of = self._groups.ids if touched is None else touched
        if window.width_us is not None and self.latest_us != NO_WATERMARK:
            cut = max(self.latest_us - window.reach_us, _FIRST)
            self._runs.release(self._lists.drop_first(of, cut, np.full(len(of), _ANY_NUMBER)))
        elif self._all is not None and window.rows is not None:
            only = np.zeros(1, np.int64)
            expired = np.bincount(self._all.drop_first(only, _FIRST, only + window.rows), minlength=1)
            of = np.flatnonzero(expired)
            self._runs.release(self._lists.drop_first(of, _FIRST, self._lists.sizes[of] - expired[of]))
        elif window.per_group and window.rows is not None:
            self._runs.release(self._lists.drop_first(of, _FIRST, np.full(len(of), window.rows)))
        self._runs.sweep()
        if touched is None:
            self._unswept = 0
            ids = self._groups.ids
            self._groups.drop(ids[self._lists.sizes[ids] == 0])

    def _runs_of_tuples(self, of: IntArray) -> tuple[IntArray, ...]:
        """The runs that the lazy scheme finds in a scan: list, slot of the values, start, end and tuple count."""
        from whenabouts.core.coalescing.kernels import runs_of_ranges

        when, row, _, starts = self._lists.read(of)
        extends, begins = np.zeros(len(when), bool), np.zeros(len(when), bool)
        begins[starts[:-1]] = True
        later = np.flatnonzero(~begins)
        extends[later] = neighbours_linked(self._values.table(row), self._spec.equivalence, later - 1, later)
        self.metrics[metrics.COMPARED] += len(later)
        list_of, first, end, n = (np.empty(len(when), np.int64) for _ in range(4))
        found = runs_of_ranges(when, extends, starts[:-1], starts[1:], list_of, first, end, n) if len(when) else 0
        first = first[:found]
        return of[list_of[:found]], row[first], when[first], end[:found], n[:found]

    def _reject(self, code: Code, block: pa.Table, rows: Indices, rejected: list[Rejected]) -> None:
        raw = [self._reader.raw(batch) for batch in block.take(pa.array(rows)).to_batches()]
        rejected += [Rejected(0, code, batch) for batch in raw if batch.num_rows]

    def _reject_tuples(self, tuples: ListTuples, rejected: list[Rejected]) -> None:
        """Reject tuples of which only time, group and values are held."""
        if len(tuples.times):
            known = {self._time.name: time_array(tuples.times, self._time.type)}
            for columns in (self._groups.table(tuples.lists), tuples.values):
                known |= dict(zip(columns.column_names, columns.columns, strict=True))
            rows = pa.table({name: known[name] for name in self._own})
            rejected += [Rejected(0, Code.DUPLICATE_TIMESTAMP, batch) for batch in rows.combine_chunks().to_batches()]

    def _check(self) -> None:
        """Raise AssertionError unless all invariants hold, recomputed from scratch. O(all)."""
        self._lists._check()
        of = self._groups.ids
        when, data, heads, starts = self._lists.read(of)
        assert len(when) == len(self), "a list without a group has tuples"
        assert (np.diff(when)[np.diff(np.repeat(np.arange(len(of)), np.diff(starts))) == 0] > 0).all(), (
            "a list has an instant twice"
        )
        used, uses = np.unique(data, return_counts=True)
        assert len(used) == self._values.used, "a row of values is lost, or a free one is in use"
        assert not set(used.tolist()) & set(self._values.free_slots.tolist()), "a row is both free and in use"
        begins = np.zeros(len(when), bool)
        begins[starts[:-1][np.diff(starts) > 0]] = True
        if self._spec.eager:
            later = np.flatnonzero(~begins)
            rows = self._values.table(data)
            extends = neighbours_linked(rows, self._spec.equivalence, later - 1, later)
            assert (heads[later] != extends).all(), "a wrong head"
            assert heads[begins].all(), "a list begins inside a run"
        if self._runs.shares:
            assert (self._runs.uses[used] == uses).all(), "the use counts are wrong"
            shared = same_bits(rows, later - 1, later) & extends
            assert (data[later[shared]] == data[later[shared] - 1]).all(), "a run has two rows of values"
        elif len(uses):
            assert uses.max() == 1, "tuples share a row of values"
        if self._window.per_group:
            assert (np.diff(starts) <= self._window.rows).all(), "too many tuples in a group"
        if self._all is not None:
            self._all._check()
            both = self._all.read(np.zeros(1, np.int64))
            assert len(when) <= (self._window.rows or 0), "too many tuples"
            pairs = zip(when.tolist(), np.repeat(of, np.diff(starts)).tolist(), strict=True)
            ranks = self._groups.ranks
            assert sorted(pairs, key=lambda pair: (pair[0], ranks[pair[1]])) == list(
                zip(both[0].tolist(), both[1].tolist(), strict=True)
            ), "the order of all tuples is wrong"

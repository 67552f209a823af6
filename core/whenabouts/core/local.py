"""The local engine: the operators over Arrow tables, in this process.

It is the embedded default of the command line, the engine of the doctests, and the base of differential tests. It
hosts operators as every engine does (`protocol`), over dict stores.
"""

from __future__ import annotations

import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Unpack

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core import metrics
from whenabouts.core.coalescing.operator import Coalesce, CoalesceOptions
from whenabouts.core.errors import Code, EmptyInputWarning, InputError, RejectedRowsWarning
from whenabouts.core.hosting.input_checks import check_hosting, check_input, check_inputs, check_query, check_streams
from whenabouts.core.hosting.signatures import takes_options_of
from whenabouts.core.runtime.event_reader import reject_rows, rejects_schema, times, times_cut, warn_of_digits
from whenabouts.core.runtime.option_checks import refused
from whenabouts.core.runtime.protocol import (
    END_OF_TIME,
    NO_WATERMARK,
    Arrival,
    Copied,
    FlushMode,
    Operator,
    Query,
    Rejected,
    Step,
)
from whenabouts.core.runtime.watermarks import began, watermark_of, watermark_past_idle
from whenabouts.core.state.memory_store import DictStore
from whenabouts.core.temporal_queries.aggregate import TemporalAggregate, TemporalAggregateOptions
from whenabouts.core.temporal_queries.join import TemporalJoin, TemporalJoinOptions
from whenabouts.core.timing_join.query import TimingJoin, TimingJoinOptions
from whenabouts.core.window_join.query import WindowJoin
from whenabouts.core.window_join.settings import TimesByStream, WindowJoinOptions
from whenabouts.core.wrappers.deduplication import Identifying, deduplicated
from whenabouts.core.wrappers.state_limit import StateBound, bounded

_TABLES = (pa.Table,)
_A_TABLE = "give a pyarrow Table: pa.table(columns), pa.Table.from_pandas(frame), pa.Table.from_batches(batches)"


@dataclass(slots=True)
class Outcome:
    """All that a run gave: output rows, rejected rows with their reasons, and the counts of `metrics.py`."""

    output: pa.Table
    rejects: pa.Table
    metrics: Counter[str] = field(default_factory=Counter)


@takes_options_of(TimingJoin)
def timing_join(
    left: pa.Table, right: pa.Table, *, dedupe: Identifying | None = None, **options: Unpack[TimingJoinOptions]
) -> pa.Table:
    """Pairs of a left and a right row for which `P(condition) >= confidence`, as an Arrow table.

    `how` (`inner`, `left_outer`, `right_outer`, `full_outer`, `left_semi`, `left_anti`) says what becomes of rows
    without a partner; `best` (`left`, `right`, `both`) keeps the most probable partner only: see
    `whenabouts.core.timing_join.modes`. Columns of a missing partner are null; semi and anti give the left columns
    only.

    Columns: the left ones, the right ones (`on` once; equal names get `suffixes`), and `probability` (float64) unless
    `probability=False`, which saves one kernel call per pair. Row order is not promised. Rows that cannot be used are
    warned of (`RejectedRowsWarning`) and are to be had from `rejects(pairs)`.

    Cost: sorting both sides, then O(rows + pairs). Source: ITC section 4, PTJoin section 3; `strategy` picks the
    algorithm, all give the same rows. `lateness` is taken so that a call reads the same on every engine; finite
    input needs none. `dedupe`: columns that identify a row, where sources deliver rows again (`deduplication`).

    Raises: InputError (WA-1xxx) for columns, QueryError (WA-2xxx) for options.

    >>> from whenabouts.core import Interval, within
    >>> left = pa.table({"id": [1, 2], "from": [0, 100], "to": [10, 110]})
    >>> right = pa.table({"name": ["a", "b"], "t0": [12, 300], "t1": [20, 310]})
    >>> timing_join(left, right, left_time=Interval("from", "to"), right_time=Interval("t0", "t1"),
    ...             condition=within("15us", confidence=0.8)).select(["id", "name", "probability"]).to_pylist()
    [{'id': 1, 'name': 'a', 'probability': 0.84375}]
    """
    return _remembering_rejects(run(deduplicated(TimingJoin(**options), dedupe), [left, right]))


@takes_options_of(Coalesce)
def coalesce(table: pa.Table, **options: Unpack[CoalesceOptions]) -> pa.Table:
    """Consecutive rows of a group whose values are equivalent, merged to one that is valid over all of their time.

    A row is valid from its time to that of the next row of its group (the last one: to its own time). Columns:
    `window_end` if the window slides, the group columns, the value columns (of the first row of each), `valid_from` and
    `valid_to` (half-open, in the type of the time column), `n` rows. Row order is not promised.

    Without a window all rows are coalesced. With `window` (a duration: rows with `T - window <= time <= T`, or
    `< time` if `closed="right"`) or `rows` (a number: the last ones, of all groups together or `per_group`), T is `at`,
    or every `slide` (a duration, counted from 1970; for `rows` also a number: every so many-th row), or the last time.
    `equivalence`: `equal`, `within:E`, `within_relative:R`, `increasing`, `non_decreasing`, `decreasing`,
    `non_increasing`, or a function of two tables, the previous rows' and these rows' values, to a boolean array (see
    `coalescing.equivalence.Predicate`). `scheme` picks the algorithm of a stream;
    here, as `lateness`, it makes no difference.

    Rows without a time or a group, and all but one of different rows of a group at one time (the smallest in column
    order stays), are warned of and are to be had from `rejects(result)`. Equal rows count once.

    Raises: InputError WA-1001, WA-1002, WA-1023 for columns, QueryError WA-2006, WA-2021, WA-2022 for options.
    Cost: O(n) where times rise in each group, else a radix sort of the groups in disorder; and the rows that come out.
    Source: Al-Kateb, Kunta, Lee 2010.

    >>> readings = pa.table({"room": ["a", "a", "b", "a"], "t": [1, 2, 2, 5], "lamp": ["on", "on", "off", "off"]})
    >>> for row in coalesce(readings, time="t", group="room", values="lamp").to_pylist():
    ...     print(*row.values())
    a on 1 5 2
    a off 5 5 1
    b off 2 2 1
    """
    return _remembering_rejects(run(Coalesce(**options), [table]))


@takes_options_of(WindowJoin, without=("times",))
def window_join(
    tables: Mapping[str, pa.Table], *, time: TimesByStream, **options: Unpack[WindowJoinOptions]
) -> pa.Table:
    """Combinations of one row from each of several tables that lie in each other's windows, as an Arrow table.

    `tables`: by stream name. `time`: one specification for all, or one by stream name. `windows`: by pair of names a
    duration, a tuple `(lo, hi)` that bounds (time of second - time of first), or a condition with a confidence, which
    is what uncertain times need; any connected graph will do. `predicates`, `strategy`, `conservative`, `method`,
    `lateness`: see `whenabouts.core.window_join.query.WindowJoin`; no choice of algorithm changes the rows.

    Columns: those of every table (`on` once; a name that several have gets `_` and the stream's name behind it),
    `t_first` (the least `t_min`) and `t_last` (the greatest `t_max`), and `probability_<a>_<b>` for each window with a
    confidence. With `joint=True` also `probability`, that all windows hold together (see `joint_probability`: it is not
    their product). Row order is not promised. Rejected rows: see `timing_join`.

    Cost: sorting all tables, then O(rows + partial combinations). Source: W-join (Hammad et al., SSDBM 2003).

    Raises: InputError (WA-1xxx) for columns, QueryError (WA-2xxx) for windows and options. Warns (`EmptyInputWarning`)
    of a table without rows: there can be no combination then.

    >>> from whenabouts.core import Point
    >>> cameras = {name: pa.table({"objid": [7, 8], "t": t}) for name, t in
    ...            {"gate": [0, 9], "hall": [4, 30], "exit": [6, 31]}.items()}
    >>> window_join(cameras, on="objid", time=Point("t"),
    ...             windows={("gate", "hall"): 5, ("hall", "exit"): (0, 3)}).select(["objid", "t_exit"]).to_pylist()
    [{'objid': 7, 't_exit': 6}]
    """
    check_streams(tables, _TABLES, _A_TABLE)
    query = WindowJoin.of(tuple(tables), time, **options)
    empty = [name for name, table in tables.items() if not table.num_rows]
    if empty:
        told = f"{Code.EMPTY_INPUT}: there are no rows in {', '.join(empty)}, hence no combination"
        warnings.warn(told, EmptyInputWarning, stacklevel=2)
    return _remembering_rejects(run(query, [tables[name] for name in query.inputs]))


@takes_options_of(TemporalAggregate)
def temporal_aggregate(table: pa.Table, **options: Unpack[TemporalAggregateOptions]) -> pa.Table:
    """For each group, how long its coalesced tuples last in the extents of a window: Al-Kateb 2010, Example 2.

    Tuples are coalesced as by `coalesce`, with the same arguments. `aggregates`: output name -> `max`, `min`, `sum`,
    `count` (int64, durations in microseconds), `avg`, `median` (float64), or `("time_weighted", column)`: the mean of a
    value column, each coalesced tuple weighted with its duration. `where`: an Arrow expression over the group and value
    columns of a coalesced tuple. Columns: `window_end` if the window slides, the group columns, the aggregates; a group
    of which nothing passes has no row.

    Cost: that of `coalesce` up to its output, then O(1) amortised for each instant and group and tuple that came or
    went; with `median` also a binary search for each, and a move of at most 8 bytes for each run of the group in the
    window; O(tuples in the window) with `time_weighted`. Raises: as `coalesce`.

    >>> import pyarrow.compute as pc
    >>> table = pa.table({"t": [0, 1, 4, 6], "region": ["a"] * 4, "hot": [False, True, False, False]})
    >>> temporal_aggregate(table, time="t", group="region", values="hot", window=10, at=6,
    ...                    aggregates={"longest": "max", "n": "count"}, where=pc.field("hot")).to_pylist()
    [{'region': 'a', 'longest': 3, 'n': 1}]
    """
    return _remembering_rejects(run(TemporalAggregate(**options), [table]))


@takes_options_of(TemporalJoin)
def temporal_join(left: pa.Table, right: pa.Table, **options: Unpack[TemporalJoinOptions]) -> pa.Table:
    """Pairs of coalesced tuples of two windows by when they hold: Al-Kateb 2010, Example 1.

    Give one table twice to join it with itself. Both inputs have the columns `time`, `group` and `values`, and are
    coalesced as by `coalesce`, with the same arguments; a window is needed. At each instant the tuples of both extents
    are paired that are equal in the columns `on` (a null equals nothing), stand in the `relation` (`overlaps`,
    `contains`, or one of Allen's: see `whenabouts.core.temporal_queries.periods`), share at least `min_duration`, and
    of which `matches` says so: a function of the left and the right tuples' group and value columns (two tables of as
    many rows) to booleans.

    Columns: `window_end` if the window slides, the left group and value columns, the right ones (those of `on` once,
    the others with `suffixes`), and the intersection as `valid_from` and `valid_to`, null where there is none.

    Cost: that of `coalesce` up to its output; at each instant a sort and the pairs that touch (plane sweep). Raises: as
    `coalesce`.

    >>> import pyarrow.compute as pc
    >>> table = pa.table({"t": [0, 2, 9, 1, 4, 9], "room": ["a"] * 3 + ["b"] * 3, "lamp": ["on"] * 2 + ["off"] * 4})
    >>> pairs = temporal_join(table, table, time="t", group="room", values="lamp", window=10,
    ...                       matches=lambda left, right: pc.less(left["room"], right["room"]))
    >>> pairs.to_pylist()
    [{'room_left': 'a', 'lamp_left': 'on', 'room_right': 'b', 'lamp_right': 'off', 'valid_from': 1, 'valid_to': 9}]
    """
    return _remembering_rejects(run(TemporalJoin(**options), [left, right]))


def rejects(result: pa.Table) -> pa.Table:
    """The rejected rows of the call that gave `result`: `input`, `code`, `reason`, and the original columns.

    Raises QueryError WA-2006 if `result` did not come from a function of this module.

    >>> from whenabouts.core import Point, within
    >>> table = pa.table({"t": pa.array([5, None], pa.int64())})
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     pairs = timing_join(table, table, left_time=Point("t"), right_time=Point("t"),
    ...                         condition=within(0, confidence=1))
    >>> rejects(pairs).select(["input", "code"]).to_pylist()
    [{'input': 'left', 'code': 'WA-1003'}, {'input': 'right', 'code': 'WA-1003'}]
    """
    if id(result) not in _rejects:
        raise refused("the result", result, "give the very table that a function of this module returned")
    return _rejects[id(result)]


def run(query: Query, tables: Sequence[pa.Table], *, buckets: int = 1) -> Outcome:
    """Run a query over finite tables, one for each of its inputs.

    `buckets` splits the keys as a parallel engine would; the rows do not depend on it. Raises InputError WA-1062 for
    what is no table, and what the query raises.
    """
    check_query(query)
    check_inputs(query, tables, _TABLES, _A_TABLE)
    check_hosting(buckets)
    host = _Host(query, [table.schema for table in tables], buckets, streaming=False)
    for bucket, arrivals in enumerate(host.arrivals([table.to_batches() for table in tables])):
        host.step(arrivals, NO_WATERMARK, FlushMode.END, bucket)
    return host.outcome()


def run_stream(
    query: Query,
    files: Sequence[Sequence[pa.Table]],
    *,
    buckets: int = 1,
    restart_after: int | None = None,
    demand: FlushMode = FlushMode.NOTHING,
    changes: Mapping[int, Query] | None = None,
    progress: Callable[[int], None] | None = None,
    bound: StateBound | None = None,
) -> Outcome:
    """Run a query as a stream: file n of every input arrives in step n, the watermark follows, state is kept.

    The watermark in force in a step follows from the earlier steps (`runtime.watermarks.watermark_of`), and no input
    holds it back once its files are used up; after the last step the input has ended. `restart_after=n` runs step n,
    throws its results and state away as a crash before the commit does, and replays it. `changes[n]` is the query that
    continues with the state from step n: another confidence, say. `progress` receives the number of rows so far.
    `bound` is one on the rows that each bucket holds. Raises InputError WA-1062 for an input without a table, of which
    the columns would not be known.
    """
    _check_files(query, files)
    check_hosting(buckets, bound)
    host = _Host(query, [tables[0].schema for tables in files], buckets, streaming=True, bound=bound)
    steps = max(map(len, files))
    for number in range(steps):
        batches = _of_step(files, number)
        if changes is not None and number in changes:
            host.change(changes[number])
        if number == restart_after:
            before = host.commit()
            host.take_in(batches, demand)
            host.restore(before)
        host.take_in(batches, demand)
        host.advance(ended=[number + 1 >= len(tables) for tables in files])
        if progress is not None:
            progress(host.metrics[metrics.ROWS_IN])
    host.finish()
    return host.outcome()


def watermarks(query: Query, files: Sequence[Sequence[pa.Table]]) -> list[int]:
    """The watermark in force in each step of `run_stream` over the same files: what `why_not` asks for. O(rows).

    >>> from whenabouts.core import Point, within
    >>> query = TimingJoin(left_time=Point("t"), right_time=Point("t"), condition=within(5, confidence=1))
    >>> files = [pa.table({"t": [5, 9]}), pa.table({"t": [12]})]
    >>> [us if us > 0 else "none" for us in watermarks(query, [files, files])]
    ['none', 9]
    """
    _check_files(query, files)
    host = _Host(query, [tables[0].schema for tables in files], 1, streaming=True)
    found = []
    for number in range(max(map(len, files))):
        found.append(host.watermark_us)
        for _ in host.arrivals(_of_step(files, number)):
            pass  # reading is what moves the clock
        host.advance(ended=[number + 1 >= len(tables) for tables in files])
    return found


def _check_files(query: Query, files: Sequence[Sequence[pa.Table]]) -> None:
    check_query(query)
    check_inputs(query, files, (Sequence,), "give a list of tables")
    for name, tables in zip(query.inputs, files, strict=True):
        if not len(tables):
            raise InputError(
                Code.NOT_AN_INPUT,
                f"the {name} input has no table, so that its columns are not known",
                "give one at least, which may have no rows",
            )
        for table in tables if isinstance(tables, (list, tuple, str, bytes)) else ():  # others read files as asked
            check_input(name, table, _TABLES, _A_TABLE)


def _of_step(files: Sequence[Sequence[pa.Table]], number: int) -> list[list[pa.RecordBatch]]:
    return [tables[number].to_batches() if number < len(tables) else [] for tables in files]


class _Commit(NamedTuple):
    """All that a checkpoint would hold, and what had been given out by then."""

    stores: list[DictStore]
    timers: list[int | None]
    greatest: list[int]
    began: list[int]
    output: list[pa.RecordBatch]
    rejected: list[Rejected]
    metrics: Counter[str]


class _Host:
    """Drives one operator per bucket, as `protocol` asks of every engine."""

    def __init__(
        self,
        query: Query,
        schemas: Sequence[pa.Schema],
        buckets: int,
        *,
        streaming: bool,
        bound: StateBound | None = None,
    ) -> None:
        self._query, self._bound, self._schemas = query, bound, schemas
        self.operator: Operator = bounded(query.operator(schemas, streaming=streaming), bound)
        self._stores = [DictStore() for _ in range(buckets)]
        self._timers: list[int | None] = [None] * buckets
        self._greatest = [NO_WATERMARK] * len(schemas)
        self._began = [NO_WATERMARK] * len(schemas)
        self.watermark_us = NO_WATERMARK
        self._output: list[pa.RecordBatch] = []
        self._rejected: list[Rejected] = []
        self.metrics: Counter[str] = Counter()

    def arrivals(self, batches: Sequence[Sequence[pa.RecordBatch]]) -> Iterator[list[Arrival]]:
        """Raw batches of every input, read and sent to buckets: the arrivals of each bucket in turn."""
        per_bucket: list[list[Arrival]] = [[] for _ in self._stores]
        for reader, raw in zip(self.operator.readers, batches, strict=True):
            blocks, doubtful = [], reader.units.rows
            for batch in raw:
                block, rejected = reader.read(batch)
                self._count_rejects(batch.num_rows, rejected)
                self.metrics[metrics.DIGITS_CUT] += times_cut(reader, block)
                blocks.append(block)
                for bucket, arrival in self._split(reader.input, block):
                    per_bucket[bucket].append(arrival)
            if reader.units.rows > doubtful:
                self.metrics[metrics.DOUBTFUL] += reader.units.rows - doubtful
            self._note(reader.input, [times(block)[1] for block in blocks if block.num_rows])
        yield from per_bucket

    def take_in(self, batches: Sequence[Sequence[pa.RecordBatch]], demand: FlushMode) -> None:
        """One step of a stream in every bucket that has rows or whose timer is due."""
        for bucket, arrivals in enumerate(self.arrivals(batches)):
            timer = self._timers[bucket]
            if arrivals or (timer is not None and timer <= self.watermark_us):
                self._timers[bucket] = self.step(arrivals, self.watermark_us, demand, bucket).timer_us

    def advance(self, ended: Sequence[bool]) -> None:
        """Let the watermark follow the rows seen so far; an input that has ended holds nothing back."""
        come = [END_OF_TIME if done else us for done, us in zip(ended, self._greatest, strict=True)]
        if not all(ended):
            lateness_us, idle_after_us = self._query.lateness_us, self._query.idle_after_us
            past_idle = watermark_past_idle(self._began, lateness_us, idle_after_us)
            self.watermark_us = max(self.watermark_us, watermark_of(come, lateness_us), past_idle)

    def finish(self) -> None:
        """The input has ended: every bucket gives what is still to come."""
        for bucket in range(len(self._stores)):
            self.step([], self.watermark_us, FlushMode.END, bucket)

    def step(self, arrivals: list[Arrival], watermark_us: int, demand: FlushMode, bucket: int = 0) -> Step:
        """One step of one bucket's operator."""
        step = self.operator.step(self._stores[bucket], arrivals, watermark_us, demand, max(self._greatest))
        self._output += step.output
        self._rejected += step.rejected
        self.metrics += step.metrics
        return step

    def change(self, query: Query) -> None:
        """Go on with another query over the same state."""
        self._query, self.operator = query, bounded(query.operator(self._schemas, streaming=True), self._bound)

    def commit(self) -> _Commit:
        """All that a checkpoint would hold."""
        stores = [store.copy() for store in self._stores]
        return _Commit(
            stores,
            self._timers[:],
            self._greatest[:],
            self._began[:],
            self._output[:],
            self._rejected[:],
            self.metrics.copy(),
        )

    def restore(self, commit: _Commit) -> None:
        """Go back to a commit."""
        self._stores, self._timers, self._greatest, self._began = commit[:4]
        self._output, self._rejected, self.metrics = commit[4:]

    def outcome(self) -> Outcome:
        """Everything given so far, as tables."""
        warn_of_digits(self.metrics[metrics.DIGITS_CUT], "", stacklevel=3)
        schemas, inputs = [reader.schema for reader in self.operator.readers], self._query.inputs
        rejected = [reject_rows(r, schemas, inputs) for r in self._rejected]
        for reader in self.operator.readers:
            reader.units.warn()
        return Outcome(
            pa.Table.from_batches(self._output, self.operator.output_schema),
            pa.Table.from_batches(rejected, rejects_schema(schemas)),
            self.metrics,
        )

    def _note(self, input: int, t_max: Sequence[NDArray[np.int64]]) -> None:
        """How far an input has come with the rows of a step."""
        if not t_max:
            return
        self._greatest[input] = max(self._greatest[input], *(int(t.max()) for t in t_max))
        if self._query.idle_after_us is not None:
            first = min(began(t, self._query.lateness_us[input]) for t in t_max)
            self._began[input] = max(self._began[input], first)

    def _split(self, input: int, block: pa.RecordBatch) -> Iterator[tuple[int, Arrival]]:
        if len(self._stores) == 1:
            if block.num_rows:
                yield 0, Arrival(input, block)
            return
        for bucket, at, copied in self.operator.keys.places(input, block, len(self._stores)):
            yield bucket, (Copied if copied else Arrival)(input, block.take(pa.array(at)))

    def _count_rejects(self, rows_in: int, rejected: list[Rejected]) -> None:
        self._rejected += rejected
        self.metrics[metrics.ROWS_IN] += rows_in
        self.metrics[metrics.REJECTED] += sum(r.rows.num_rows for r in rejected)


_rejects: dict[int, pa.Table] = {}


def _remembering_rejects(outcome: Outcome) -> pa.Table:
    key = id(outcome.output)
    _rejects[key] = outcome.rejects
    weakref.finalize(outcome.output, _rejects.pop, key, None)
    if outcome.rejects.num_rows:
        counts = Counter(outcome.rejects.column("code").to_pylist())
        told = ", ".join(f"{n} x {code}" for code, n in sorted(counts.items()))
        warnings.warn(
            f"{outcome.rejects.num_rows} rows were rejected ({told}); see rejects(result)",
            RejectedRowsWarning,
            stacklevel=3,
        )
    return outcome.output

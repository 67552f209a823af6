"""The local engine: the operators over Arrow tables, in this process.

It is the embedded default of the command line, the engine of the doctests, and the base of differential tests. It
hosts operators as every engine does (`protocol`), over dict stores.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.arrays.threads import using
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.callers import users_level
from whenabouts.core.errors import Code, EmptyInputWarning, InputError, NotFiniteWarning, RejectedRowsWarning
from whenabouts.core.frames.kinds import A_FRAME, Frame, GivenFrames
from whenabouts.core.hosting.engine import Engine
from whenabouts.core.hosting.file_runs import FileEngine, FileInput, OutcomeBatches
from whenabouts.core.hosting.host_options import HostSettings, renamed
from whenabouts.core.hosting.input_checks import check_hosting, check_input, check_inputs, check_query
from whenabouts.core.hosting.results_kept import ResultsKept
from whenabouts.core.hosting.stream_progress import Watch, progress_of
from whenabouts.core.join_aggregate.pair_ranges import PairRanges, SearchedPairs
from whenabouts.core.operations import Operations
from whenabouts.core.runtime.blocks import times
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
from whenabouts.core.runtime.rejects import reject_rows, rejects_schema
from whenabouts.core.runtime.time_columns import times_cut, warn_of_digits
from whenabouts.core.runtime.watermarks import began, watermark_of, watermark_past_idle
from whenabouts.core.state.memory_store import DictStore
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.wrappers.state_limit import StateLimit, limited

_TABLES = (pa.Table,)
_A_TABLE = "give a pyarrow Table: pa.table(columns), pa.Table.from_pandas(frame), pa.Table.from_batches(batches)"


@dataclass(slots=True)
class Outcome:
    """All that a run gave: output rows, rejected rows with their reasons, and the counts of `metrics.py`."""

    output: pa.Table
    rejects: pa.Table
    metrics: Counter[str] = field(default_factory=Counter)


def _result(query: Query, frames: Sequence[Any], settings: HostSettings) -> Any:
    """What a user's call gives: the rows, in the first frame's kind. Rejected rows are kept beside it and warned of."""
    given = GivenFrames(dict(zip(query.inputs, frames, strict=True)))
    tables = given.tables
    outcome = run(
        query,
        tables,
        buckets=settings.buckets or 1,
        threads=settings.threads or 1,
        state_limit=settings.state_limit,
    )
    needed: Mapping[str, str] = getattr(query, "needs_rows_of", {})
    counted = zip(query.inputs, tables, strict=True)
    empty = [name for name, table in counted if name in needed and not table.num_rows]
    if empty:
        message = f"{Code.EMPTY_INPUT}: there are no rows in {', '.join(empty)}, hence {needed[empty[0]]}"
        warnings.warn(message, EmptyInputWarning, stacklevel=users_level())
    _warn_of_rejects(outcome.rejects, "rejects(result)")
    result = given.like_first(outcome.output)
    _rejects.keep(result, given.like_first(outcome.rejects))
    return result


def _warn_of_rejects(rejects: pa.Table, where: str) -> None:
    if rejects.num_rows:
        counts = Counter(rejects.column("code").to_pylist())
        by_code = ", ".join(f"{n} x {code}" for code, n in sorted(counts.items()))
        warnings.warn(
            f"{rejects.num_rows} rows were rejected ({by_code}); see {where}",
            RejectedRowsWarning,
            stacklevel=users_level(),
        )


def _pair_ranges(query: TimingJoin, frames: Sequence[Any], settings: HostSettings) -> PairRanges[Any]:
    """What `timing_join(pairs="ranges")` gives. Buckets and threads would change nothing."""
    for name in ("deduplicate_by", "payloads"):
        if getattr(settings, name) is not None:
            raise refused(name, getattr(settings, name), "pairs='ranges' reads tables as they are: leave it out")
    given = GivenFrames(dict(zip(query.inputs, frames, strict=True)))
    searched = SearchedPairs(query, given.tables)
    _warn_of_rejects(searched.rejects, "its rejects")
    return PairRanges(searched, given.like_first)


_rejects: ResultsKept[Any] = ResultsKept()

ENGINE = Engine(
    name="the local engine",
    home=__name__,
    frames=(Frame,),
    hint=A_FRAME,
    run=_result,
    rejects=_rejects.of,
    lacks={
        "name": "a call in this process is part of no job: leave it out",
        "watermarks": "tables are finite and carry no watermarks: leave it out",
    },
    parallel=False,
    pair_ranges=_pair_ranges,
)

_operations = Operations(ENGINE)
asof_join = _operations.asof_join
coalesce = _operations.coalesce
join_aggregate = _operations.join_aggregate
rejects = _operations.rejects
temporal_aggregate = _operations.temporal_aggregate
temporal_join = _operations.temporal_join
timing_join = _operations.timing_join
window_join = _operations.window_join


def run(
    query: Query,
    tables: Sequence[pa.Table],
    *,
    buckets: int = 1,
    threads: int = 1,
    state_limit: StateLimit | None = None,
) -> Outcome:
    """Run a query over finite tables, one for each of its inputs.

    `buckets` splits the keys as a parallel engine would, `threads` work on ranges of rows (of exact as-of joins, and of
    the columns of all joins); the rows depend on neither. `state_limit` is checked and
    changes nothing: finite input leaves no state. Raises InputError WA-1062 for objects that are not tables, and what
    the query raises.
    """
    check_query(query)
    check_inputs(query, tables, _TABLES, _A_TABLE)
    check_hosting(buckets, state_limit, threads)
    host = _Host(query, [table.schema for table in tables], buckets, streaming=False, state_limit=state_limit)
    with using(threads):
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
    watch: Watch | None = None,
    state_limit: StateLimit | None = None,
    bound: StateLimit | None = None,
) -> Outcome:
    """Run a query as a stream: file n of every input arrives in step n, the watermark follows, state is kept.

    The watermark in force in a step follows from the earlier steps (`runtime.watermarks.watermark_of`), and no input
    holds it back once its files are used up; after the last step the input has ended. `restart_after=n` runs step n,
    throws its results and state away as a crash before the commit does, and replays it. `changes[n]` is the query that
    continues with the state from step n: another confidence, say. `progress` receives the number of rows so far,
    `watch` after each step all of `StreamProgress`: `watch=print` shows it.
    `state_limit` is one on the rows that each bucket holds; `bound` is its deprecated name. Raises InputError WA-1062
    for an input without a table, of which the columns would not be known.
    """
    _check_files(query, files)
    if bound is not None:
        state_limit = renamed({"bound": bound})["state_limit"]
    check_hosting(buckets, state_limit)
    host = _Host(query, [tables[0].schema for tables in files], buckets, streaming=True, state_limit=state_limit)
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
        if watch is not None:
            watch(progress_of(host.metrics, host.watermark_us))
    host.finish()
    return host.outcome()


def run_files(
    query: Query,
    inputs: Sequence[FileInput],
    *,
    streaming: bool,
    progress: Watch | None = None,
) -> OutcomeBatches:
    """As `whenabouts.core.hosting.file_runs.RunFiles`; all tables and results are held in memory."""
    if streaming:
        outcome = run_stream(query, [source.tables for source in inputs], watch=progress)
    else:
        outcome = run(query, [pa.concat_tables(source.tables) for source in inputs])
    return OutcomeBatches.of(outcome.output, outcome.rejects, outcome.metrics)


FILE_ENGINE = FileEngine(run_files)


def watermarks(query: Query, files: Sequence[Sequence[pa.Table]]) -> list[int]:
    """The watermark in force in each step of `run_stream` over the same files: what `why_not` asks for. O(rows).

    >>> from whenabouts.core import Point, within
    >>> from whenabouts.core.timing_join.query import TimingJoin
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


def _warn_of_values(rows: int) -> None:
    """Warn (`NotFiniteWarning`, WA-1076) of rows in which a chance function is NaN, if there are any."""
    if rows:
        warnings.warn(
            f"{Code.NOT_FINITE}: in {rows:,} rows a chance function is NaN: a value among their partners is NaN or "
            "infinite",
            NotFiniteWarning,
            stacklevel=users_level(),
        )


def _check_files(query: Query, files: Sequence[Sequence[pa.Table]]) -> None:
    check_query(query)
    check_inputs(query, files, (Sequence,), "give a list of tables")
    for name, tables in zip(query.inputs, files, strict=True):
        if not len(tables):
            raise InputError(
                Code.NOT_AN_INPUT,
                f"the {name} input has no table, so its columns are unknown",
                "give at least one, which may have no rows",
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
        state_limit: StateLimit | None = None,
    ) -> None:
        self._query, self._state_limit, self._schemas = query, state_limit, schemas
        self.operator: Operator = limited(query.operator(schemas, streaming=streaming), state_limit)
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
        """Continue with another query over the same state."""
        self._query, self.operator = query, limited(query.operator(self._schemas, streaming=True), self._state_limit)

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
        _warn_of_values(self.metrics[metrics.NOT_FINITE])
        schemas, inputs = [reader.schema for reader in self.operator.readers], self._query.inputs
        rejected = [reject_rows(r, schemas, inputs) for r in self._rejected]
        for reader in self.operator.readers:
            reader.units.warn()
        return Outcome(
            pa.Table.from_batches(self._output, self.operator.output_schema),
            pa.Table.from_batches(rejected, rejects_schema(schemas)),
            self.metrics,
        )

    def _note(self, input: int, t_max: Sequence[IntArray]) -> None:
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
        for bucket, at, copied in self.operator.keys.partition(input, block, len(self._stores)):
            yield bucket, (Copied if copied else Arrival)(input, block.take(pa.array(at)))

    def _count_rejects(self, rows_in: int, rejected: list[Rejected]) -> None:
        self._rejected += rejected
        self.metrics[metrics.ROWS_IN] += rows_in
        self.metrics[metrics.REJECTED] += sum(r.rows.num_rows for r in rejected)

"""The local engine: the operators over Arrow tables, in this process.

It is the embedded default of the command line, the engine of the doctests, and the base of differential tests. It
hosts operators as every engine does (`protocol`), over dict stores.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.arrays.threads import available, using
from whenabouts.core.callers import users_level
from whenabouts.core.errors import (
    Code,
    EmptyInputWarning,
    InputError,
    QueryError,
    RejectedRowsWarning,
)
from whenabouts.core.frames.kinds import A_FRAME, Frame, GivenFrames, arrow_table, is_dataset
from whenabouts.core.hosting.batch_output import as_stream, cut, output_batches
from whenabouts.core.hosting.engine import Engine
from whenabouts.core.hosting.file_runs import FileEngine, FileInput, OutcomeBatches
from whenabouts.core.hosting.host_options import HostSettings, renamed
from whenabouts.core.hosting.input_checks import check_hosting, check_input, check_inputs, check_query
from whenabouts.core.hosting.local_host import LocalHost as _Host
from whenabouts.core.hosting.local_host import Outcome as Outcome  # what `run` gives
from whenabouts.core.hosting.results_kept import ResultsKept
from whenabouts.core.hosting.stream_progress import Watch, progress_of
from whenabouts.core.hosting.time_order import pieces
from whenabouts.core.join_aggregate.pair_ranges import PairRanges, SearchedPairs
from whenabouts.core.operations import Operations
from whenabouts.core.runtime.option_checks import refused
from whenabouts.core.runtime.protocol import (
    NO_WATERMARK,
    FlushMode,
    Query,
)
from whenabouts.core.runtime.rejects import were_rejected
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.wrappers.state_limit import StateLimit

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset

_TABLES = (pa.Table,)
_A_TABLE = "give a pyarrow Table: pa.table(columns), pa.Table.from_pandas(frame), pa.Table.from_batches(batches)"


def _result(query: Query, frames: Sequence[Any], settings: HostSettings) -> Any:
    """What a user's call gives: the rows, in the first frame's kind. Rejected rows are kept beside it and warned of."""
    if settings.batches:
        return _reader(query, frames, settings)
    given = GivenFrames(dict(zip(query.inputs, frames, strict=True)))
    tables = given.tables
    outcome = run(
        query,
        tables,
        buckets=settings.buckets or 1,
        threads=settings.threads or available(),
        state_limit=settings.state_limit,
    )
    _warn(query, [table.num_rows for table in tables], outcome.rejects)
    result = given.like_first(outcome.output)
    _rejects.keep(result, given.like_first(outcome.rejects))
    return result


def _reader(query: Query, frames: Sequence[Any], settings: HostSettings) -> pa.RecordBatchReader:
    """What a user's call gives with `batches`. Only datasets are not read into memory first."""
    named = zip(query.inputs, frames, strict=True)
    inputs = [frame if is_dataset(frame) else arrow_table(name, frame) for name, frame in named]
    # Finite input: no limit on state, as in `run`.
    run = BatchRun(query, inputs, threads=settings.threads or available())

    def batches() -> Iterator[pa.RecordBatch]:
        yield from run.batches
        outcome = run.outcome()
        rejected.append(outcome.rejects)
        _warn(
            query,
            [rows.num_rows if isinstance(rows, pa.Table) else rows.count_rows() for rows in inputs],
            outcome.rejects,
        )

    rejected: list[pa.Table] = []
    reader = pa.RecordBatchReader.from_batches(run.schema, batches())
    _rejects.keep(reader, rejected)
    return reader


def _warn(query: Query, rows: Sequence[int], rejected: pa.Table) -> None:
    """Warn of inputs without rows and of rejected rows."""
    needed: Mapping[str, str] = getattr(query, "needs_rows_of", {})
    empty = [name for name, count in zip(query.inputs, rows, strict=True) if name in needed and not count]
    if empty:
        message = f"{Code.EMPTY_INPUT}: there are no rows in {', '.join(empty)}, hence {needed[empty[0]]}"
        warnings.warn(message, EmptyInputWarning, stacklevel=users_level())
    _warn_of_rejects(rejected, "rejects(result)")


def _warn_of_rejects(rejects: pa.Table, where: str) -> None:
    if rejects.num_rows:
        counts = Counter(rejects.column("code").to_pylist())
        by_code = ", ".join(f"{n} x {code}" for code, n in sorted(counts.items()))
        warnings.warn(
            f"{were_rejected(rejects.num_rows)} ({by_code}); see {where}",
            RejectedRowsWarning,
            stacklevel=users_level(),
        )


def _pair_ranges(query: TimingJoin, frames: Sequence[Any], settings: HostSettings) -> PairRanges[Any]:
    """What `timing_join(pairs="ranges")` gives. Buckets and threads would change nothing."""
    if settings.batches:
        raise refused("batches", settings.batches, "pairs='ranges' writes no rows: leave one of the two out")
    for name in ("deduplicate_by", "payloads"):
        if getattr(settings, name) is not None:
            raise refused(name, getattr(settings, name), "pairs='ranges' reads tables as they are: leave it out")
    given = GivenFrames(dict(zip(query.inputs, frames, strict=True)))
    searched = SearchedPairs(query, given.tables)
    _warn_of_rejects(searched.rejects, "its rejects")
    return PairRanges(searched, given.like_first)


_rejects: ResultsKept[Any] = ResultsKept()


def _rejects_of(result: Any) -> Any:
    known = _rejects.of(result)
    if not isinstance(known, list):
        return known
    if not known:
        raise QueryError(
            Code.BAD_OPTION,
            "not all batches of the result are read yet",
            "rejected rows are known after the last of them",
        )
    return known[0]


ENGINE = Engine(
    name="the local engine",
    home=__name__,
    frames=(Frame,),
    hint=A_FRAME,
    run=_result,
    rejects=_rejects_of,
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
watch_clock = _operations.watch_clock
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

    `buckets` splits the keys as a parallel engine would, `threads` work on ranges of rows; the rows depend on neither.
    `state_limit` is checked and changes nothing: finite input leaves no state. Raises InputError WA-1062 for objects
    that are not tables, and what the query raises.
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
    for other in (changes or {}).values():
        check_query(other)
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
    """As `whenabouts.core.hosting.file_runs.RunFiles`. All tables are held in memory, and so are the results of a
    stream."""
    if streaming:
        outcome = run_stream(query, [source.tables for source in inputs], watch=progress)
        return OutcomeBatches.of(outcome.output, outcome.rejects, outcome.metrics)
    run = BatchRun(query, [pa.concat_tables(source.tables) for source in inputs], threads=available())
    return OutcomeBatches(run.schema, run.batches, run.rejects(), run.metrics)


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


class BatchRun:
    """A query over tables or datasets of finite input, whose output is given batch by batch.

    Take `batches` once; then `outcome` has everything but the output. A query that cannot run as a stream runs at once
    when the first batch is taken.
    """

    def __init__(self, query: Query, inputs: Sequence[pa.Table | Dataset], *, threads: int = 1) -> None:
        check_query(query)
        check_hosting(1, None, threads)
        self._query, self._inputs, self._threads = query, inputs, threads
        schemas = [rows.schema for rows in inputs]
        whole = query.operator(schemas, streaming=False)
        self.schema: pa.Schema = whole.output_schema
        stream = as_stream(query, schemas, whole)
        self._host = _Host(query, schemas, 1, streaming=stream is not None, operator=stream or whole)
        self.batches = self._at_once() if stream is None else self._in_steps()

    @property
    def metrics(self) -> Counter[str]:
        """The counts; complete once all batches are taken."""
        return self._host.metrics

    def outcome(self) -> Outcome:
        """Rejects and counts, once all batches are taken; warns as `run`."""
        return self._host.outcome()

    def rejects(self) -> Iterator[pa.RecordBatch]:
        """The rejected rows, to be asked for once all batches are taken."""
        yield from self.outcome().rejects.to_batches()

    def _in_steps(self) -> Iterator[pa.RecordBatch]:
        readers = self._host.operator.readers
        found = [pieces(reader, rows) for reader, rows in zip(readers, self._inputs, strict=True)]
        return output_batches(self._host, found, self.schema, self._threads)

    def _at_once(self) -> Iterator[pa.RecordBatch]:
        with using(self._threads):  # not while batches are given: another thread, or another call, may come between
            (arrivals,) = self._host.arrivals([rows.to_batches() for rows in self._inputs])
            step = self._host.give(arrivals, NO_WATERMARK, FlushMode.END)
        yield from cut(step.output, self.schema)

"""Many coalescing queries over one stream as one operator: one lazy extent for all lazy queries, one per eager query.

Al-Kateb, Kunta, Lee 2010, section 6.2. The shared extent holds the stream's rows as they came, once, for as long as the
lazy query with the longest reach needs them; each lazy query groups and coalesces them when it looks. An eager query,
and one whose window is counted in rows, has an operator of its own inside. Each query gives what it gives alone.

Which scheme a query runs under may change from step to step. Lazy becomes eager at once: its extent is built from the
shared rows. Eager becomes lazy when the shared extent reaches back as far as its window: until then, at most a window's
length, it goes on as it was. Nothing is lost and nothing comes twice. Schemes change with the query (`schemes`), or are
decided in each bucket as it runs (`shared_coalescing.scheme_policy`).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.arrays.row_ranks import ranks_of_rows
from whenabouts.core.coalescing.extent_evaluator import Look
from whenabouts.core.coalescing.operator import Coalesce, CoalesceOperator
from whenabouts.core.coalescing.window_log import FIRST, Progress
from whenabouts.core.coalescing.window_ranges import ranges_at, ranges_of_slides
from whenabouts.core.errors import Code, QueryError, SingleBucketWarning
from whenabouts.core.expressions.tree import Expression
from whenabouts.core.runtime.event_reader import EventReader, times
from whenabouts.core.runtime.keys import Keys
from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK, Arrival, FlushMode, Rejected, SegmentStore, Step
from whenabouts.core.runtime.watermarks import drop_late
from whenabouts.core.shared_coalescing.catalog import FIRST_OWN, PARTS, Catalog, Entry, TrackedStore
from whenabouts.core.shared_coalescing.columns import common_groups, out_of_order, union_schema, without_group
from whenabouts.core.shared_coalescing.extent import SharedExtent
from whenabouts.core.shared_coalescing.schedule import floor_of, is_due, is_shareable, next_due, slides_between
from whenabouts.core.shared_coalescing.scheme_policy import Adapting
from whenabouts.core.state.memory_store import StorePart
from whenabouts.core.state.segment_codec import fingerprint
from whenabouts.core.state.segmented_state import rows_in_state
from whenabouts.core.temporal_queries.join import TemporalJoin
from whenabouts.core.wrappers.select_project import SelectProject, finished

EAGER, LAZY = "eager", "lazy"


@dataclass(frozen=True, kw_only=True)
class SharedCoalescing:
    """Several coalescing queries (`Coalesce`, `TemporalAggregate`) over one stream, validated.

    `queries`: name -> query; all have one time column and one lateness. `schemes`: name -> `eager` or `lazy`; queries
    that are not named run under their own scheme (`auto` is eager). What comes out has the column `query` and the
    columns of all queries, null where a query has no such column: `columns_of` tells which are whose.

    `results`: name -> (condition on its rows or None, columns or None), as `SelectProject` has them; see `share`.

    `schemes` and the set of queries may change while it runs: a query that is added, or means something else under its
    name, begins with the next instant; one that is left out is forgotten.

    `shared_coalescing.scheme_policy`: decides in each bucket, while it runs, under which schemes its queries go on
    (`shared_coalescing.scheme_policy.Adapting`; the planner's `Registry.share` gives one). `schemes` are then those
    with which a bucket begins.

    A row is rejected once if any of the queries rejects it alone (it has no group there, or loses against another row
    of its instant). Where groupings differ, the input ends with its last row for all queries, also for one in which
    this row has no group.

    Raises QueryError: WA-2006 for what is no mapping of names to such queries, for different times or latenesses, an
    unknown scheme or name, and for `lazy` where the window is not one of time alone and the query is not lazy itself.

    >>> queries = {name: Coalesce(time="t", values=name, window=10, slide=5) for name in ("a", "b")}
    >>> SharedCoalescing(queries=queries, schemes={"b": "lazy"}).scheme_of("b")
    'lazy'
    """

    queries: Any
    schemes: Any = ()
    results: Any = ()
    adapting: Adapting | None = None

    changeable: ClassVar[frozenset[str]] = frozenset({"queries", "schemes", "results", "adapting"})

    def __post_init__(self) -> None:
        queries = dict(self.queries)
        for name, query in queries.items():
            if not isinstance(query, Coalesce) or isinstance(query, TemporalJoin):
                raise _bad(f"query {name!r} is {query!r}", "one input each: Coalesce or TemporalAggregate")
        if not 0 < len(queries) <= PARTS - FIRST_OWN:
            raise _bad(f"{len(queries) or 'no'} queries are given", f"give from one to {PARTS - FIRST_OWN}")
        for what in ("time", "lateness_us"):
            found = {repr(getattr(query, what)) for query in queries.values()}
            if len(found) > 1:
                raise _bad(f"the queries differ in {what}: {', '.join(sorted(found))}", "they share one stream")
        object.__setattr__(self, "queries", tuple(queries.items()))
        schemes = dict(self.schemes)
        for name, scheme in schemes.items():
            if name not in queries or scheme not in (EAGER, LAZY):
                raise _bad(f"scheme of {name!r} is {scheme!r}", f"eager or lazy, of {', '.join(queries)}")
            if scheme == LAZY and queries[name].scheme == EAGER and not is_shareable(queries[name].extents):
                raise _bad(f"query {name!r} counts rows and shares no extent", "give it scheme='lazy' of its own")
        object.__setattr__(self, "schemes", tuple(schemes.items()))
        object.__setattr__(self, "results", tuple(dict(self.results).items()))

    @property
    def inputs(self) -> tuple[str, ...]:
        """One input."""
        return ("events",)

    @property
    def lateness_us(self) -> tuple[int, ...]:
        """That of all queries."""
        first: Coalesce = self.queries[0][1]
        return first.lateness_us

    @property
    def says_lateness(self) -> bool:
        """Whether all queries do."""
        return all(query.says_lateness for _, query in self.queries)

    @property
    def described(self) -> str:
        """The queries by name."""
        return "; ".join(f"{name}: {query.described}" for name, query in self.queries)

    @property
    def idle_after_us(self) -> int | None:
        """A silent input is waited for."""
        return None

    def scheme_of(self, name: str) -> str:
        """Under which scheme a query is to run."""
        own: Coalesce = dict(self.queries)[name]
        return str(dict(self.schemes).get(name, LAZY if own.scheme == LAZY else EAGER))

    def columns_of(self, name: str, schema: pa.Schema) -> list[str]:
        """The output columns of one query over a stream of this schema."""
        operator: CoalesceOperator = dict(self.queries)[name].operator([schema], streaming=False)
        names: list[str] = self.result_schema(name, operator.output_schema).names
        return names

    def result_schema(self, name: str, schema: pa.Schema) -> pa.Schema:
        """What comes of a query's rows."""
        having, columns = dict(self.results).get(name, (None, None))
        return finished(_no_rows(schema), having, columns).schema

    def operator(self, schemas: Sequence[pa.Schema], *, streaming: bool) -> SharedOperator:
        """The operator for a schema.

        Raises what the queries raise, and WA-2009 for output columns of two types. Warns (`SingleBucketWarning`) of a
        stream that one bucket must hold, since the queries have no group column in common.
        """
        return SharedOperator(self, schemas[0], streaming=streaming)


def share(
    queries: Mapping[str, Any], schemes: Mapping[str, str] | None = None, adapting: Adapting | None = None
) -> SelectProject:
    """Coalescing queries, also those that were made from text (`SelectProject`), as one query over their stream.

    Raises QueryError: as `SharedCoalescing`, WA-2009 where two queries compute different columns of one name.

    >>> share({"a": Coalesce(time="t", values="a"), "b": Coalesce(time="t", values="b")}).inputs
    ('events',)
    """
    plain: dict[str, Any] = {}
    results: dict[str, Any] = {}
    derived: dict[str, Expression] = {}
    for name, query in queries.items():
        plain[name] = query.query if isinstance(query, SelectProject) else query
        if not isinstance(query, SelectProject):
            continue
        if query.where:
            raise _bad(f"query {name!r} chooses rows", "queries that share an extent see all rows of their stream")
        results[name] = query.having, query.columns
        for column, expression in dict(query.derived).get("events", ()):
            if derived.setdefault(column, expression) != expression:
                raise QueryError(Code.COLUMN_CLASH, f"two queries compute {column!r} in two ways", "rename one")
    shared = SharedCoalescing(queries=plain, schemes=schemes or {}, results=results, adapting=adapting)
    return SelectProject(query=shared, derived={"events": tuple(derived.items())} if derived else ())


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def _bad(problem: str, hint: str) -> QueryError:
    return QueryError(Code.BAD_OPTION, problem, hint)


class SharedOperator:
    """Runs a `SharedCoalescing` over the blocks and the state of one bucket."""

    needs_latest = True
    event_time = None

    def __init__(self, query: SharedCoalescing, schema: pa.Schema, *, streaming: bool) -> None:
        self.query = query
        self.operators: dict[str, CoalesceOperator] = {
            name: each.operator([schema], streaming=streaming) for name, each in query.queries
        }
        first: Coalesce = query.queries[0][1]
        self._time = first.point.t
        self._groups = {name: each.coalescing.group for name, each in query.queries}
        # A row without a common group is of no use to anybody.
        self.readers = (
            EventReader(0, query.inputs[0], schema, first.point, groups=common_groups(self._groups.values())),
        )
        spread = [operator.keys.of(0) for operator in self.operators.values()]
        common = common_groups(spread)
        if streaming and any(spread) and not common:
            warnings.warn(
                f"{Code.SINGLE_BUCKET}: the queries group by nothing in common, so that one bucket, and one core, gets "
                "the whole stream: share extents among queries that have a group column in common",
                SingleBucketWarning,
                stacklevel=4,
            )
        self.keys = Keys(common, [self.readers[0].schema], query.inputs)
        self.output_schema = union_schema(
            {n: query.result_schema(n, each.output_schema) for n, each in self.operators.items()}
        )
        self._results = dict(query.results)
        # Counts that follow from rows and state alone; how much is compared hangs on what is in memory, too.
        self._observed = [metrics.PROCESSED, metrics.OUT_OF_ORDER, metrics.STEPS]
        self._observed += [of(name) for name, _ in query.queries for of in (metrics.coalesced, metrics.neighbours)]
        self._width_us = max([e.extents.window.width_us or 0 for _, e in query.queries])

    def step(
        self,
        store: SegmentStore,
        arrivals: Sequence[Arrival],
        watermark_us: int,
        demand: FlushMode = FlushMode.NOTHING,
        latest_us: int = NO_WATERMARK,
    ) -> Step:
        """One step of `protocol.Operator`. Cost: the steps of the eager queries; the rows that arrive, once; and
        where a lazy query looks, the rows of its window."""
        step = Step()
        book = Catalog.read(StorePart(store, 0, PARTS))
        blocks = [arrival.block for arrival in drop_late(self.readers, arrivals, watermark_us, step)]
        was = book.clock
        until = END_OF_TIME if demand is FlushMode.END else max(watermark_us, was.until)
        latest = max([was.latest, latest_us, *(int(times(block)[1].max(initial=FIRST)) for block in blocks)])
        now = Progress(until, latest, 0)
        step.metrics[metrics.OUT_OF_ORDER] += out_of_order(blocks, was.latest)
        step.metrics[metrics.STEPS] += bool(blocks)
        shared = SharedExtent(
            StorePart(store, 1, PARTS), self.readers[0].block_schema, self._width_us // 16, self._time
        )
        refused: list[pa.RecordBatch] = []
        self._settle_schemes(store, book, shared, was, step)
        lazy = [name for name, entry in book.queries.items() if entry.scheme == LAZY]
        kept_for = [name for name, entry in book.queries.items() if LAZY in (entry.scheme, self._wishes(name, entry))]
        if kept_for:
            shared.append(blocks)
        for name, entry in book.queries.items():
            # All settle under the same watermarks, so that a row which several of them reject is seen in one step.
            if entry.scheme == EAGER and (blocks or until > was.until):
                mine, inner = self._of_query(name, blocks), _own_store(store, entry)
                found = self.operators[name].step(inner, mine, watermark_us, demand, latest)
                entry.timer_us = found.timer_us
                _count_rows(entry, found, step)
                self._take(name, found, step, refused)
        self._look(lazy, shared, was, now, step, refused)
        self._reject(blocks, refused, step)
        if demand is not FlushMode.END:
            self._adapt(book, now, step)
            self._leave(book, shared, kept_for, now, step)
        return step

    def _adapt(self, book: Catalog, now: Progress, step: Step) -> None:
        """Decide anew where it is time to: the next step acts on it."""
        adapting = self.query.adapting
        if adapting is None or now.latest <= FIRST:
            return
        counts = {name: step.metrics[name] for name in self._observed if step.metrics[name]}
        book.observed.count(counts, now.latest)
        past = book.observed.stretch(now.latest, adapting.every_us)
        if past is not None:
            in_force = {name: self._wishes(name, entry) for name, entry in book.queries.items()}
            schemes, book.observed.known = adapting.adapted(past, in_force, book.observed.known)
            for name, entry in book.queries.items():
                entry.wish = schemes.get(name, in_force[name])

    def _leave(self, book: Catalog, shared: SharedExtent, kept_for: list[str], now: Progress, step: Step) -> None:
        """Drop what no query needs any more, and write what the next step has to know."""
        if kept_for or book.shared:
            reaches = [self._floor(name, now) for name in kept_for]
            book.covered_us = shared.keep_from(min(reaches, default=now.latest + 1), book.covered_us, step)
            shared.save()
        book.clock, book.shared = now, bool(kept_for)
        book.write()
        first_row = shared.first_row_us
        timers = [
            entry.timer_us if entry.scheme == EAGER else next_due(self._extents(name), now, first_row)
            for name, entry in book.queries.items()
        ]
        step.timer_us = min((timer for timer in timers if timer is not None), default=None)

    def rows_held(self, store: SegmentStore) -> int:
        """Rows of the shared extent, and rows and runs of the eager queries."""
        own = sum(entry.rows for entry in Catalog.read(StorePart(store, 0, PARTS)).queries.values())
        return own + rows_in_state(StorePart(store, 1, PARTS), 1)

    def _extents(self, name: str) -> Any:
        return self.operators[name].query.extents

    def _floor(self, name: str, clock: Progress) -> int:
        return floor_of(self._extents(name), clock)

    def _wishes(self, name: str, entry: Entry | None = None) -> str:
        """The scheme that a query is to have; one whose rows are counted is looked after by its own operator."""
        decided = entry.wish if entry is not None and self.query.adapting is not None else None
        return decided or self.query.scheme_of(name) if is_shareable(self._extents(name)) else EAGER

    def _settle_schemes(
        self, store: SegmentStore, book: Catalog, shared: SharedExtent, was: Progress, step: Step
    ) -> None:
        """Queries that came and went, and those whose scheme is to change and can."""
        definitions = {name: _definition(query) for name, query in self.query.queries}
        for name, entry in list(book.queries.items()):
            if entry.definition != definitions.get(name):
                _forget(store, book.queries.pop(name), step)
        for name, definition in definitions.items():
            entry = book.queries.get(name) or book.add(name, self._wishes(name), definition)
            wish = self._wishes(name, entry)
            if entry.scheme == LAZY and wish == EAGER:
                self._build(name, store, entry, shared, was, step)
            elif entry.scheme == EAGER and wish == LAZY and book.shared and book.covered_us <= self._floor(name, was):
                _forget(store, entry, step)
                entry.scheme = LAZY
                step.metrics[metrics.SWITCHED] += 1
        wanted = any(LAZY in (entry.scheme, self._wishes(name, entry)) for name, entry in book.queries.items())
        if wanted and not book.shared:
            book.covered_us = FIRST if was.latest <= FIRST else was.latest + 1

    def _build(
        self, name: str, store: SegmentStore, entry: Entry, shared: SharedExtent, was: Progress, step: Step
    ) -> None:
        """An eager extent from the shared rows; what its operator gives meanwhile has been given already."""
        rows = shared.rows(self._floor(name, was), END_OF_TIME)
        mine = self._of_query(name, rows.to_batches())
        inner, operator = _own_store(store, entry), self.operators[name]
        found = [operator.step(inner, mine, NO_WATERMARK, FlushMode.NOTHING, was.latest)]
        if was.until != NO_WATERMARK:
            found.append(operator.step(inner, [], was.until))
        for each in found:
            _count_rows(entry, each, step)
        entry.scheme, entry.timer_us = EAGER, found[-1].timer_us
        step.metrics[metrics.SWITCHED] += 1

    def _of_query(self, name: str, blocks: Sequence[pa.RecordBatch]) -> list[Arrival]:
        """The rows that have a group in a query."""
        found = []
        for block in blocks:
            none = without_group(block, self._groups[name])
            found.append(Arrival(0, block.filter(pa.array(~none)) if none.any() else block))
        return [arrival for arrival in found if arrival.block.num_rows]

    def _look(
        self,
        lazy: list[str],
        shared: SharedExtent,
        was: Progress,
        now: Progress,
        step: Step,
        refused: list[pa.RecordBatch],
    ) -> None:
        """What the lazy queries see of the shared rows."""
        for group in dict.fromkeys(self._groups[name] for name in lazy):
            losers = shared.losers(group, was.until, now.until, self.readers[0].schema.names)
            if losers is not None:
                refused.append(self.readers[0].raw(losers))
        for name in lazy:
            operator, extents = self.operators[name], self._extents(name)
            if not is_due(extents, was, now):
                continue
            how = operator.query.coalescing
            floor = floor_of(extents, was)
            tuples = shared.tuples(how.group, floor, now.until, self.readers[0].schema.names)
            linked, compared = shared.links(tuples, how)
            step.metrics[metrics.COMPARED] += compared
            if extents.slide_us is not None:
                ranges = ranges_of_slides(tuples, extents.window, extents.slide_us, *slides_between(extents, was, now))
            else:
                at = now.latest if extents.at_us is None else extents.at_us
                ranges = ranges_at(tuples, extents.window, np.array([at]), how.group)
            look = Look(tuples, linked, ranges)
            self._emit(name, operator.rows_of(look), step)
            step.metrics[metrics.coalesced(name)] += int(linked.sum())
            step.metrics[metrics.neighbours(name)] += len(tuples) - int(tuples.heads.sum())

    def _take(self, name: str, found: Step, step: Step, refused: list[pa.RecordBatch]) -> None:
        """What an eager query's own operator gave."""
        for rows in found.output:
            self._emit(name, rows, step)
        refused += [rejected.rows for rejected in found.rejected]
        step.metrics[metrics.COMPARED] += found.metrics[metrics.COMPARED]
        step.metrics[metrics.coalesced(name)] += found.metrics[metrics.COALESCED]
        step.metrics[metrics.neighbours(name)] += found.metrics[metrics.NEIGHBOURS]

    def _emit(self, name: str, rows: pa.RecordBatch, step: Step) -> None:
        rows = finished(rows, *self._results.get(name, (None, None)))
        if not rows.num_rows:
            return
        columns = [pa.repeat(name, rows.num_rows)]
        names = rows.schema.names
        for field in list(self.output_schema)[1:]:
            columns.append(rows.column(field.name) if field.name in names else pa.nulls(rows.num_rows, field.type))
        step.output.append(pa.RecordBatch.from_arrays(columns, schema=self.output_schema))
        step.metrics[metrics.MATCHED] += rows.num_rows

    def _reject(self, blocks: Sequence[pa.RecordBatch], losers: Sequence[pa.RecordBatch], step: Step) -> None:
        """Rows that some query cannot use, each once: those without a group there, and those that lost there."""
        every = dict.fromkeys(name for group in self._groups.values() for name in group)
        reader = self.readers[0]
        for block in blocks:
            none = without_group(block, every)
            self._refuse(Code.NULL_GROUP, reader.raw(block.filter(pa.array(none))), step)
        if losers:
            rows = pa.Table.from_batches(losers, reader.schema).combine_chunks()
            known = ~without_group(rows, every)
            first = np.unique(ranks_of_rows(rows), return_index=True)[1]
            for batch in rows.take(pa.array(first[known[first]])).to_batches():
                self._refuse(Code.DUPLICATE_TIMESTAMP, batch, step)

    def _refuse(self, code: Code, rows: pa.RecordBatch, step: Step) -> None:
        if rows.num_rows:
            step.rejected.append(Rejected(0, code, rows))
            step.metrics[metrics.REJECTED] += rows.num_rows
            step.metrics[metrics.PROCESSED] -= rows.num_rows


def _definition(query: Coalesce) -> str:
    """What a query's state is bound to."""
    return fingerprint(query.group, query.values, query.extents, query.equivalence, query.point)


def _own_store(store: SegmentStore, entry: Entry) -> TrackedStore:
    return TrackedStore(StorePart(store, entry.number, PARTS), entry.segments)


def _count_rows(entry: Entry, found: Step, step: Step) -> None:
    """Rows that an eager query's own operator wrote and dropped."""
    for count in (metrics.STORED, metrics.EVICTED):
        step.metrics[count] += found.metrics[count]
    entry.rows += found.metrics[metrics.STORED] - found.metrics[metrics.EVICTED]


def _forget(store: SegmentStore, entry: Entry, step: Step) -> None:
    """Drop all that an eager query's own operator left."""
    _own_store(store, entry).clear()
    step.metrics[metrics.EVICTED] += entry.rows
    entry.rows, entry.timer_us = 0, None

"""Runs a `SharedCoalescing` over the blocks and the state of one bucket.

The shared extent (`shared_coalescing.extent`) holds the stream's rows as they arrived, once, as long as the lazy query
with the longest reach needs them; each lazy query groups and coalesces them when one of its extents becomes final. An
eager query has its own operator, and so has one that cannot share (`Window.can_share`), under either scheme. Equal
queries have one operator. Each query gives the same result as alone.

The scheme of a query may change from step to step. Lazy becomes eager at once: the extent is built from the shared
rows. Eager becomes lazy when the shared extent reaches back as far as the query's window; until then, for at most one
window length, the query stays eager. An operator that does not share writes its state in the other format. Nothing is
lost or emitted twice.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.arrays.record_batches import take_table
from whenabouts.core.arrays.row_ranks import ranks_of_rows
from whenabouts.core.callers import users_level
from whenabouts.core.coalescing.extents import FinalExtents
from whenabouts.core.coalescing.operator import CoalesceOperator
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.coalescing.schedule import FIRST, Progress
from whenabouts.core.coalescing.window_spec import Extents
from whenabouts.core.errors import Code, SingleBucketWarning
from whenabouts.core.runtime.blocks import times
from whenabouts.core.runtime.event_reader import EventReader
from whenabouts.core.runtime.keys import Keys
from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK, Arrival, FlushMode, Rejected, SegmentStore, Step
from whenabouts.core.runtime.watermarks import drop_late
from whenabouts.core.shared_coalescing.catalog import EAGER, LAZY, PARTS, Catalog, Entry, TrackedStore
from whenabouts.core.shared_coalescing.columns import common_groups, out_of_order, union_schema, without_group
from whenabouts.core.shared_coalescing.extent import SharedExtent
from whenabouts.core.shared_coalescing.scheme_policy import SchemePolicy
from whenabouts.core.shared_coalescing.view import LEAST_ROWS, SharedView
from whenabouts.core.state.memory_store import StorePart
from whenabouts.core.state.segment_codec import fingerprint
from whenabouts.core.state.segment_directory import rows_in_state
from whenabouts.core.wrappers.select_project import finished


class SharedSettings(Protocol):
    """The validated settings of a `SharedCoalescing`."""

    @property
    def queries(self) -> Any:
        """Names and queries."""

    @property
    def results(self) -> Any:
        """Names, with conditions and columns of the output."""

    @property
    def same(self) -> Any:
        """Names of queries, with the names of the equal ones whose rows they get."""

    @property
    def adapting(self) -> SchemePolicy | None:
        """What changes the schemes while the queries run."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """One input."""

    @property
    def partitioned_by(self) -> tuple[str, ...]:
        """The columns that say in which bucket a row is."""

    def scheme_of(self, name: str) -> str:
        """The scheme of a query."""

    def result_schema(self, name: str, schema: pa.Schema) -> pa.Schema:
        """The output columns of a query."""


class SharedOperator:
    """Runs a `SharedCoalescing` over the blocks and the state of one bucket."""

    needs_latest = True
    event_time = None

    def __init__(self, query: SharedSettings, schema: pa.Schema, *, streaming: bool) -> None:
        self.query = query
        self._asked: dict[str, Coalesce] = dict(query.queries)
        self.operators: dict[str, CoalesceOperator] = {
            name: each.under(self._own_scheme(name) if each.extents.is_history else EAGER).operator(
                [schema], streaming=streaming
            )
            for name, each in query.queries
        }
        self._lazy_operators: dict[str, CoalesceOperator] = {}
        self._schema = schema
        equal = dict(query.same)
        self._followers = {
            name: [each for each in equal if equal[each] == name] for name in self._asked if name not in equal
        }
        first: Coalesce = query.queries[0][1]
        self._time = first.point.t
        self._specs = {name: each.coalescing for name, each in query.queries}
        self._groups = {name: spec.group for name, spec in self._specs.items()}
        # A row with a null in a common group column is useless to every query.
        self.readers = (
            EventReader(0, query.inputs[0], schema, first.point, groups=common_groups(self._groups.values())),
        )
        common = query.partitioned_by
        if streaming and not common and any(each.partitioned_by for each in self._asked.values()):
            warnings.warn(
                f"{Code.SINGLE_BUCKET}: the queries have no group column in common, so one bucket, and one core, "
                "processes the whole stream; share extents among queries with a common group column",
                SingleBucketWarning,
                stacklevel=users_level(),
            )
        names = self.readers[0].schema.names
        self._views = {name: SharedView(each.extents, self._groups[name], names) for name, each in self._asked.items()}
        self.keys = Keys(common, [self.readers[0].schema], query.inputs)
        self.output_schema = union_schema(
            {n: query.result_schema(n, each.output_schema) for n, each in self.operators.items()}
        )
        self._results = dict(query.results)
        # Only counts that depend on rows and state; the number of comparisons also depends on the cache.
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
        """One step of `protocol.Operator`.

        Cost: the steps of the eager queries; the rows that arrive, once; for each lazy query with a final extent, the
        rows of its window.
        """
        step = Step()
        catalog = Catalog.read(StorePart(store, 0, PARTS))
        blocks = [arrival.block for arrival in drop_late(self.readers, arrivals, watermark_us, step)]
        was = catalog.progress
        until = END_OF_TIME if demand is FlushMode.END else max(watermark_us, was.until)
        latest = max([was.latest, latest_us, *(int(times(block)[1].max(initial=FIRST)) for block in blocks)])
        now = Progress(until, latest, 0)
        step.metrics[metrics.OUT_OF_ORDER] += out_of_order(blocks, was.latest)
        step.metrics[metrics.STEPS] += bool(blocks)
        shared = SharedExtent(
            StorePart(store, 1, PARTS), self.readers[0].block_schema, self._width_us // 16, self._time
        )
        duplicates: list[pa.RecordBatch] = []
        self._update_schemes(store, catalog, shared, was, step)
        lazy = {name: entry for name, entry in catalog.queries.items() if entry.own is None}
        kept_for = self._lazy_now_or_soon(catalog)
        if kept_for:
            shared.append(blocks)
        for name, entry in catalog.queries.items():
            # All queries settle under the same watermarks, so a row that several of them reject shows up in one step.
            if entry.own is not None and (blocks or until > was.until):
                own_rows, own_store = self._of_query(name, blocks), _own_store(store, entry)
                found = self._operator(name, entry.own).step(own_store, own_rows, watermark_us, demand, latest)
                entry.timer_us = found.timer_us
                _count_rows(entry, found, step)
                self._add_own(name, found, step, duplicates)
        self._evaluate_lazy(lazy, shared, was, now, step, duplicates)
        self._reject(blocks, duplicates, step)
        if demand is not FlushMode.END:
            self._decide_schemes(catalog, now, step)
            self._save(catalog, shared, kept_for, now, step)
        return step

    def _decide_schemes(self, catalog: Catalog, now: Progress, step: Step) -> None:
        """Let the policy decide if it is time to; the next step applies the decision."""
        policy = self.query.adapting
        if policy is None or now.latest <= FIRST:
            return
        counts = {name: step.metrics[name] for name in self._observed if step.metrics[name]}
        catalog.observed.count(counts, now.latest)
        past = catalog.observed.observation(now.latest, policy.every_us)
        if past is not None:
            in_force = {
                each: self._target(name, entry) for name, entry in catalog.queries.items() for each in self._names(name)
            }
            schemes, catalog.observed.known = policy.decide(past, in_force, catalog.observed.known)
            for name, entry in catalog.queries.items():
                entry.wish = schemes.get(name, in_force[name])

    def _save(self, catalog: Catalog, shared: SharedExtent, kept_for: list[str], now: Progress, step: Step) -> None:
        """Drop rows that no query needs any more, and write the state for the next step."""
        if kept_for or catalog.shared:
            trims = shared.rows_held > 2 * catalog.trimmed + LEAST_ROWS
            for name, entry in catalog.queries.items():
                if trims and entry.own is None:
                    self._views[name].trim(entry, shared, now)
            floors = [self._views[name].floor(catalog.queries[name], now) for name in kept_for]
            catalog.covered_us = shared.keep_from(min(floors, default=now.latest + 1), catalog.covered_us, step)
            if trims:
                catalog.trimmed = shared.rows_held
            shared.save()
        catalog.progress, catalog.shared = now, bool(kept_for)
        catalog.write()
        timers = [
            self._views[name].timer(shared, now) if entry.own is None else entry.timer_us
            for name, entry in catalog.queries.items()
        ]
        step.timer_us = min((timer for timer in timers if timer is not None), default=None)

    def rows_held(self, store: SegmentStore) -> int:
        """Rows of the shared extent, plus rows and runs of the eager queries."""
        own = sum(entry.rows for entry in Catalog.read(StorePart(store, 0, PARTS)).queries.values())
        return own + rows_in_state(StorePart(store, 1, PARTS), 1)

    def _extents(self, name: str) -> Extents:
        return self.operators[name].query.extents

    def _names(self, name: str) -> list[str]:
        """A query, and the equal ones that get its rows."""
        return [name, *self._followers[name]]

    def _operator(self, name: str, scheme: str) -> CoalesceOperator:
        """A query's own operator under a scheme."""
        if scheme == EAGER or self._extents(name).is_history:
            return self.operators[name]
        if name not in self._lazy_operators:
            lazy = self._asked[name].under(LAZY)
            self._lazy_operators[name] = lazy.operator([self._schema], streaming=False)  # it has warned already
        return self._lazy_operators[name]

    def _own_scheme(self, name: str) -> str:
        """The scheme of a query without a policy."""
        return LAZY if self._asked[name].scheme == LAZY else EAGER

    def _target(self, name: str, entry: Entry | None = None) -> str:
        """The scheme that a query should have. Without a window it keeps its own."""
        if self._extents(name).is_history:
            return self._own_scheme(name)
        decided = entry.wish if entry is not None and self.query.adapting is not None else None
        return decided or self.query.scheme_of(name)

    def _should_share(self, name: str, entry: Entry | None = None) -> bool:
        return self._target(name, entry) == LAZY and self._extents(name).window.can_share

    def _lazy_now_or_soon(self, catalog: Catalog) -> list[str]:
        """The queries for which rows are kept in the shared extent: those that read it, and those that should."""
        entries = catalog.queries.items()
        return [name for name, entry in entries if entry.own is None or self._should_share(name, entry)]

    def _update_schemes(
        self, store: SegmentStore, catalog: Catalog, shared: SharedExtent, was: Progress, step: Step
    ) -> None:
        """Add new queries, remove old ones, and switch the schemes that should and can be switched."""
        definitions = {name: _definition(self._asked[name]) for name in self._followers}
        for name, entry in list(catalog.queries.items()):
            if entry.definition != definitions.get(name):
                del catalog.queries[name]
                heirs = (n for n in definitions if n not in catalog.queries and definitions[n] == entry.definition)
                heir = next(heirs, None)
                if heir is None:
                    _clear(store, entry, step)
                else:  # an equal query that got the rows of this one, or the same under another name
                    catalog.queries[heir] = entry
        for name, definition in definitions.items():
            if name not in catalog.queries:
                scheme = self._target(name)
                catalog.add(name, scheme, definition, None if self._should_share(name) else scheme)
            entry = catalog.queries[name]
            if entry.own is None and entry.scheme == EAGER:  # written by a release that did not say which one it is
                entry.own = entry.scheme = self._own_scheme(name)
            self._update_scheme(name, store, catalog, shared, was, step)
        if self._lazy_now_or_soon(catalog) and not catalog.shared:
            catalog.covered_us = FIRST if was.latest <= FIRST else was.latest + 1

    def _update_scheme(
        self, name: str, store: SegmentStore, catalog: Catalog, shared: SharedExtent, was: Progress, step: Step
    ) -> None:
        """Switch a query to the scheme that it should have, if that is possible now."""
        entry = catalog.queries[name]
        target, shares = self._target(name, entry), self._should_share(name, entry)
        if entry.own is None and not shares:
            self._make_eager(name, store, entry, shared, was, step)
        elif entry.own is not None and shares and self._views[name].is_covered(entry, catalog, shared, was):
            entry.counted = self._operator(name, entry.own).counted(_own_store(store, entry))
            _clear(store, entry, step)
            entry.scheme, entry.own, entry.floor_us = LAZY, None, FIRST
            step.metrics[metrics.SWITCHED] += 1
        elif entry.own is not None and not shares and entry.own != target:
            before, after = self._operator(name, entry.own), self._operator(name, target)
            after.convert(_own_store(store, entry), before)
            entry.scheme = entry.own = target
            step.metrics[metrics.SWITCHED] += 1

    def _make_eager(
        self, name: str, store: SegmentStore, entry: Entry, shared: SharedExtent, was: Progress, step: Step
    ) -> None:
        """Build an eager extent from the shared rows. The output of these steps is ignored: it was emitted before."""
        rows = shared.rows(self._views[name].floor(entry, was), END_OF_TIME)
        own_rows = self._of_query(name, rows.to_batches())
        own_store, operator = _own_store(store, entry), self.operators[name]
        if self._extents(name).slide_rows is not None:
            operator.count_from(own_store, entry.counted - self._views[name].settled(entry, shared, was))
        found = [operator.step(own_store, own_rows, NO_WATERMARK, FlushMode.NOTHING, was.latest)]
        if was.until != NO_WATERMARK:
            found.append(operator.step(own_store, [], was.until))
        for each in found:
            _count_rows(entry, each, step)
        entry.scheme, entry.own, entry.timer_us = EAGER, EAGER, found[-1].timer_us
        step.metrics[metrics.SWITCHED] += 1

    def _of_query(self, name: str, blocks: Sequence[pa.RecordBatch]) -> list[Arrival]:
        """The rows whose group columns in a query are not null."""
        found = []
        for block in blocks:
            null = without_group(block, self._groups[name])
            found.append(Arrival(0, block.filter(pa.array(~null)) if null.any() else block))
        return [arrival for arrival in found if arrival.block.num_rows]

    def _evaluate_lazy(
        self,
        lazy: Mapping[str, Entry],
        shared: SharedExtent,
        was: Progress,
        now: Progress,
        step: Step,
        duplicates: list[pa.RecordBatch],
    ) -> None:
        """Emit the extents of lazy queries that are final, and collect rows that are duplicates for some grouping."""
        for group in dict.fromkeys(self._groups[name] for name in lazy):
            found = shared.duplicates(group, was.until, now.until, self.readers[0].schema.names)
            if found is not None:
                duplicates.append(self.readers[0].raw(found))
        for name, entry in lazy.items():
            operator, spec = self.operators[name], self._specs[name]
            found = self._views[name].final(entry, shared, was, now)
            if found is None:
                continue
            tuples, ranges = found
            linked, compared = shared.links(tuples, spec)
            step.metrics[metrics.COMPARED] += compared
            self._emit(name, operator.rows_of(FinalExtents(tuples, linked, ranges)), step)
            self._count_links(name, int(linked.sum()), len(tuples) - int(tuples.heads.sum()), step)

    def _add_own(self, name: str, found: Step, step: Step, duplicates: list[pa.RecordBatch]) -> None:
        """Add the results of a query's own operator."""
        for rows in found.output:
            self._emit(name, rows, step)
        duplicates += [rejected.rows for rejected in found.rejected]
        step.metrics[metrics.COMPARED] += found.metrics[metrics.COMPARED]
        self._count_links(name, found.metrics[metrics.COALESCED], found.metrics[metrics.NEIGHBOURS], step)

    def _count_links(self, name: str, coalesced: int, neighbours: int, step: Step) -> None:
        for each in self._names(name):
            step.metrics[metrics.coalesced(each)] += coalesced
            step.metrics[metrics.neighbours(each)] += neighbours

    def _emit(self, name: str, rows: pa.RecordBatch, step: Step) -> None:
        """Emit the rows of a query, for it and for equal ones."""
        for each in self._names(name):
            self._emit_one(each, rows, step)

    def _emit_one(self, name: str, rows: pa.RecordBatch, step: Step) -> None:
        rows = finished(rows, *self._results.get(name, (None, None)))
        if not rows.num_rows:
            return
        columns = [pa.repeat(name, rows.num_rows)]
        names = rows.schema.names
        for field in list(self.output_schema)[1:]:
            columns.append(rows.column(field.name) if field.name in names else pa.nulls(rows.num_rows, field.type))
        step.output.append(pa.RecordBatch.from_arrays(columns, schema=self.output_schema))
        step.metrics[metrics.MATCHED] += rows.num_rows

    def _reject(self, blocks: Sequence[pa.RecordBatch], duplicates: Sequence[pa.RecordBatch], step: Step) -> None:
        """Reject, once each, the rows that some query cannot use: null groups, and duplicates of an instant."""
        every = dict.fromkeys(name for group in self._groups.values() for name in group)
        reader = self.readers[0]
        for block in blocks:
            null = without_group(block, every)
            self._reject_rows(Code.NULL_GROUP, reader.raw(block.filter(pa.array(null))), step)
        if duplicates:
            rows = pa.Table.from_batches(duplicates, reader.schema).combine_chunks()
            has_group = ~without_group(rows, every)
            first = np.unique(ranks_of_rows(rows), return_index=True)[1]
            for batch in take_table(rows, first[has_group[first]]).to_batches():
                self._reject_rows(Code.DUPLICATE_TIMESTAMP, batch, step)

    def _reject_rows(self, code: Code, rows: pa.RecordBatch, step: Step) -> None:
        if rows.num_rows:
            step.rejected.append(Rejected(0, code, rows))
            step.metrics[metrics.REJECTED] += rows.num_rows
            step.metrics[metrics.PROCESSED] -= rows.num_rows


def _definition(query: Coalesce) -> str:
    """Identifies what a query's state depends on."""
    return fingerprint(query.group, query.values, query.extents, query.equivalence, query.point)


def _own_store(store: SegmentStore, entry: Entry) -> TrackedStore:
    return TrackedStore(StorePart(store, entry.number, PARTS), entry.segments)


def _count_rows(entry: Entry, found: Step, step: Step) -> None:
    """Count the rows that an eager query's own operator wrote and dropped."""
    for count in (metrics.STORED, metrics.EVICTED):
        step.metrics[count] += found.metrics[count]
    entry.rows += found.metrics[metrics.STORED] - found.metrics[metrics.EVICTED]


def _clear(store: SegmentStore, entry: Entry, step: Step) -> None:
    """Drop the state of an eager query's own operator."""
    _own_store(store, entry).clear()
    step.metrics[metrics.EVICTED] += entry.rows
    entry.rows, entry.timer_us = 0, None

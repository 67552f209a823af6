"""Runs a `TemporalJoin` over the blocks and the state of one bucket.

The pairs of an extent come from a plane sweep (`temporal_queries.plane_sweep`). From one instant to the next only
changed tuples are probed; pairs of unchanged tuples are carried over. If both windows stay in memory, pairs are also
carried over from step to step (`temporal_queries.sliding_join`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whenabouts.core import metrics
from whenabouts.core.arrays.record_batches import one_chunk
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.coalescing.columns import VALID_FROM, VALID_TO, WINDOW_END, time_array, window_end_type
from whenabouts.core.coalescing.extent_evaluator import ExtentEvaluator
from whenabouts.core.coalescing.extents import FinalExtents
from whenabouts.core.coalescing.query import column_names
from whenabouts.core.coalescing.reader import coalescing_reader, timely_blocks
from whenabouts.core.coalescing.sliding_window import SlidingWindow
from whenabouts.core.coalescing.window_ranges import WindowEnds, stream_positions, window_ends_of
from whenabouts.core.errors import Code, InputError, QueryError
from whenabouts.core.expressions.row_predicates import call_predicate
from whenabouts.core.runtime.blocks import times
from whenabouts.core.runtime.keys import NULL_KEY, Keys
from whenabouts.core.runtime.output_memory import Growing
from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK, Arrival, FlushMode, SegmentStore, Step
from whenabouts.core.state.memory_store import StorePart
from whenabouts.core.temporal_queries.join_settings import JoinSettings, not_compared
from whenabouts.core.temporal_queries.periods import PREDICATES, Period
from whenabouts.core.temporal_queries.plane_sweep import SweepSide, candidates
from whenabouts.core.temporal_queries.sliding_join import LastInstant, Periods, WindowRuns, sliding_pairs


class TemporalJoinOperator:
    """Runs a `TemporalJoin` over the blocks and the state of one bucket."""

    needs_latest = True

    def __init__(self, query: JoinSettings, schemas: Sequence[pa.Schema]) -> None:
        self.query = query
        spec = query.coalescing
        self.readers = tuple(
            coalescing_reader(input, name, schema, query.point, spec)
            for input, (name, schema) in enumerate(zip(query.inputs, schemas, strict=True))
        )
        self._evaluators = tuple(ExtentEvaluator(reader, spec) for reader in self.readers)
        plain = [reader.schema for reader in self.readers]
        on = column_names(query.on)
        for name in on:
            if name not in (*spec.group, *spec.values):
                raise not_compared(name)
        self._on = Keys(on, plain, query.inputs)
        self._on_groups = Keys([name for name in on if name in spec.group], plain, query.inputs)
        self.keys = Keys(query.partitioned_by, plain, query.inputs)
        self.event_time = None
        self._names = (*spec.group, *spec.values)
        self._side_columns = [self._names, tuple(name for name in self._names if name not in on)]
        types = [schema.field(query.point.t).type for schema in plain]
        if types[0] != types[1]:
            raise InputError(Code.WRONG_TYPE, f"the times are {types[0]} and {types[1]}", "cast one of them")
        self._time = types[0]
        self.output_schema = self._schema(plain, on)

    def _schema(self, plain: list[pa.Schema], on: tuple[str, ...]) -> pa.Schema:
        columns = [pa.field(WINDOW_END, window_end_type(self._time))] if self.query.extents.slides else []
        for schema, names, suffix in zip(plain, self._side_columns, self.query.suffixes, strict=True):
            columns += [pa.field(name if name in on else name + suffix, schema.field(name).type) for name in names]
        columns += [pa.field(VALID_FROM, self._time), pa.field(VALID_TO, self._time)]
        output = [column.name for column in columns]
        if len(set(output)) < len(output):
            raise QueryError(
                Code.COLUMN_CLASH, f"two output columns share a name: {', '.join(output)}", "choose other suffixes"
            )
        return pa.schema(columns)

    def step(
        self,
        store: SegmentStore,
        arrivals: Sequence[Arrival],
        watermark_us: int,
        demand: FlushMode = FlushMode.NOTHING,
        latest_us: int = NO_WATERMARK,
    ) -> Step:
        """One step of `protocol.Operator`. Cost: the tuples that become final, and their candidates at each instant."""
        step = Step()
        blocks = timely_blocks(self.readers, arrivals, watermark_us, step)
        until = END_OF_TIME if demand is FlushMode.END else watermark_us
        latest = [int(times(block)[1].max()) for side in blocks for block in side if block.num_rows]
        latest_us = max([latest_us, *latest])  # so that both sides are evaluated at the same instants
        sides, timers, ends = [], [], None
        with ExitStack() as in_use:
            for input, evaluator in enumerate(self._evaluators):
                part = StorePart(store, input, 2)
                extents = in_use.enter_context(evaluator.step(part, blocks[input], until, latest_us, step, ends))
                if input == 0 and extents is not None and self.query.extents.slide_rows is not None:
                    ends = self._window_ends(extents)
                sides.append(extents)
                timers.append(step.timer_us)
                step.timer_us = None
            step.timer_us = min((timer for timer in timers if timer is not None), default=None)
            left, right = sides
            if left is not None and right is not None:
                for rows in Growing("pairs").counted(self._joined(left, right)):
                    step.output.append(rows)
                    step.metrics[metrics.MATCHED] += rows.num_rows
        return step

    def _window_ends(self, extents: FinalExtents) -> WindowEnds:
        """The tuples of the left side at which extents end."""
        group, tuples = self.query.coalescing.group, extents.tuples
        order = tuples.numbers if isinstance(tuples, SlidingWindow) else stream_positions(tuples, group)
        return window_ends_of(
            tuples.times, order, extents.ranges, lambda at: pa.table(tuples.taken(at, group), names=list(group))
        )

    def rows_held(self, store: SegmentStore) -> int:
        """Rows and runs of both sides in a bucket's state (for `wrappers.state_limit`)."""
        return sum(each.rows_held(StorePart(store, input, 2)) for input, each in enumerate(self._evaluators))

    def _joined(self, left: FinalExtents, right: FinalExtents) -> Iterator[pa.RecordBatch]:
        """The pairs at each instant at which both sides have tuples.

        Pairs of unchanged tuples are carried over: from one instant to the next only tuples that are new, grew, or lost
        their first constituents are probed. Windows in memory carry pairs over from step to step.
        """
        if isinstance(left.tuples, SlidingWindow) and isinstance(right.tuples, SlidingWindow):
            windows, last = (left.tuples, right.tuples), left.tuples.last_instant
            if isinstance(last, LastInstant) and last.partner() is right.tuples:
                given = windows, (left.ranges, right.ranges), self._keys_of_groups(windows), last
                for found in sliding_pairs(*given, self._reach, self._matching_with_equal_keys):
                    yield self._output(*found)
                return
            left.tuples.last_instant = None
        yield from self._swept(left, right)

    def _swept(self, left: FinalExtents, right: FinalExtents) -> Iterator[pa.RecordBatch]:
        """As `_joined`, without earlier pairs: a plane sweep at each instant."""
        sides = [SweepSide(extents, self._names) for extents in (left, right)]
        keys = self._on.codes([side.rows for side in sides]) if self._on.names else [None, None]
        ends = np.unique(np.concatenate([end for side in sides for end in (side.start, side.end)]))
        for side, key in zip(sides, keys, strict=True):
            side.sort(ends, key)
        a = b = np.empty(0, np.int64)
        instants = np.intersect1d(sides[0].instants, sides[1].instants).tolist()
        for instant in instants:
            new, stayed = zip(*(side.move_to(instant) for side in sides), strict=True)
            stay = sides[0].current[a] & sides[1].current[b]
            pairs = [
                candidates(self.query.relation, sides[0], sides[1], new[0], sides[1].now),
                candidates(self.query.relation, sides[0], sides[1], stayed[0], new[1]),
            ]
            found = tuple(np.concatenate(indices) for indices in zip(*pairs, strict=True))
            good = self._matching(*(side.periods(at) for side, at in zip(sides, found, strict=True)))
            a, b = (np.concatenate([old[stay], more[good]]) for old, more in zip((a, b), found, strict=True))
            if len(a):
                yield self._output(sides[0].at_us[instant], sides[0].periods(a), sides[1].periods(b))
        if instants and isinstance(left.tuples, SlidingWindow) and isinstance(right.tuples, SlidingWindow):
            windows, last = (left.tuples, right.tuples), instants[-1]
            runs = sides[0].runs(a, last), sides[1].runs(b, last)
            left.tuples.last_instant = LastInstant.of(windows, (left.ranges, right.ranges), last, runs)

    def _keys_of_groups(self, windows: tuple[SlidingWindow, SlidingWindow]) -> tuple[IntArray, IntArray]:
        """By group id the code of its columns in `on`: only groups with equal codes can have pairs."""
        ids = [window.groups.ids for window in windows]
        of_both = [np.zeros(len(window.state), np.int64) for window in windows]
        if self._on_groups.names:
            tables = [window.groups.table(of) for window, of in zip(windows, ids, strict=True)]
            for codes, of, found in zip(of_both, ids, self._on_groups.codes(tables), strict=True):
                codes[of] = found
        return of_both[0], of_both[1]

    def _reach(self, runs: WindowRuns, left: bool) -> tuple[IntArray, IntArray]:
        """The periods that partners of these runs must touch: the runs' own, or all time before or after them."""
        if self.query.relation not in ("before", "after"):
            return runs.start, runs.end
        if (self.query.relation == "before") == left:
            return runs.end, np.full(len(runs.end), END_OF_TIME)
        return np.full(len(runs.start), NO_WATERMARK), runs.start

    def _matching_with_equal_keys(self, left: Periods, right: Periods) -> IntArray:
        """As `_matching`, for pairs whose values in `on` are not known to be equal."""
        pairs = self._in_relation(left, right)
        if self._on.names != self._on_groups.names and len(pairs):
            codes = self._on.codes([left.rows(pairs), right.rows(pairs)])
            pairs = pairs[(codes[0] == codes[1]) & (codes[0] != NULL_KEY)]
        return self._passing_predicate(left, right, pairs)

    def _matching(self, left: Periods, right: Periods) -> IntArray:
        """The indices of the aligned pairs that satisfy the query."""
        return self._passing_predicate(left, right, self._in_relation(left, right))

    def _in_relation(self, left: Periods, right: Periods) -> IntArray:
        """The pairs that are in the relation and intersect long enough."""
        periods = [Period(pa.array(side.start), pa.array(side.end)) for side in (left, right)]
        good = np.asarray(PREDICATES[self.query.relation](*periods))
        if self.query.min_duration_us is not None:
            start, end = _intersection(left, right)
            good = good & (end - start >= self.query.min_duration_us)
        return np.flatnonzero(good)

    def _passing_predicate(self, left: Periods, right: Periods, pairs: IntArray) -> IntArray:
        """The pairs that pass the user's predicate."""
        if self.query.matches is None or not len(pairs):
            return pairs
        passes = call_predicate(
            self.query.matches,
            left.rows(pairs),
            right.rows(pairs),
            code=Code.BAD_PREDICATE,
            what="matches",
            hint="it is called with two tables and returns one boolean for each pair of rows",
        )
        passing: IntArray = pairs[passes]
        return passing

    def _output(self, at_us: int, left: Periods, right: Periods) -> pa.RecordBatch:
        columns, every = [], np.arange(len(left.start))
        if self.query.extents.slides:
            columns.append(time_array(np.full(len(every), at_us), self.output_schema.field(WINDOW_END).type))
        for side, names in zip((left, right), self._side_columns, strict=True):
            columns += [one_chunk(column) for column in side.rows(every).select(names).columns]
        start, end = _intersection(left, right)
        is_empty = pa.array(start >= end)
        for ends in (start, end):
            array = time_array(ends, self._time)
            columns.append(pc.if_else(is_empty, pa.scalar(None, array.type), array))
        return pa.RecordBatch.from_arrays(columns, schema=self.output_schema)


def _intersection(left: Periods, right: Periods) -> tuple[IntArray, IntArray]:
    return np.maximum(left.start, right.start), np.minimum(left.end, right.end)

"""Runs a `TimingJoin` over the blocks and the state of one bucket.

A step loads the stored rows within reach, finds the pairs (`timing_join.matching`), emits output
(`timing_join.output`, and for modes other than the inner join `timing_join.finalizer`), and writes the state back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.arrays.record_batches import one_batch, table_of
from whenabouts.core.arrays.typing import FloatArray
from whenabouts.core.durations import parse_duration
from whenabouts.core.joins.output_columns import EVENT_TIME, OfRows
from whenabouts.core.joins.rows import SideRows
from whenabouts.core.joins.sides import LEFT, RIGHT
from whenabouts.core.runtime.blocks import templates_of, times
from whenabouts.core.runtime.event_reader import EventReader
from whenabouts.core.runtime.key_names import of_input, shared
from whenabouts.core.runtime.keys import NULL_KEY, Keys
from whenabouts.core.runtime.output_memory import Growing
from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK, Arrival, FlushMode, SegmentStore, Step
from whenabouts.core.runtime.watermarks import drop_late
from whenabouts.core.state.segment_directory import rows_in_state
from whenabouts.core.state.segment_layout import LEAST_SLOT_US, SLOTS_PER_SPAN, Layout, SegmentRows
from whenabouts.core.state.segmented_state import SegmentedState
from whenabouts.core.times.widened import lengths_of, template_lengths, widened
from whenabouts.core.timing_join.cost import block_rows
from whenabouts.core.timing_join.finalizer import Pairs, finalizer_of, keep_marks
from whenabouts.core.timing_join.matching import Matching
from whenabouts.core.timing_join.output import FinalTimes, JoinOutput
from whenabouts.core.timing_join.settings import WHOLE_BUFFER
from whenabouts.core.timing_join.where import Where

if TYPE_CHECKING:
    from whenabouts.core.timing_join.settings import TimingJoinSettings


MANY_ROWS, MANY_TIMES = 1 << 14, 4
"""Stored rows within reach from which on those of other keys are left out as they are read, if they are also so many
times the arriving rows: a look-up costs about a fifth of what a row costs in a correlation."""


class TimingJoinOperator:
    """The operator of a timing join; see `protocol.Operator`."""

    needs_latest = False

    def __init__(self, query: TimingJoinSettings, schemas: Sequence[pa.Schema], *, streaming: bool) -> None:
        self.query, self._schemas = query, schemas
        specs = (query.left_time, query.right_time)
        self._lengths = lengths_of(*specs)
        self._of_lengths: dict[tuple[tuple[int, int], ...], TimingJoinOperator] = {}
        self.readers = tuple(
            EventReader(input, name, schema, spec)
            for input, (name, schema, spec) in enumerate(zip(query.inputs, schemas, specs, strict=True))
        )
        plain = [reader.schema for reader in self.readers]
        self.keys = Keys(query.key_columns, plain, query.inputs, query.slots)
        self._differences: dict[int, int] = {}
        self._streaming = streaming
        self._block_rows = block_rows(query)
        self._asked_to_wait = query.block_size is not None or query.max_latency is not None
        self._max_latency_us = None if query.max_latency is None else parse_duration(query.max_latency)
        once = shared(query.key_columns)
        where = None if query.where is None else Where(query.where, plain, keys=once, suffixes=query.suffixes)
        self.matching = Matching(query, self.keys, [schema.names for schema in plain], where)
        self._needs_probability = query.best is not None or (query.probability and self.matching.emits_pairs)
        self._final_times = FinalTimes(self.obsolete_before, streaming)
        # Rows that have waited are behind the watermark when they are emitted: no engine may rely on their event time.
        waits = self._block_rows > 1 or not query.mode.plain
        self.event_time = EVENT_TIME if streaming and not waits else None
        self._columns = JoinOutput(
            query.mode,
            (plain[LEFT], plain[RIGHT]),
            keys=once,
            key_types=tuple(t for key, t in zip(self.keys.names, self.keys.types, strict=True) if isinstance(key, str)),
            suffixes=query.suffixes,
            probability=query.probability,
            streaming=streaming,
        )
        blocks = [reader.block_schema for reader in self.readers]
        self._longest = specs[LEFT].max_uncertainty_us or 0, specs[RIGHT].max_uncertainty_us or 0
        self._span_us = _span_us(query, self._longest)
        self._slot_us = max(self._span_us // SLOTS_PER_SPAN, LEAST_SLOT_US)
        compared = {*of_input(query.key_columns, RIGHT), *(where.columns[RIGHT] if where else ())}
        self._finalizer = finalizer_of(query.mode, blocks, compared, self._columns)
        layout = Layout(blocks) if self._finalizer is None else self._finalizer.layout
        self._layout = replace(layout, template_lengths=template_lengths(specs))
        if any(self.matching.templates):  # rows in state refer to templates by number
            names = json.dumps([[name for name, _ in spec.templates] for spec in specs])
            self._layout = replace(self._layout, purpose=self._layout.purpose + names)
        if query.slots is not None:  # they decided which bucket holds a row
            self._layout = replace(self._layout, purpose=f"{self._layout.purpose} {query.slots}")

    @property
    def output_schema(self) -> pa.Schema:
        """Left columns, right columns, `probability`, and on streams `event_time`; semi and anti: left columns only."""
        return self._columns.schema

    def step(
        self,
        store: SegmentStore,
        arrivals: Sequence[Arrival],
        watermark_us: int,
        demand: FlushMode = FlushMode.NOTHING,
        latest_us: int = NO_WATERMARK,
    ) -> Step:
        """One step (`protocol.Operator`). Cost: the arriving rows, the segments within reach, and the pairs."""
        step = Step()
        state = SegmentedState(store, self._layout, slot_us=self._slot_us, span_us=self._span_us)
        lengths = state.lengths(self._lengths)
        if lengths != self._lengths:
            return self._for(lengths).step(store, arrivals, watermark_us, demand, latest_us)
        if demand is not FlushMode.END:
            state.set_retention([self.obsolete_before(input, 0) for input in (LEFT, RIGHT)])
        fresh = self._with_keys(drop_late(self.readers, arrivals, watermark_us, step), step)
        final: list[list[pa.RecordBatch]] = [[], []]
        if self._may_wait(state, fresh, watermark_us, demand):
            for arrival in fresh:
                state.wait(*arrival)
        else:
            until_us = END_OF_TIME if demand is FlushMode.END else watermark_us
            final = self._take_in(state, state.take_waiting() + fresh, until_us, demand, step)
        if self._finalizer is not None:
            until_us = END_OF_TIME if demand is FlushMode.END else self._future_us(state, watermark_us)
            keep = demand is not FlushMode.END
            step.output += self._finalizer.settle(state, final, self._final_times, until_us, keep, step)
        if demand is not FlushMode.END:
            step.metrics[metrics.EVICTED] += state.drop_unneeded()
            self._evict(state, watermark_us, step)
            state.save()
            step.gauges = state.gauges(self.query.inputs)
            step.timer_us = self._next_timer(state)
            step.rows_waiting = state.rows_waiting
        return step

    def rows_of_pairs(self, left: pa.Table, right: pa.Table, pairs: Pairs, step: Step) -> Iterator[pa.RecordBatch]:
        """The output rows of pairs of finite input, given by their positions in tables of block columns."""
        probability = self.matching.probability_column(left, right, pairs) if self._needs_probability else None
        return self._columns.pairs(left, right, pairs, probability, None, step)

    def rows_held(self, store: SegmentStore) -> int:
        """Rows of both inputs in a bucket's state (for `wrappers.state_limit`). One `get`.

        Those that wait to be correlated, or for the choice of their partner, are included.
        """
        return rows_in_state(store, len(self.readers), self._layout.held_for)

    def _for(self, lengths: list[tuple[int, int]]) -> TimingJoinOperator:
        """The operator for a bucket some rows of which are longer or shorter than the query declares now."""
        key = tuple(lengths)
        if key not in self._of_lengths:
            self._of_lengths[key] = TimingJoinOperator(widened(self.query, lengths), self._schemas, streaming=True)
        return self._of_lengths[key]

    def _may_wait(self, state: SegmentedState, fresh: list[Arrival], watermark_us: int, demand: FlushMode) -> bool:
        """Whether a lazy strategy lets the rows wait (ITC Alg. 4: until there are enough, or their time is up)."""
        if demand is not FlushMode.NOTHING and not (demand is FlushMode.BATCH and self._asked_to_wait):
            return False
        rows = state.rows_waiting + sum(arrival.block.num_rows for arrival in fresh)
        due = self._waiting_due_us(state)
        return rows < self._block_rows and (due is None or due > watermark_us)

    def _waiting_due_us(self, state: SegmentedState) -> int | None:
        """The watermark at which waiting rows are due by `max_latency`."""
        if self._max_latency_us is None or state.first_waiting_us is None:
            return None
        return state.first_waiting_us + self._max_latency_us

    def _take_in(
        self, state: SegmentedState, arrivals: list[Arrival], until_us: int, demand: FlushMode, step: Step
    ) -> list[list[pa.RecordBatch]]:
        """Correlate rows with each other and with the state, then store them; returns those that are already final."""
        final: list[list[pa.RecordBatch]] = [[], []]
        if not arrivals:
            return final
        rows = [self._rows(state, input, arrivals) for input in (LEFT, RIGHT)]
        left, right = rows
        matches = None if self._finalizer is None else self._finalizer.begin(state, rows)
        growing = Growing.after(step.output, "pairs")
        for pairs in self.matching.pairs(rows, arrivals, step.metrics):
            if matches is None:
                step.output += growing.counted(self._output(rows, pairs, None, step))
                continue
            needed = self._needs_probability
            probability = self.matching.probabilities(left.table, right.table, *pairs) if needed else None
            if self.matching.emits_pairs:
                step.output += growing.counted(self._output(rows, pairs, probability, step))
            step.output += matches.take(pairs, probability, step)
        for input, side in enumerate(rows):
            if matches is not None:
                before_us = self._final_times.before(input, until_us)
                new, already_final = keep_marks(state, input, side, matches, before_us)
                final[input] += already_final
            if demand is FlushMode.END:
                continue
            if matches is None:
                new = one_batch(side.table.slice(side.stored))
            if new.num_rows:
                state.append(input, new)
                step.metrics[metrics.STORED] += new.num_rows
        return final

    def _with_keys(self, arrivals: list[Arrival], step: Step) -> list[Arrival]:
        """The arrivals without rows with a null key, which match nothing; modes that preserve these rows emit them now.

        Also drops columns that the state does not store.
        """
        kept = []
        for input, block in arrivals:
            if any(block.column(name).null_count for name in self.keys.of(input)):
                missing = self.keys.codes([block], input)[0] == NULL_KEY
                if input in self.query.mode.preserved:
                    rows = pa.Table.from_batches([block])
                    step.output += self._columns.unmatched(input, rows, missing, times(block)[1], step)
                block = block.filter(pa.array(~missing))
            if block.num_rows:
                kept.append(Arrival(input, block.select(self._layout.schemas[input].names)))
        return kept

    def _rows(self, state: SegmentedState, input: int, arrivals: list[Arrival]) -> SideRows:
        """The rows of `input` that this step's correlations can need, one chunk per column."""
        schema = self._layout.schemas[input]
        others = [arrival.block for arrival in arrivals if arrival.input != input]
        held: list[SegmentRows] = []
        stored: list[pa.RecordBatch] = []
        if others and state.rows_of(input):
            reach = self._reach(input, others)
            if self._chooses(state.rows_within(input, *reach), others):
                stored = state.load_chosen(input, *reach, self.keys.among(input, others, 1 - input))
            else:
                held = state.load_marked(input, *reach)
                if self._finalizer is not None:
                    held = [self._finalizer.wanted(each) for each in held]
                stored = [each.rows.select(schema.names) for each in held]
        table = table_of([*stored, *(block for of, block in arrivals if of == input)], schema)
        return SideRows(table, *times(table), templates_of(table), sum(batch.num_rows for batch in stored), tuple(held))

    def _chooses(self, stored: int, others: list[pa.RecordBatch]) -> bool:
        """Whether to leave out stored rows of other keys as they are read: where there are many, and no marks."""
        if self._finalizer is not None or not self.keys.names or self.query.strategy in WHOLE_BUFFER:
            return False
        many: int = max(MANY_ROWS, MANY_TIMES * sum(block.num_rows for block in others))
        return stored > many

    def _reach(self, input: int, others: list[pa.RecordBatch]) -> tuple[int, int]:
        """The range of `t_max` in which rows of `input` can match rows of the other input's blocks."""
        if self.query.strategy in WHOLE_BUFFER:
            return -END_OF_TIME, END_OF_TIME
        ends = [times(block) for block in others]
        lo, hi = self.query.window_from(1 - input)
        longest = self._longest[input]
        return min(int(t_min.min()) for t_min, _ in ends) + lo, max(
            int(t_max.max()) for _, t_max in ends
        ) + hi + longest

    def _output(
        self, rows: list[SideRows], pairs: Pairs, probability: FloatArray | None, step: Step
    ) -> Iterator[pa.RecordBatch]:
        """The pairs' rows with their computed columns; `probability`: if it is needed for other rows, too."""
        (left, right), (l_at, r_at) = rows, pairs
        column: FloatArray | OfRows | None = probability
        if column is None and self._needs_probability:
            column = self.matching.probability_column(left.table, right.table, pairs)
        event_us = np.maximum(left.t_max[l_at], right.t_max[r_at]) if self._streaming else None
        return self._columns.pairs(left.table, right.table, pairs, column, event_us, step)

    def _evict(self, state: SegmentedState, watermark_us: int, step: Step) -> None:
        """Evict rows that neither a future row nor a waiting one can match (ITC Alg. 2 line 8)."""
        future_us = self._future_us(state, watermark_us)
        for input in (LEFT, RIGHT):
            step.metrics[metrics.EVICTED] += state.evict(input, self.obsolete_before(input, future_us))

    def _future_us(self, state: SegmentedState, watermark_us: int) -> int:
        """The least `t_max` of any row that is still to be correlated."""
        first = state.first_waiting_us
        return watermark_us if first is None else min(watermark_us, first)

    def obsolete_before(self, input: int, watermark_us: int) -> int:
        """The eviction bound: rows of `input` with a lesser `t_max` cannot match future rows at this watermark."""
        from whenabouts.core.probability.match_thresholds import eviction_bound  # numba: imported when first needed

        if input not in self._differences:
            self._differences[input] = self.query.least_difference(input)
        return eviction_bound(watermark_us, self._differences[input])

    def _next_timer(self, state: SegmentedState) -> int | None:
        """The least watermark at which a segment can be evicted, a row is final, or waiting rows are due."""
        due = [self._waiting_due_us(state)]
        for input in (LEFT, RIGHT):
            end = state.first_end_us(input)
            if end is not None:
                due.append(end - self.obsolete_before(input, 0))  # the bound is the watermark plus a constant
        if self._finalizer is not None:
            waiting_us = state.first_waiting_us  # rows that wait are correlated before the watermark passes them
            next_final = self._finalizer.next_us(state, self._final_times)
            due += [us for us in next_final if waiting_us is None or us <= waiting_us]
        return min((us for us in due if us is not None), default=None)


def _span_us(query: TimingJoinSettings, longest: tuple[int, int]) -> int:
    """The span of a new bucket's segments: a quarter of the range in which partners can lie."""
    if query.condition.one_sided:
        return LEAST_SLOT_US
    return max((query.condition.hi_us - query.condition.lo_us + sum(longest)) // 4, LEAST_SLOT_US)

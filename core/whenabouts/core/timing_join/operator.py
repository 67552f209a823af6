"""Runs a `TimingJoin` over the blocks and the state of one bucket.

The strategies differ in which rows are correlated with which, and when (here), and in the ranges that spare kernel
calls (`timing_join.strategies`); the set of pairs is the same for all.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core import metrics
from whenabouts.core.arrays.record_batches import one_batch, table_of
from whenabouts.core.arrays.typing import IntArray, Positions
from whenabouts.core.durations import parse_duration
from whenabouts.core.joins.output_columns import EVENT_TIME
from whenabouts.core.joins.rows import SideRows as _Rows
from whenabouts.core.runtime.event_reader import EventReader, templates_of, times
from whenabouts.core.runtime.key_names import of_input, shared
from whenabouts.core.runtime.keys import NULL_KEY, Keys
from whenabouts.core.runtime.output_memory import FEW_ROWS, Growing, bytes_per_row, require_room
from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK, Arrival, FlushMode, SegmentStore, Step
from whenabouts.core.runtime.watermarks import drop_late
from whenabouts.core.state.segment_layout import LEAST_SLOT_US, Layout, SegmentRows
from whenabouts.core.state.segmented_state import SegmentedState, rows_in_state
from whenabouts.core.timing_join.cost import block_rows
from whenabouts.core.timing_join.finalizer import finalizer_of, keep_marks
from whenabouts.core.timing_join.modes import LEFT, RIGHT
from whenabouts.core.timing_join.output import FinalTimes, JoinOutput

if TYPE_CHECKING:
    from whenabouts.core.timing_join.settings import TimingJoinSettings
    from whenabouts.core.timing_join.strategies import CorrelationCounters, Times

_PER_ARRIVAL = frozenset({"simple", "ssort", "eager"})
_WHOLE_BUFFER = frozenset({"simple", "ssort"})


class _Work(NamedTuple):
    """One correlation: rows `[start, stop)` of `base` against rows `[since, known)` of the other input."""

    base: int
    start: int
    stop: int
    known: int
    since: int = 0


class TimingJoinOperator:
    """Runs a `TimingJoin` over the blocks and the state of one bucket."""

    needs_latest = False

    def __init__(self, query: TimingJoinSettings, schemas: Sequence[pa.Schema], *, streaming: bool) -> None:
        self.query = query
        self._specs = (query.left_time, query.right_time)
        self._templates = tuple(tuple(template for _, template in spec.templates) for spec in self._specs)
        self.readers = tuple(
            EventReader(place, name, schema, spec)
            for place, (name, schema, spec) in enumerate(zip(query.inputs, schemas, self._specs, strict=True))
        )
        plain = [reader.schema for reader in self.readers]
        self.keys = Keys(query.key_columns, plain, query.inputs, query.slots)
        self._differences: dict[int, int] = {}
        self._streaming = streaming
        self._block_rows = block_rows(query)
        self._puts_out_pairs = query.best is None and not query.mode.one_sided
        self._first_only = query.mode.one_sided and query.strategy not in _WHOLE_BUFFER
        # What waits lies below the watermark when it comes out: no engine may rely on its event time.
        waits = self._block_rows > 1 or not query.mode.plain
        self.event_time = EVENT_TIME if streaming and not waits else None
        self._columns = JoinOutput(
            query.mode,
            (plain[LEFT], plain[RIGHT]),
            keys=shared(query.key_columns),
            key_types=tuple(t for key, t in zip(self.keys.names, self.keys.types, strict=True) if isinstance(key, str)),
            suffixes=query.suffixes,
            probability=query.probability,
            streaming=streaming,
        )
        blocks = [reader.block_schema for reader in self.readers]
        longest = (self._longest(LEFT), self._longest(RIGHT))
        self._settler = finalizer_of(
            query.mode,
            blocks,
            of_input(query.key_columns, RIGHT),
            self.query.window_from(LEFT),
            longest,
            self._columns,
        )
        self._layout = Layout(blocks) if self._settler is None else self._settler.layout
        if any(self._templates):  # rows in state number their templates
            names = json.dumps([[name for name, _ in spec.templates] for spec in self._specs])
            self._layout = replace(self._layout, purpose=self._layout.purpose + names)
        if query.slots is not None:  # rows in state were placed by them
            self._layout = replace(self._layout, purpose=f"{self._layout.purpose} {query.slots}")

    @property
    def output_schema(self) -> pa.Schema:
        """Left columns, right columns, `probability`, and on streams `event_time`; of one side in semi and anti."""
        return self._columns.schema

    def step(
        self,
        store: SegmentStore,
        arrivals: Sequence[Arrival],
        watermark_us: int,
        demand: FlushMode = FlushMode.NOTHING,
        latest_us: int = NO_WATERMARK,
    ) -> Step:
        """One step of `protocol.Operator`. Cost: the rows that arrived, the segments they reach, and the pairs."""
        step = Step()
        state = SegmentedState(store, self._layout, slot_us=self._slot_us())
        if demand is not FlushMode.END:
            state.set_retention([self.obsolete_before(input, 0) for input in (LEFT, RIGHT)])
        fresh = self._with_keys(drop_late(self.readers, arrivals, watermark_us, step), step)
        crossed: list[list[pa.RecordBatch]] = [[], []]
        if self._may_wait(state, fresh, watermark_us, demand):
            for arrival in fresh:
                state.wait(*arrival)
        else:
            until_us = END_OF_TIME if demand is FlushMode.END else watermark_us
            crossed = self._take_in(state, state.take_waiting() + fresh, until_us, demand, step)
        if self._settler is not None:
            until_us = END_OF_TIME if demand is FlushMode.END else self._future_us(state, watermark_us)
            keep = demand is not FlushMode.END
            step.output += self._settler.settle(state, crossed, self._finality(), until_us, keep, step)
        if demand is not FlushMode.END:
            step.metrics[metrics.EVICTED] += state.drop_unneeded()
            self._evict(state, watermark_us, step)
            state.save()
            step.gauges = state.gauges(self.query.inputs)
            step.timer_us = self._next_timer(state)
            step.rows_waiting = state.rows_waiting
        return step

    def rows_held(self, store: SegmentStore) -> int:
        """Rows of both inputs in a bucket's state, those included that wait (for `wrappers.state_limit`). One `get`."""
        return rows_in_state(store, len(self.readers))

    def _may_wait(self, state: SegmentedState, fresh: list[Arrival], watermark_us: int, demand: FlushMode) -> bool:
        """Whether a lazy strategy goes on waiting (ITC Alg. 4: "enough" tuples, or their time is up)."""
        if demand is not FlushMode.NOTHING:
            return False
        rows = state.rows_waiting + sum(arrival.block.num_rows for arrival in fresh)
        due = self._waiting_due_us(state)
        return rows < self._block_rows and (due is None or due > watermark_us)

    def _waiting_due_us(self, state: SegmentedState) -> int | None:
        """The watermark at which waiting rows are due by `max_latency`."""
        if self.query.max_latency is None or state.first_waiting_us is None:
            return None
        return state.first_waiting_us + parse_duration(self.query.max_latency)

    def _take_in(
        self, state: SegmentedState, arrivals: list[Arrival], until_us: int, demand: FlushMode, step: Step
    ) -> list[list[pa.RecordBatch]]:
        """Correlate rows with each other and with the state, then store them; gives back those that are final."""
        crossed: list[list[pa.RecordBatch]] = [[], []]
        if not arrivals:
            return crossed
        rows = [self._rows(state, input, arrivals) for input in (LEFT, RIGHT)]
        left, right = rows
        round_ = None if self._settler is None else self._settler.begin(state, rows)
        growing = Growing.after(step.output, "pairs")
        for pairs in self._pairs(rows, arrivals, step):
            if self._puts_out_pairs:
                step.output += growing.counted(self._output(rows, pairs, step))
            if round_ is not None:
                probability = None if self.query.best is None else self.probabilities(left.table, right.table, *pairs)
                step.output += round_.take(pairs, probability, step)
        for input, side in enumerate(rows):
            if round_ is None:
                new = one_batch(side.table.slice(side.stored))
            else:
                new, final = keep_marks(state, input, side, round_, self._finality().before(input, until_us))
                crossed[input].append(final)
            if new.num_rows and demand is not FlushMode.END:
                state.append(input, new)
                step.metrics[metrics.STORED] += new.num_rows
        return crossed

    def _finality(self) -> FinalTimes:
        return FinalTimes(self.obsolete_before, self._streaming)

    def _with_keys(self, arrivals: list[Arrival], step: Step) -> list[Arrival]:
        """Take rows with a null key out: they match nothing, and where a mode wants them they come out at once.

        Columns that the state does not keep go here too.
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

    def _rows(self, state: SegmentedState, input: int, arrivals: list[Arrival]) -> _Rows:
        """The rows of `input` that this step's correlations can need, in one chunk a column."""
        schema = self._layout.schemas[input]
        others = [arrival.block for arrival in arrivals if arrival.input != input]
        held: list[SegmentRows] = state.load_marked(input, *self._reach(input, others)) if others else []
        if self._settler is not None:
            held = [self._settler.wanted(each) for each in held]
        stored = [each.rows.select(schema.names) for each in held]
        table = table_of([*stored, *(block for place, block in arrivals if place == input)], schema)
        return _Rows(table, *times(table), templates_of(table), sum(batch.num_rows for batch in stored), tuple(held))

    def _reach(self, input: int, others: list[pa.RecordBatch]) -> tuple[int, int]:
        """The stretch of t_max in which rows of `input` can have partners among the blocks of the other input."""
        if self.query.strategy in _WHOLE_BUFFER:
            return -END_OF_TIME, END_OF_TIME
        ends = [times(block) for block in others]
        lo, hi = self.query.window_from(1 - input)
        longest = self._longest(input)
        return min(int(t_min.min()) for t_min, _ in ends) + lo, max(
            int(t_max.max()) for _, t_max in ends
        ) + hi + longest

    def _longest(self, input: int) -> int:
        return self._specs[input].max_uncertainty_us or 0

    def _pairs(
        self, rows: list[_Rows], arrivals: list[Arrival], step: Step
    ) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int32]]]:
        """(left positions, right positions) of all matching pairs in which at least one row is new.

        In semi and anti modes of one such pair of each left row; those that have met a partner before are not among
        the rows.
        """
        from whenabouts.core.timing_join.strategies import (  # numba: imported when first needed
            CorrelationCounters,
            correlate,
        )

        codes = self.keys.codes([side.table for side in rows]) if self.query.key_columns else [None, None]
        counters = CorrelationCounters()
        for work in self._work(rows, arrivals):
            base, target = work.base, 1 - work.base
            for base_at, target_at in correlate(
                _times(rows[base], codes[base], work.start, work.stop),
                _times(rows[target], codes[target], work.since, work.known),
                *self.query.window_from(base),
                self.query.condition.confidence,
                strategy=self.query.strategy,
                base_lengths=self._lengths(base, rows[base]),
                target_lengths=self._lengths(target, rows[target]),
                counters=counters,
                base_templates=self._templates[base],
                target_templates=self._templates[target],
                base_is_right=base == RIGHT,
                first_only=self._first_only,
                expect=self._room_for(rows) if self._puts_out_pairs else None,
            ):
                base_at = base_at + np.int32(work.start) if work.start else base_at
                target_at = target_at + np.int32(work.since) if work.since else target_at
                yield (base_at, target_at) if base == LEFT else (target_at, base_at)
        _add(counters, step.metrics)

    def _room_for(self, rows: list[_Rows]) -> Callable[[int, int], None]:
        """Refuses pairs of which more are certain than memory holds (QueryError WA-2201)."""

        def expect(at_least: int, at_most: int) -> None:
            if at_least < FEW_ROWS:
                return
            tables, once = [side.table for side in rows], shared(self.query.key_columns)
            left, right = (reader.schema.names for reader in self.readers)
            width = bytes_per_row(tables, [left, [name for name in right if name not in once]], computed=2)
            sizes = " x ".join(f"{table.num_rows:,}" for table in tables)
            require_room(at_least, width, f"pairs of {sizes} rows", at_most=at_most)

        return expect

    def _work(self, rows: list[_Rows], arrivals: list[Arrival]) -> list[_Work]:
        """Which rows meet which, so that each pair with a new row in it is met exactly once.

        One arrival after the other for the strategies that work per arrival (ITC Alg. 1 and 2); as one block for the
        others: new left rows against all right rows, then new right rows against the stored left ones, which mends
        Alg. 5 and 6, where only one side runs. Where one partner decides about a left row, left rows are the base of
        both: so each looks for its own, and no pair but that is formed.
        """
        if self._first_only:
            left, right = rows
            both = [
                _Work(LEFT, left.stored, len(left.t_max), len(right.t_max)),
                _Work(LEFT, 0, left.stored, len(right.t_max), since=right.stored),
            ]
            return [work for work in both if work.stop > work.start]
        if self.query.strategy not in _PER_ARRIVAL:
            left, right = rows
            return [
                work
                for work in (
                    _Work(LEFT, left.stored, len(left.t_max), len(right.t_max)),
                    _Work(RIGHT, right.stored, len(right.t_max), left.stored),
                )
                if work.stop > work.start
            ]
        seen = [side.stored for side in rows]
        works: list[_Work] = []
        for input, block in arrivals:
            start, stop = seen[input], seen[input] + block.num_rows
            if works and works[-1].base == input:  # rows of one input do not meet: their blocks can go together
                start = works.pop().start
            works.append(_Work(input, start, stop, seen[1 - input]))
            seen[input] = stop
        return works

    def _lengths(self, input: int, side: _Rows) -> tuple[int, int]:
        """(rho, pi): the declared lengths, or on undeclared finite input the greatest there is."""
        longest = self._specs[input].max_uncertainty_us
        if longest is None:
            longest = int((side.t_max - side.t_min).max(initial=0))
        return self._specs[input].min_uncertainty_us, longest

    def _output(
        self, rows: list[_Rows], pairs: tuple[NDArray[np.int32], NDArray[np.int32]], step: Step
    ) -> Iterator[pa.RecordBatch]:
        """The pairs' rows with their computed columns."""
        (left, right), (l_at, r_at) = rows, pairs
        probability = self.probabilities(left.table, right.table, l_at, r_at) if self.query.probability else None
        event_us = np.maximum(left.t_max[l_at], right.t_max[r_at]) if self._streaming else None
        yield from self._columns.pairs(left.table, right.table, pairs, probability, event_us, step)

    def probabilities(
        self, left: pa.Table, right: pa.Table, left_at: Positions, right_at: Positions
    ) -> NDArray[np.float64]:
        """The canonical kernel's value for the pairs (left_at[i], right_at[i]) of two tables of blocks. O(pairs)."""
        window = self.query.condition.lo_us, self.query.condition.hi_us
        if not any(self._templates):
            from whenabouts.core.probability.satisfaction_probability import (
                probabilities_at,  # numba: imported when first needed
            )

            return probabilities_at(*times(left), *times(right), left_at, right_at, *window)
        from whenabouts.core.probability.histogram_arrays import shapes_of
        from whenabouts.core.probability.histogram_probability import shape_probabilities_at

        sides = []
        for side in (left, right):
            template = templates_of(side)
            sides.append((*times(side), np.empty(0, np.int32) if template is None else template))
        shapes = [shapes_of(templates) for templates in self._templates]
        return shape_probabilities_at(sides[0], sides[1], left_at, right_at, shapes[0], shapes[1], *window)

    def _slot_us(self) -> int:
        """A quarter of the stretch in which partners are found, for new buckets."""
        condition = self.query.condition
        if condition.one_sided:
            return LEAST_SLOT_US
        reach = condition.hi_us - condition.lo_us + self._longest(LEFT) + self._longest(RIGHT)
        return max(reach // 4, LEAST_SLOT_US)

    def _evict(self, state: SegmentedState, watermark_us: int, step: Step) -> None:
        """Drop rows that no future row can match (ITC Alg. 2 line 8), nor any row that still waits."""
        future_us = self._future_us(state, watermark_us)
        for input in (LEFT, RIGHT):
            step.metrics[metrics.EVICTED] += state.evict(input, self.obsolete_before(input, future_us))

    def _future_us(self, state: SegmentedState, watermark_us: int) -> int:
        """No row that is still to be correlated has a lesser `t_max`."""
        first = state.first_waiting_us
        return watermark_us if first is None else min(watermark_us, first)

    def obsolete_before(self, input: int, watermark_us: int) -> int:
        """No row of `input` with a lesser `t_max` can match what is still to come at this watermark."""
        from whenabouts.core.probability.match_thresholds import eviction_bound  # numba: imported when first needed

        if input not in self._differences:
            self._differences[input] = self.query.least_difference(input)
        return eviction_bound(watermark_us, self._differences[input])

    def _next_timer(self, state: SegmentedState) -> int | None:
        """The least watermark at which a segment can go, a row is final or waiting rows are due."""
        due = [self._waiting_due_us(state)]
        for input in (LEFT, RIGHT):
            end = state.first_end_us(input)
            if end is not None:
                due.append(end - self.obsolete_before(input, 0))  # the bound moves with the watermark
        if self._settler is not None:
            held_back = state.first_waiting_us  # no watermark gets past rows that wait: they are taken in first
            final = self._settler.next_us(state, self._finality())
            due += [us for us in final if held_back is None or us <= held_back]
        return min((us for us in due if us is not None), default=None)


def _times(side: _Rows, codes: IntArray | None, start: int, stop: int) -> Times:
    from whenabouts.core.timing_join.strategies import Times

    taken = slice(start, stop)
    return Times(
        side.t_min[taken],
        side.t_max[taken],
        None if codes is None else codes[taken],
        None if side.template is None else side.template[taken],
    )


def _add(counters: CorrelationCounters, counts: Counter[str]) -> None:
    counts[metrics.PROBED] += counters.probed
    counts[metrics.SURE] += counters.sure
    counts[metrics.LOOKUP_HITS] += counters.lookup_hits
    counts[metrics.CORRELATIONS] += counters.correlations

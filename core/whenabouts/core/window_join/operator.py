"""Runs a `WindowJoin` over the blocks and the state of one bucket.

State holds the rows of every stream for as long as the tightened window graph requires, or, in forward evaluation, the
windows of its buffers. Backward evaluation joins each new row on arrival. Forward evaluation leaves rows in state until
the watermark has passed them, then sweeps them in time order, and stores how far its modes have come.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.arrays.record_batches import one_batch, table_of
from whenabouts.core.arrays.typing import BoolArray, Positions
from whenabouts.core.joins.output_columns import Column, OfRows
from whenabouts.core.joins.pair_conditions import SqlPredicate
from whenabouts.core.joins.rows import SideRows
from whenabouts.core.probability.possibility import instants_outside
from whenabouts.core.runtime.blocks import templates_of, times
from whenabouts.core.runtime.event_reader import EventReader
from whenabouts.core.runtime.key_names import shared
from whenabouts.core.runtime.keys import NULL_KEY, Keys
from whenabouts.core.runtime.output_memory import FEW_ROWS, Growing, bytes_per_row, require_room
from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK, Arrival, FlushMode, SegmentStore, Step
from whenabouts.core.runtime.watermarks import drop_late
from whenabouts.core.state.segment_directory import rows_in_state
from whenabouts.core.state.segment_layout import LEAST_SLOT_US, Layout
from whenabouts.core.state.segmented_state import SegmentedState
from whenabouts.core.window_join.cost import cheapest_algorithm, choose
from whenabouts.core.window_join.edge_probabilities import edge_probabilities, probabilities_of_all
from whenabouts.core.window_join.graph import OPEN_US, Edge, WindowGraph
from whenabouts.core.window_join.join_orders import JoinOrder, forward_windows, order_from
from whenabouts.core.window_join.output import JOINT, T_LAST, CombinationColumns, Span
from whenabouts.core.window_join.stream_index import StreamViews, pair_test

if TYPE_CHECKING:
    from whenabouts.core.window_join.expansion import Expansion, StreamRows
    from whenabouts.core.window_join.forward_evaluation import ForwardSweep
    from whenabouts.core.window_join.settings import WindowJoinSettings


_EMPTY = np.empty(0, np.int32)
_OF_THE_SWEEP = (
    metrics.PERIODS,
    metrics.PERIODS_SHRUNK,
    metrics.TUPLES_DROPPED,
    metrics.TUPLES_ADMITTED,
    metrics.PERIOD_TESTS,
)
"""What `forward_evaluation` counts, in its order."""


class WindowJoinOperator:
    """The operator of a window join; see `protocol.Operator`."""

    needs_latest = False

    def __init__(self, query: WindowJoinSettings, schemas: Sequence[pa.Schema], *, streaming: bool) -> None:
        self.query = query
        self._streaming = streaming
        self._specs = [spec for _, spec in query.times]
        self.readers = tuple(
            EventReader(input, name, schema, spec)
            for input, (schema, (name, spec)) in enumerate(zip(schemas, query.times, strict=True))
        )
        plain = [reader.schema for reader in self.readers]
        self.keys = Keys(query.key_columns, plain, query.inputs, query.slots)
        asked = [f"probability_{edge.first}_{edge.second}" for edge in self._uncertain()]
        self._columns = CombinationColumns(
            dict(zip(query.inputs, plain, strict=True)),
            keys=shared(query.key_columns),
            probabilities=[*asked, *([JOINT] if query.joint else [])],
        )
        self.output_schema = self._columns.schema
        for _, predicate in query.predicates:
            if isinstance(predicate, SqlPredicate):
                predicate.check(dict(zip(query.inputs, plain, strict=True)))
        self._choice = choose(query, streaming=streaming)
        self.event_time = T_LAST if streaming and self._choice.strategy == "backward" else None
        purpose = "" if self._choice.strategy == "backward" else "in the order of time"
        if query.slots is not None:  # they decided which bucket holds a row
            purpose += f"{query.slots}"
        self._layout = Layout([reader.block_schema for reader in self.readers], purpose=purpose)
        self._ends = query.graph().ends

    def _uncertain(self) -> list[Edge]:
        return [edge for edge in self.query.edges if edge.confidence is not None]

    def step(
        self,
        store: SegmentStore,
        arrivals: Sequence[Arrival],
        watermark_us: int,
        demand: FlushMode = FlushMode.NOTHING,
        latest_us: int = NO_WATERMARK,
    ) -> Step:
        """One step (`protocol.Operator`). Cost: the arriving rows, the segments within reach, and the combinations."""
        step = Step()
        graph, ended = self.query.graph(), demand is FlushMode.END
        state = SegmentedState(store, self._layout, slot_us=self._slot_us(graph))
        if not ended and self._streaming:
            state.set_retention([-self._needed_us(graph, input) for input in range(len(self.readers))])
        fresh = self._with_keys(drop_late(self.readers, arrivals, watermark_us, step))
        if not self._streaming:
            self._join_all(fresh, step)
        elif self._choice.strategy == "forward":
            self._sweep(state, fresh, END_OF_TIME if ended else watermark_us, step)
        else:
            self._arrive(state, fresh, step)
        if not ended:
            self._keep(state, fresh, watermark_us, step)
            state.save()
            step.gauges = state.gauges(self.query.inputs)
            step.timer_us = self._next_timer(state, graph)
        return step

    def rows_held(self, store: SegmentStore) -> int:
        """Rows of all streams in a bucket's state (for `wrappers.state_limit`). Cost: one `get`."""
        return rows_in_state(store, len(self.readers))

    def _with_keys(self, arrivals: list[Arrival]) -> list[Arrival]:
        """The arrivals without rows with a null key, which match nothing."""
        kept = []
        for input, block in arrivals:
            if any(block.column(name).null_count for name in self.keys.of(input)):
                block = block.filter(pa.array(self.keys.codes([block], input)[0] != NULL_KEY))
            if block.num_rows:
                kept.append(Arrival(input, block))
        return kept

    def rates(self, arrivals: Sequence[Arrival]) -> list[float]:
        """Rows per second and key of each stream in a sample; empty if a stream has no row."""
        fresh = self._with_keys(list(arrivals))
        if len({arrival.input for arrival in fresh}) < len(self.readers):
            return []
        return self._views([self._side([], fresh, input) for input in range(len(self.readers))]).rates()

    def _join_all(self, fresh: list[Arrival], step: Step) -> None:
        """Finite input: all rows are present, so rates are measured before an algorithm is chosen."""
        if len({arrival.input for arrival in fresh}) < len(self.readers):
            return  # a stream has no row
        rows = [self._side([], fresh, input) for input in range(len(self.readers))]
        graph, views, choice = self._measured(rows), self._views(rows), self._choice
        if "auto" in (self.query.strategy, self.query.conservative):
            choice = cheapest_algorithm(self.query, graph, views.rates(), streaming=False)
        if choice.strategy == "forward":
            from whenabouts.core.window_join.forward_evaluation import ForwardSweep  # numba: imported when first needed

            orders = [order_from(base, graph, "forward", choice.conservative) for base in range(len(rows))]
            sweep = ForwardSweep.restored([], forward_windows(graph, choice.conservative), NO_WATERMARK)
            self._join_chains(sweep, orders, views, rows, END_OF_TIME, step)
            return
        join_order = order_from(choice.base, graph, "backward", choice.conservative)
        self._expand(join_order, views.every(), rows, step)

    def _arrive(self, state: SegmentedState, fresh: list[Arrival], step: Step) -> None:
        """Backward evaluation: join every new row with the rows that arrived before it.

        The rows of one step count as arriving stream by stream, so each combination is found once, from its newest row.
        """
        new = {arrival.input for arrival in fresh}
        if not new:
            return
        spans = {input: _span([arrival.block for arrival in fresh if arrival.input == input]) for input in new}
        rows = []
        for other in range(len(self.readers)):
            reach = _hull([self._reach(input, other, *spans[input]) for input in new if input != other])
            rows.append(self._side(self._load(state, other, reach), fresh, other))
        views = self._views(rows)
        for input in sorted(new):
            visible = [views.stored(other) if other > input else views.all(other) for other in range(len(rows))]
            visible[input] = views.new(input)
            self._expand(self._join_orders[input], visible, rows, step)

    def _sweep(self, state: SegmentedState, fresh: list[Arrival], until_us: int, step: Step) -> None:
        """Forward evaluation: continue both modes over the rows that the watermark has passed."""
        if until_us <= state.progress_us:
            return
        from whenabouts.core.window_join.forward_evaluation import ForwardSweep  # numba: imported when first needed

        windows_us = forward_windows(self.query.graph(), self._choice.conservative)
        sweep = ForwardSweep.restored(state.notes, windows_us, state.progress_us)
        rows = []
        for input in range(len(self.readers)):
            stored = self._load(state, input, (sweep.cut_us[input], until_us - 1))
            rows.append(self._side(stored, fresh if until_us == END_OF_TIME else [], input))
        self._join_chains(sweep, self._join_orders, self._views(rows), rows, until_us, step)
        state.notes, state.progress_us = sweep.numbers(), until_us

    def _join_chains(
        self,
        sweep: ForwardSweep,
        join_orders: list[JoinOrder],
        views: StreamViews,
        rows: list[SideRows],
        until_us: int,
        step: Step,
    ) -> None:
        """Sweep the rows before an instant, and emit the combinations of the admitted ones with their chains."""
        visible, in_time = views.every(), [views.in_time_order(stream) for stream in range(len(rows))]
        anchors, codes = zip(*in_time, strict=True)
        starts, partners = [side.starts for side in visible], [join_order.streams[1] for join_order in join_orders]
        dropped_us = NO_WATERMARK if until_us == END_OF_TIME else until_us
        admitted, counts = sweep.run(anchors, codes, starts, partners, until_us, dropped_us)
        for name, count in zip(_OF_THE_SWEEP, counts.tolist(), strict=True):
            step.metrics[name] += count
        for stream, join_order in enumerate(join_orders):
            mine = np.flatnonzero(admitted.of == stream)
            if mine.size:
                new = visible[stream].at(admitted.base[mine])
                expansion = self._expansion(join_order, [*visible[:stream], new, *visible[stream + 1 :]], rows)
                self._emit(expansion, expansion.of_chains(admitted.chains, mine), rows, step)

    def _expand(self, join_order: JoinOrder, visible: list[StreamRows], rows: list[SideRows], step: Step) -> None:
        """Emit the combinations that start at the base stream's visible rows."""
        if all(len(side.anchor) for side in visible):
            expansion = self._expansion(join_order, visible, rows)
            self._emit(expansion, expansion.combinations(), rows, step)

    def _expansion(self, join_order: JoinOrder, visible: list[StreamRows], rows: list[SideRows]) -> Expansion:
        from whenabouts.core.window_join.expansion import (  # numba: imported when first needed
            Expansion,
            ExpansionCounters,
        )

        return Expansion(
            join_order,
            [visible[stream] for stream in join_order.streams],
            lambda number, one, other: self._holds(number, rows, one, other),
            self._ends,
            self._pair_tests(join_order, rows),
            ExpansionCounters(),
            lambda least: self._require_room(rows, least),
        )

    def _emit(
        self, expansion: Expansion, combinations: Iterator[list[Positions]], rows: list[SideRows], step: Step
    ) -> None:
        """Write combinations, whose positions come by level, and count what the expansion did."""
        growing = Growing.after(step.output, "combinations")
        for at in combinations:
            by_stream = [_EMPTY] * len(rows)
            for level, stream in enumerate(expansion.join_order.streams):
                by_stream[stream] = at[level]
            step.output += growing.counted(self._output(rows, by_stream, step))
        counters = expansion.counters
        step.metrics[metrics.PERIODS] += counters.periods
        step.metrics[metrics.TUPLE_TESTS] += counters.tuple_tests
        step.metrics[metrics.WINDOW_TESTS] += counters.window_tests

    def _require_room(self, rows: list[SideRows], at_least: int) -> None:
        """Refuse a result whose certain combinations do not fit into memory (QueryError WA-2201)."""
        if at_least < FEW_ROWS:
            return
        tables, keys = [side.table for side in rows], shared(self.query.key_columns)
        names = [
            [name for name in reader.schema.names if reader.input == 0 or name not in keys] for reader in self.readers
        ]
        width = bytes_per_row(tables, names, computed=2 + len(self._uncertain()) + self.query.joint)
        sizes = " x ".join(f"{table.num_rows:,}" for table in tables)
        require_room(at_least, width, f"combinations of {sizes} rows")

    @cached_property
    def _join_orders(self) -> list[JoinOrder]:
        """By base stream, the join order of the algorithm that is known before any row."""
        graph, choice = self.query.graph(), self._choice
        return [order_from(base, graph, choice.strategy, choice.conservative) for base in range(len(self.readers))]

    def _views(self, rows: list[SideRows]) -> StreamViews:
        return StreamViews(rows, self.keys, nested=self.query.method == "nested")

    def _pair_tests(self, join_order: JoinOrder, rows: list[SideRows]) -> list[list[Any]]:
        """The predicates by the level at which both of their rows are known."""
        tests: list[list[Any]] = [[] for _ in join_order.streams]
        for pair, predicate in self.query.predicates:
            one, other = (join_order.streams.index(self.query.inputs.index(name)) for name in pair)
            tables = [rows[join_order.streams[level]].table for level in (one, other)]
            tests[max(one, other)].append(pair_test(pair, predicate, tables, (one, other)))
        return tests

    def _holds(self, number: int, rows: list[SideRows], one: Positions, other: Positions) -> BoolArray:
        """Whether an edge holds for rows `one` of its first and `other` of its second stream."""
        edge = self.query.edges[number]
        first, second = self._ends[number]
        if edge.confidence is None:
            apart = rows[second].t_max[other] - rows[first].t_max[one]
            return (apart >= edge.lo_us) & (apart <= edge.hi_us)
        asked = self.query.decided_by(edge)
        assert asked.confidence is not None
        holds: BoolArray = (
            edge_probabilities(self.query, asked, rows[first], rows[second], one, other) >= asked.confidence
        )
        if edge.possible and asked.confidence != 1:
            ends = [(rows[stream].t_min, rows[stream].t_max) for stream in (first, second)]
            if shared_us := self.query.shared_offset_us(edge):
                ends = [(t_min + shared_us, t_max - shared_us) for t_min, t_max in ends]
            holds &= ~instants_outside(ends[0], ends[1], one, other, edge.lo_us, edge.hi_us)
        return holds

    def _output(self, rows: list[SideRows], at: list[Positions], step: Step) -> Iterator[pa.RecordBatch]:
        """Combinations with their computed columns."""
        span = Span()
        extra: list[Column | OfRows | None] = [span.first, span.last]
        for edge in self._uncertain():
            one, other = (self.query.inputs.index(name) for name in (edge.first, edge.second))
            extra.append(edge_probabilities(self.query, edge, rows[one], rows[other], at[one], at[other]))
        if self.query.joint:
            extra.append(probabilities_of_all(self.query, rows, at))
        step.metrics[metrics.MATCHED] += len(at[0])
        yield from self._columns.batches([side.table for side in rows], at, extra)

    def _load(self, state: SegmentedState, input: int, span: tuple[int, int]) -> list[pa.RecordBatch]:
        return state.load(input, *span) if span[0] <= span[1] else []

    def _side(self, stored: list[pa.RecordBatch], arrivals: list[Arrival], input: int) -> SideRows:
        """The rows of an input, one chunk per column: the stored ones, then the new ones."""
        new = [block for of, block in arrivals if of == input]
        table = table_of([*stored, *new], self._layout.schemas[input])
        return SideRows(table, *times(table), templates_of(table), sum(batch.num_rows for batch in stored))

    def _reach(self, base: int, other: int, first_us: int, last_us: int) -> tuple[int, int]:
        """The anchors of rows of `other` that base rows with anchors between two instants can need."""
        if base == other:
            return first_us, last_us
        join_order = self._join_orders[base]
        lo, hi = join_order.bounds[join_order.streams.index(other)][0]
        return (
            -END_OF_TIME if first_us == NO_WATERMARK else first_us + lo,
            END_OF_TIME if last_us == END_OF_TIME else last_us + hi,
        )

    def _measured(self, rows: list[SideRows]) -> WindowGraph:
        """The graph for finite input, with the greatest lengths found where none are declared."""
        if all(spec.max_uncertainty_us is not None for spec in self._specs):
            return self.query.graph()
        return self.query.graph([int((side.t_max - side.t_min).max(initial=0)) for side in rows])

    def _keep(self, state: SegmentedState, fresh: list[Arrival], watermark_us: int, step: Step) -> None:
        """Store the new rows, and evict rows that no future row can match."""
        for input in range(len(self.readers)):
            blocks = [block for of, block in fresh if of == input]
            if blocks:
                state.append(input, one_batch(table_of(blocks, self._layout.schemas[input])))
                step.metrics[metrics.STORED] += sum(block.num_rows for block in blocks)
        if watermark_us == NO_WATERMARK:
            return
        graph = self.query.graph()
        for input in range(len(self.readers)):
            step.metrics[metrics.EVICTED] += state.evict(input, watermark_us - self._horizon_us(graph, input))

    def _needed_us(self, graph: WindowGraph, input: int) -> int:
        """How long a row can still be part of a combination, after its anchor or, in `forward`, once it is passed."""
        horizon = graph.horizon_us(input)
        return max(horizon, 0) if self._choice.strategy == "forward" else horizon

    def _horizon_us(self, graph: WindowGraph, input: int) -> int:
        """How long a row is kept after its anchor; `forward` keeps it for as long as its buffer."""
        if self._choice.strategy == "forward":
            return forward_windows(graph, self._choice.conservative)[input]
        return graph.horizon_us(input)

    def _slot_us(self, graph: WindowGraph) -> int:
        """The slot width of a new bucket: a quarter of the longest time for which rows are kept."""
        longest = max(graph.horizon_us(input) for input in range(len(self.readers)))
        return LEAST_SLOT_US if longest >= OPEN_US else max(longest // 4, LEAST_SLOT_US)

    def _next_timer(self, state: SegmentedState, graph: WindowGraph) -> int | None:
        """The least watermark at which a segment can be evicted or waiting rows are passed."""
        due = []
        for input in range(len(self.readers)):
            end = state.first_end_us(input)
            if end is not None:
                due.append(end + self._horizon_us(graph, input))
            waiting = state.first_from_us(input, state.progress_us) if self._choice.strategy == "forward" else None
            if waiting is not None:
                due.append(waiting + 1)
        return min(due, default=None)


def _span(blocks: Sequence[pa.RecordBatch]) -> tuple[int, int]:
    anchors = [times(block)[1] for block in blocks]
    return min(int(anchor.min()) for anchor in anchors), max(int(anchor.max()) for anchor in anchors)


def _hull(ranges: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """From the least start to the greatest end; the empty range (0, -1) for no ranges."""
    return min((lo for lo, _ in ranges), default=0), max((hi for _, hi in ranges), default=-1)

"""Runs a `WatchClock`: rows wait until the watermark of the reference has passed them, and are watched in its order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.arrays.plain_types import plain
from whenabouts.core.clocks.watching.clock_state import STEP, Alarm, ClockState, state_fields
from whenabouts.core.clocks.watching.fit_alarm import ENDS, HIGH, Capital
from whenabouts.core.clocks.watching.learned_clocks_of_groups import ClocksOfGroups
from whenabouts.core.clocks.watching.query import WatchClock
from whenabouts.core.coalescing.reorder_buffer import ReorderBuffer
from whenabouts.core.durations import format_duration
from whenabouts.core.errors import Code
from whenabouts.core.runtime.blocks import times
from whenabouts.core.runtime.event_reader import EventReader, check_time_column
from whenabouts.core.runtime.protocol import (
    END_OF_TIME,
    NO_WATERMARK,
    Arrival,
    FlushMode,
    Rejected,
    SegmentStore,
    Step,
)
from whenabouts.core.runtime.time_columns import microseconds
from whenabouts.core.runtime.watermarks import drop_late
from whenabouts.core.state.segment_codec import decode, encode
from whenabouts.core.state.segment_directory import rows_in_state
from whenabouts.core.times.time_specs import Point

_CLOCKS = -64
"""The segment of the clocks' states."""


class WatchOperator:
    """Runs a `WatchClock` over the blocks and the state of one bucket."""

    needs_latest = False
    event_time = None  # rows are emitted once the watermark has passed them

    def __init__(self, query: WatchClock, schema: pa.Schema) -> None:
        self.query = query
        self._group = tuple(query.group)
        reader = EventReader(0, query.inputs[0], schema, Point(query.against), groups=self._group)
        check_time_column(reader.schema, query.reading, reader.name)
        self.readers = (reader,)
        self._buffer = ReorderBuffer(reader, self._group, query.lateness_us[0])
        self.keys = self._buffer.keys
        groups = [reader.schema.field(name) for name in self._group]
        self._state = state_fields(groups)
        own = [("time", reader.schema.field(query.against).type), ("kind", pa.string()), ("by_us", pa.int64())]
        own += [("row", pa.int64()), ("sentence", pa.string())]
        self.output_schema = pa.schema([*groups, *(pa.field(name, type_) for name, type_ in own)])
        self._clocks = ClocksOfGroups(query, pa.schema(groups))

    def step(
        self,
        store: SegmentStore,
        arrivals: Sequence[Arrival],
        watermark_us: int,
        demand: FlushMode = FlushMode.NOTHING,
        latest_us: int = NO_WATERMARK,
    ) -> Step:
        """One step of `protocol.Operator`. O(n log n) of the rows that arrive or are watched, and O(groups)."""
        step = Step()
        timely = drop_late(self.readers, arrivals, watermark_us, step, count_processed=False)
        blocks = [self._readable(arrival.block, step) for arrival in timely]
        until = END_OF_TIME if demand is FlushMode.END else watermark_us
        rows, step.timer_us = self._buffer.release(store, blocks, until, step)
        step.metrics[metrics.PROCESSED] += rows.num_rows
        if rows.num_rows:
            self._watch(store, rows, step, keep=demand is not FlushMode.END)
        return step

    def rows_held(self, store: SegmentStore) -> int:
        """Rows that wait."""
        return rows_in_state(store, 1)

    def _readable(self, block: pa.RecordBatch, step: Step) -> pa.RecordBatch:
        """The rows that have a reading; others are rejected."""
        read = microseconds(plain(block.column(self.query.reading)))
        for code, bad in ((Code.NULL_TIME, read.null), (Code.TIME_OUT_OF_RANGE, read.outside)):
            if bad is not None and bad.any():
                rows = self.readers[0].raw(block.filter(pa.array(bad)))
                step.rejected.append(Rejected(0, code, rows))
                step.metrics[metrics.REJECTED] += rows.num_rows
        good = np.ones(block.num_rows, bool)
        for bad in (read.null, read.outside):
            good &= True if bad is None else ~bad
        return block if good.all() else block.filter(pa.array(good))

    def _watch(self, store: SegmentStore, rows: pa.Table, step: Step, *, keep: bool) -> None:
        references = times(rows)[1]
        readings = microseconds(plain(rows.column(self.query.reading).combine_chunks())).us
        data = store.get(_CLOCKS, 0)
        before = pa.Table.from_batches([decode(data, self._state)] if data else [], self._state)
        groups = pa.concat_tables([before.select(self._group), rows.select(self._group)]) if self._group else None
        codes = np.zeros(before.num_rows + len(references), np.int64)
        if groups is not None:
            codes = self.keys.codes([groups])[0]
        states = dict(zip(codes[: before.num_rows].tolist(), _states(before), strict=True))
        order = np.lexsort((readings, references, codes[before.num_rows :]))
        parts = np.flatnonzero(np.diff(codes[before.num_rows :][order], prepend=-1))
        alarms: list[tuple[int, Alarm]] = []
        firsts = dict(zip(codes[::-1].tolist(), range(len(codes) - 1, -1, -1), strict=True))
        members = np.split(order, parts[1:])
        watched = [int(codes[before.num_rows + at[0]]) for at in members]
        of_group = None if groups is None else groups.take(pa.array([firsts[code] for code in watched], pa.int64()))
        for code, at, fit in zip(watched, members, self._clocks.of(of_group, len(watched)), strict=True):
            state = states.setdefault(code, ClockState())
            if fit is None:
                found = state.watch(readings[at], references[at], None, None)
            else:
                expected = fit.expected(readings[at], references[at])
                found = state.watch(expected.readings, references[at], expected.places, fit.test)
            alarms += [(code, each) for each in found]
        if keep:
            store.put(_CLOCKS, 0, encode(self._stored(states, firsts, groups), self._state))
        if alarms:
            step.output.append(self._alarms(alarms, firsts, groups))
            steps = sum(each.kind == STEP for _, each in alarms)
            step.metrics.update(
                {
                    metrics.MATCHED: len(alarms),
                    metrics.CLOCK_STEPS: steps,
                    metrics.CLOCK_MISFITS: len(alarms) - steps,
                }
            )

    def _stored(self, states: dict[int, ClockState], firsts: dict[int, int], groups: pa.Table | None) -> pa.RecordBatch:
        columns = self._group_columns(list(states), firsts, groups)
        columns += [
            pa.array(each, pa.int64()) for each in zip(*(each.numbers() for each in states.values()), strict=True)
        ]
        for name in ("readings", "references"):
            columns.append(pa.array([getattr(each, name) for each in states.values()], pa.list_(pa.int64())))
        return pa.RecordBatch.from_arrays(columns, schema=self._state)

    def _group_columns(self, codes: Sequence[int], firsts: dict[int, int], groups: pa.Table | None) -> list[pa.Array]:
        if groups is None:
            return []
        taken = groups.take(pa.array([firsts[code] for code in codes], pa.int64()))
        return [column.combine_chunks() for column in taken.columns]

    def _alarms(
        self, alarms: list[tuple[int, Alarm]], firsts: dict[int, int], groups: pa.Table | None
    ) -> pa.RecordBatch:
        columns = self._group_columns([code for code, _ in alarms], firsts, groups)
        type_ = self.output_schema.field("time").type
        at = pa.array([each.at_us for _, each in alarms], pa.int64())
        columns.append(at if pa.types.is_int64(type_) else at.cast(pa.timestamp("us", type_.tz)).cast(type_))
        columns.append(pa.array([each.kind for _, each in alarms]))
        columns += [pa.array([getattr(each, name) for _, each in alarms], pa.int64()) for name in ("by_us", "row")]
        columns.append(pa.array([self._sentence(each) for _, each in alarms]))
        return pa.RecordBatch.from_arrays(columns, schema=self.output_schema)

    def _sentence(self, alarm: Alarm) -> str:
        by = format_duration(abs(alarm.by_us))
        if alarm.kind == STEP:
            return f"The clock of {self.query.reading} stepped {'ahead' if alarm.by_us > 0 else 'back'} by {by}."
        if alarm.kind == ENDS:
            return "The learned clock no longer fits: too many delays lie at the ends of its distribution."
        late, other = ("later", "earlier") if alarm.kind == HIGH else ("earlier", "later")
        agrees = alarm.by_us >= 0 if alarm.kind == HIGH else alarm.by_us <= 0
        far = f"by {by} in" if agrees else f"though {by} {other} in"
        return f"The learned clock no longer fits: readings are {late} than it says, {far} the median of the last rows."


def _states(rows: pa.Table) -> Iterator[ClockState]:
    """The clocks of a bucket's state."""
    for each in rows.select([f.name for f in rows.schema if f.name.startswith("_wa_")]).to_pylist():
        logs = tuple(each[f"_wa_{name}"] for name in ("late", "early", "scatter"))
        capital = Capital((logs[0], logs[1], logs[2]), each["_wa_quiet"])
        last = (np.array(each[f"_wa_{name}"], np.int64) for name in ("readings", "references"))
        yield ClockState(each["_wa_rows"], each["_wa_stepped"], capital, *last)

"""Runs of equal values: consecutive events of a group whose values agree and whose gaps are short become one row.

A small operator of another kind than the join - one input, output only when the watermark proves it final, state that
is rewritten rather than appended - kept in the core because it shows that the protocol carries it, and because "merge
repeated readings" is what people do before they join. Temporal coalescing over window extents is its larger sibling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from whenabouts.core import metrics
from whenabouts.core.durations import Duration, parse_duration, parse_non_negative
from whenabouts.core.errors import Code, InputError, QueryError
from whenabouts.core.events import EventReader, times
from whenabouts.core.keys import Keys
from whenabouts.core.lateness import drop_late
from whenabouts.core.protocol import END_OF_TIME, NO_WATERMARK, Arrival, Demand, SegmentStore, Step
from whenabouts.core.segmented_state import SegmentedState
from whenabouts.core.timestamps import Point

VALID_FROM = "valid_from"
VALID_TO = "valid_to"
COUNT = "n"

IntArray = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class RunMerger:
    """Merge consecutive events of a group that have equal `values` and lie at most `gap` apart.

    `time`: a point column. `group`, `values`: columns; nulls equal nulls and NaN equals NaN, also in a group. Events of
    one group at the same time are taken in the order of their values, so that the result does not depend on arrival.
    Raises QueryError WA-2003 for a negative duration, WA-2006 without value columns.

    >>> RunMerger(time=Point("ts"), group="mote", values=["light"], gap="1m").gap
    60000000
    """

    time: Point
    group: str | Sequence[str] = ()
    values: str | Sequence[str] = ()
    gap: Duration = 0
    lateness: Duration = 0

    def __post_init__(self) -> None:
        for name in ("group", "values"):
            given = getattr(self, name)
            object.__setattr__(self, name, (given,) if isinstance(given, str) else tuple(given))
        for name in ("gap", "lateness"):
            object.__setattr__(self, name, parse_non_negative(getattr(self, name), name=name))
        if not self.values:
            raise QueryError(
                Code.BAD_OPTION, "no value columns are given", "name the columns whose equality makes a run"
            )

    @property
    def inputs(self) -> tuple[str, ...]:
        """One input."""
        return ("events",)

    @property
    def lateness_us(self) -> tuple[int, ...]:
        """Microseconds of lateness."""
        return (parse_duration(self.lateness),)

    @property
    def gap_us(self) -> int:
        """Greatest distance of two neighbours in a run."""
        return parse_duration(self.gap)

    def operator(self, schemas: Sequence[pa.Schema], *, streaming: bool) -> RunMergerOperator:
        """The operator for a schema."""
        return RunMergerOperator(self, schemas[0], streaming=streaming)


class RunMergerOperator:
    """Runs a `RunMerger` over the blocks and the state of one bucket.

    State holds the events of the runs that may still change: a row inside the lateness can extend a run, or split it
    anywhere, so the run's ends alone would not do.
    """

    def __init__(self, query: RunMerger, schema: pa.Schema, *, streaming: bool) -> None:
        self.query = query
        self.readers = (EventReader(0, query.inputs[0], schema, query.time),)
        plain = self.readers[0].schema
        for name in (*query.group, *query.values):
            if name not in plain.names:
                raise InputError(
                    Code.MISSING_COLUMN,
                    f"the input has no column {name!r}",
                    f"it has {', '.join(plain.names)}",
                )
        self.keys = Keys(query.group, [plain], query.inputs)
        self._values = Keys(query.values, [plain], query.inputs)
        self.event_time = None  # a run is final only after the watermark has passed it
        time = pa.timestamp("us", "UTC")
        columns = [plain.field(name) for name in (*query.group, *query.values)]
        computed = [pa.field(VALID_FROM, time), pa.field(VALID_TO, time), pa.field(COUNT, pa.int64())]
        self.output_schema = pa.schema([*columns, *computed])
        if len(set(self.output_schema.names)) < len(self.output_schema.names):
            raise QueryError(
                Code.COLUMN_CLASH,
                f"two output columns share a name: {', '.join(self.output_schema.names)}",
                f"{VALID_FROM}, {VALID_TO} and {COUNT} are computed, and a column is a group or a value: rename",
            )

    def step(
        self,
        store: SegmentStore,
        arrivals: Sequence[Arrival],
        watermark_us: int,
        demand: Demand = Demand.NOTHING,
    ) -> Step:
        """One step of `protocol.Operator`. Cost: sorting the rows held, which are those since the last final run."""
        step = Step()
        state = SegmentedState(store, [self.readers[0].block_schema], slot_us=max(4 * self.query.gap_us, 1_000_000))
        fresh = [arrival.block for arrival in drop_late(self.readers, arrivals, watermark_us, step)]
        now = END_OF_TIME if demand is Demand.END else watermark_us
        held = state.load(0, NO_WATERMARK, END_OF_TIME)
        rows = pa.Table.from_batches(held + fresh, self.readers[0].block_schema).combine_chunks()
        runs = self._runs(rows)
        final = runs.final(now, self.query.gap_us)
        if final.any():
            step.output.append(self._output(rows, runs, final))
            step.metrics[metrics.MATCHED] += int(final.sum())
        if demand is not Demand.END:
            self._keep(state, rows, runs, final, step)
            step.metrics[metrics.STORED] += sum(block.num_rows for block in fresh)
            state.save()
            step.timer_us = runs.next_final_us(final, self.query.gap_us)
        return step

    def _runs(self, rows: pa.Table) -> _Runs:
        group = _with_null_as_a_key(self.keys, rows)
        value = _with_null_as_a_key(self._values, rows)
        at = times(rows)[0]
        order = np.lexsort((self._rank(rows, value), at, group))
        at, group, value = at[order], group[order], value[order]
        starts = np.ones(len(order), bool)
        starts[1:] = (np.diff(group) != 0) | (np.diff(value) != 0) | (np.diff(at) > self.query.gap_us)
        first = np.flatnonzero(starts)
        return _Runs(order, first, np.diff(np.append(first, len(order))), at, group[first])

    def _rank(self, rows: pa.Table, value: IntArray) -> IntArray:
        """An order of the values that does not depend on arrival: rows of equal rank are equal."""
        by_value = np.asarray(pc.sort_indices(rows, [(name, "ascending") for name in self.query.values]))
        changed = np.ones(len(value), np.int64)
        changed[1:] = np.diff(value[by_value]) != 0
        rank = np.empty(len(value), np.int64)
        rank[by_value] = np.cumsum(changed)
        return rank

    def _output(self, rows: pa.Table, runs: _Runs, final: NDArray[np.bool_]) -> pa.RecordBatch:
        first, n = runs.first[final], runs.n[final]
        heads = rows.take(pa.array(runs.order[first])).combine_chunks()
        columns = [heads.column(name).chunk(0) for name in (*self.query.group, *self.query.values)]
        ends = [runs.at[first], runs.at[first + n - 1]]
        columns += [pa.array(end.astype("datetime64[us]")).cast(pa.timestamp("us", "UTC")) for end in ends]
        return pa.RecordBatch.from_arrays([*columns, pa.array(n)], schema=self.output_schema)

    def _keep(self, state: SegmentedState, rows: pa.Table, runs: _Runs, final: NDArray[np.bool_], step: Step) -> None:
        """Write back what is not final."""
        open_rows = np.zeros(len(runs.order), bool)
        open_rows[runs.order] = np.repeat(~final, runs.n)
        step.metrics[metrics.EVICTED] += int((~open_rows).sum())
        kept = rows.filter(pa.array(open_rows)).combine_chunks()
        state.rewrite(0, kept.to_batches()[0] if kept.num_rows else _empty(rows.schema))


@dataclass(frozen=True, slots=True)
class _Runs:
    """Rows by (group, time) in `order`; run r is `order[first[r] : first[r] + n[r]]`, `at` are the times in order."""

    order: IntArray
    first: IntArray
    n: IntArray
    at: IntArray
    group: IntArray

    def final(self, watermark_us: int, gap_us: int) -> NDArray[np.bool_]:
        """Runs that no future row (`t >= watermark_us`) can change: those that end before `watermark - gap`."""
        if watermark_us == NO_WATERMARK or not len(self.first):
            return np.zeros(len(self.first), bool)
        return self._ends() < watermark_us - gap_us if watermark_us != END_OF_TIME else np.ones(len(self.first), bool)

    def next_final_us(self, final: NDArray[np.bool_], gap_us: int) -> int | None:
        """The least watermark at which another run becomes final."""
        ends = self._ends()[~final]
        return int(ends.min()) + gap_us + 1 if len(ends) else None

    def _ends(self) -> IntArray:
        ends: IntArray = self.at[self.first + self.n - 1]
        return ends


def _with_null_as_a_key(keys: Keys, rows: pa.Table) -> IntArray:
    """Codes in which a null is a value like any other, as in GROUP BY, column by column."""
    codes = np.zeros(rows.num_rows, np.int64)
    for name in keys.names:
        column = Keys((name,), [rows.schema], ("events",)).codes([rows])[0]
        _, codes = np.unique(np.stack([codes, column]), axis=1, return_inverse=True)
        codes = codes.reshape(-1).astype(np.int64)
    return codes


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)

"""`best=`: each row of a choosing side keeps its most probable partner; the choice is emitted when it is final.

`timing_join.best_marks` describes what is stored beside the rows. Rows are decided at the instants of
`timing_join.modes`, where W0(x) is the least watermark at which x is final:

- one side chooses: at W0 of the choosing row. If the other side is preserved, chosen rows are noted. A row of that side
  is looked up in the notes at the latest W0 of itself and the rows that match it, when all of these have chosen.
- both sides choose: at the later W0 of the row and its best partner. For a mutual pair this is the same instant, so
  both rows are decided in the same step, and no row has to be searched for.

Rows that are final but undecided wait in an input of their own, ordered by the instants of their decisions. A changed
query that makes rows final earlier finds these instants again: the two of a mutual pair have to be the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core import metrics
from whenabouts.core.arrays.record_batches import one_batch, table_of
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.joins.rows import SideRows
from whenabouts.core.joins.sides import LEFT, RIGHT
from whenabouts.core.runtime.blocks import PREFIX, T_MAX, T_MIN, times
from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK, Step
from whenabouts.core.state.segment_layout import Layout, SegmentRows, every_row
from whenabouts.core.state.segmented_state import SegmentedState
from whenabouts.core.timing_join.best_marks import (
    LAST,
    NUMBER,
    PARTNER,
    PROBABILITY,
    BestStep,
    MarkSchemas,
    float_column,
    has_partner,
    int_column,
    partner_column,
)
from whenabouts.core.timing_join.modes import Mode
from whenabouts.core.timing_join.outer_rows import NewFinal, first_final
from whenabouts.core.timing_join.output import FinalTimes, JoinOutput

DUE = PREFIX + "due"

WAITING_FOR_PARTNER = 2
"""Input 2 of the state has the left rows that are final but undecided, input 3 the right ones."""
NOTES = 4
"""The input of the state with times and numbers of chosen rows."""

_NOTE = pa.schema([pa.field(name, pa.int64()) for name in (T_MIN, T_MAX, NUMBER)])


class BestPairs:
    """The finalizer of joins with `best`."""

    def __init__(
        self,
        mode: Mode,
        blocks: Sequence[pa.Schema],
        output: JoinOutput,
    ) -> None:
        self._schemas = schemas = MarkSchemas(mode, blocks)
        self._mode, self._output = mode, output
        due = pa.field(DUE, pa.int64())
        waiting = [pa.schema([due, *schemas.rows(input)]) for input in (LEFT, RIGHT)]
        marks = {input: schemas.marks(input) for input in schemas.decided}
        awaited = {input: self._opens(input) for input in schemas.decided}
        self.layout = Layout(
            [*blocks, *waiting, _NOTE],
            marks={input: schema for input, schema in marks.items() if schema is not None},
            axes=dict.fromkeys((WAITING_FOR_PARTNER + input for input in (LEFT, RIGHT)), DUE),
            opens=awaited | {WAITING_FOR_PARTNER + input: every_row for input in schemas.waiting},
            held_for={WAITING_FOR_PARTNER + input: input for input in schemas.waiting},
            purpose=f"{mode.how}, best {mode.best}" + ("" if mode.ties == "earliest" else f", ties {mode.ties}"),
        )

    def _opens(self, input: int) -> Callable[[pa.RecordBatch], BoolArray]:
        """Selects the rows that need a decision: those with a partner, and those that are emitted without one."""
        return every_row if input in self._mode.preserved else has_partner

    def wanted(self, held: SegmentRows) -> SegmentRows:
        """All stored rows: every one can still match."""
        return held

    def begin(self, state: SegmentedState, rows: Sequence[SideRows]) -> BestStep:
        """Start a step with these rows; new rows are numbered in order of arrival."""
        numbers: list[IntArray | None] = [None, None]
        if self._schemas.numbered:
            for input, side in enumerate(rows):
                new = state.rows_numbered + np.arange(len(side.t_max) - side.stored)
                state.rows_numbered += len(new)
                numbers[input] = np.concatenate([*(int_column(held.rows, NUMBER) for held in side.held), new])
        return BestStep(self._schemas, rows, numbers)

    def settle(
        self, state: SegmentedState, new_final: NewFinal, final_times: FinalTimes, until_us: int, keep: bool, step: Step
    ) -> Iterator[pa.RecordBatch]:
        """The pairs and rows whose choices are final at the watermark `until_us`."""
        kept = _kept(final_times)
        changed = state.kept_before not in (None, kept)
        if changed and self._mode.chosen_only:
            state.notes = _least(state.notes, state.kept_before, kept)
        decided = {
            input: self._decided(state, input, new_final[input], final_times, until_us, changed, step)
            for input in self._schemas.decided
        }
        if self._mode.best == "both":
            yield from self._mutual(decided, step)
        else:
            yield from self._one_sided(state, decided, final_times, until_us, keep, step)

    def next_us(self, state: SegmentedState, final_times: FinalTimes) -> list[int]:
        """The watermarks at which further rows are emitted or evicted.

        A waiting row needs no timer for its decision: the other row that it waits for has one.
        """
        times_us = first_final(state, self._schemas.decided, final_times)
        ends = [state.first_end_us(WAITING_FOR_PARTNER + input) for input in self._schemas.waiting]
        times_us += [end - 1 for end in ends if end is not None]
        end = state.first_end_us(NOTES)
        if end is not None:
            times_us += [end - self._notes_before(state, input, final_times, 0) for input in self._mode.chosen_only]
        return times_us

    def _decided(
        self,
        state: SegmentedState,
        input: int,
        new_final: Sequence[pa.RecordBatch],
        final_times: FinalTimes,
        until_us: int,
        changed: bool,
        step: Step,
    ) -> _Decided:
        """The rows whose decision is due; rows that are final but not due start waiting.

        `changed`: rows that wait have instants of another query.
        """
        schema = self._schemas.rows(input)
        leaving = state.expiring(input, final_times.before(input, until_us))
        if changed and input in self._schemas.waiting:
            waited = state.take_before(WAITING_FOR_PARTNER + input, END_OF_TIME)
            leaving += [rows.select(schema.names) for rows in waited]
            step.metrics[metrics.EVICTED] += sum(rows.num_rows for rows in waited)
        rows = table_of([*new_final, *leaving], schema)
        due_us = self._due_us(input, rows, final_times)
        if input not in self._schemas.waiting:
            return _Decided(rows, due_us)
        with_due = rows.add_column(0, pa.field(DUE, pa.int64()), pa.array(due_us))
        now = np.ones(len(due_us), bool) if until_us == END_OF_TIME else due_us <= until_us
        if not now.all():
            state.append(WAITING_FOR_PARTNER + input, one_batch(with_due.filter(pa.array(~now))))
            step.metrics[metrics.STORED] += int((~now).sum())
        before_us = min(until_us + 1, END_OF_TIME) if until_us != NO_WATERMARK else NO_WATERMARK
        waited = state.expiring(WAITING_FOR_PARTNER + input, before_us)
        step.metrics[metrics.EVICTED] += state.evict(WAITING_FOR_PARTNER + input, before_us)
        both = table_of([*with_due.filter(pa.array(now)).to_batches(), *waited], with_due.schema)
        return _Decided(both.drop_columns(DUE), int_column(both, DUE))

    def _due_us(self, input: int, rows: pa.Table, final_times: FinalTimes) -> IntArray:
        """When each row is decided (`timing_join.modes`)."""
        own = final_times.instants(input, times(rows)[1])
        if input not in self._schemas.waiting:
            return own
        column = LAST
        if input in self._mode.choosing:
            column = partner_column(self._schemas.blocks[1 - input].get_field_index(T_MAX))
        match = rows.column(column)
        other = final_times.instants(1 - input, np.asarray(match.fill_null(0).to_numpy(), np.int64))
        return np.where(np.asarray(match.is_null()), own, np.maximum(own, other))

    def _mutual(self, decided: dict[int, _Decided], step: Step) -> Iterator[pa.RecordBatch]:
        left, right = decided[LEFT], decided[RIGHT]
        l_at, r_at = _mutual_pairs(left.rows, right.rows)
        pairs = l_at.astype(np.int32), r_at.astype(np.int32)
        p, event_us = float_column(left.rows, PROBABILITY)[l_at], left.due_us[l_at]
        yield from self._output.pairs(left.rows, right.rows, pairs, p, event_us, step)
        for input, at in ((LEFT, l_at), (RIGHT, r_at)):
            if input in self._mode.preserved:
                alone = np.ones(len(decided[input].due_us), bool)
                alone[at] = False
                yield from self._output.unmatched(input, decided[input].rows, alone, decided[input].due_us, step)

    def _one_sided(
        self,
        state: SegmentedState,
        decided: dict[int, _Decided],
        final_times: FinalTimes,
        until_us: int,
        keep: bool,
        step: Step,
    ) -> Iterator[pa.RecordBatch]:
        (input,) = self._mode.choosing
        rows, event_us = decided[input]
        chose = has_partner(rows)
        at = np.flatnonzero(chose).astype(np.int32)
        partners = self._partners(input, rows)
        sides = (rows, partners) if input == LEFT else (partners, rows)
        yield from self._output.pairs(*sides, (at, at), float_column(rows, PROBABILITY)[at], event_us[at], step)
        if input in self._mode.preserved:
            yield from self._output.unmatched(input, rows, ~chose, event_us, step)
        for other in self._mode.chosen_only:
            notes = _notes(partners, int_column(rows, PARTNER), at)
            if keep and notes.num_rows:
                state.append(NOTES, notes)
                step.metrics[metrics.STORED] += notes.num_rows
            mine = decided[other]
            alone = ~np.isin(int_column(mine.rows, NUMBER), self._chosen(state, mine.rows, notes))
            yield from self._output.unmatched(other, mine.rows, alone, mine.due_us, step)
            if keep:
                before_us = self._notes_before(state, other, final_times, until_us)
                step.metrics[metrics.EVICTED] += state.evict(NOTES, before_us)

    def _partners(self, input: int, rows: pa.Table) -> pa.Table:
        """The partners of choosing rows, as rows of the other input."""
        schema = self._schemas.blocks[1 - input]
        columns = [rows.column(partner_column(number)) for number in range(len(schema))]
        return pa.table(columns, schema=schema)

    def _chosen(self, state: SegmentedState, rows: pa.Table, notes: pa.RecordBatch) -> IntArray:
        """The numbers of the rows that were chosen, now or in earlier steps (in the time range of `rows`)."""
        if not rows.num_rows:
            return np.empty(0, np.int64)
        t_max = times(rows)[1]
        before = state.load(NOTES, int(t_max.min()), int(t_max.max()))
        return np.concatenate([int_column(each, NUMBER) for each in (*before, notes)])

    def _notes_before(self, state: SegmentedState, other: int, final_times: FinalTimes, until_us: int) -> int:
        """Notes of rows with a lesser `t_max` are no longer needed: all rows that matched them have chosen.

        The last of them is at most `-kept[other]` later than the row, as it matched it, and chooses at most
        `-kept[choosing]` after that. Pairs that formed by earlier queries may lie further apart.
        """
        kept = _least(state.notes, _kept(final_times))
        if until_us in (NO_WATERMARK, END_OF_TIME):
            return until_us
        return max(NO_WATERMARK, until_us + kept[other] + min(kept[1 - other], 0))


def _kept(final_times: FinalTimes) -> list[int]:
    """How far before the watermark rows of each input are final, as the state was given it."""
    return [final_times.obsolete_before(input, 0) for input in (LEFT, RIGHT)]


def _least(*kept: list[int] | None) -> list[int]:
    """Of each input the least of these, if they are there."""
    return [min(of) for of in zip(*filter(None, kept), strict=True)]


class _Decided(NamedTuple):
    """Rows with marks whose decision is due, and the instants of the decisions."""

    rows: pa.Table
    due_us: IntArray


def _mutual_pairs(left: pa.Table, right: pa.Table) -> tuple[IntArray, IntArray]:
    """The positions of the pairs in which each row chose the other."""
    number, partner = int_column(right, NUMBER), int_column(left, PARTNER)
    if not len(number) or not len(partner):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    order = np.argsort(number)
    at = order[np.minimum(np.searchsorted(number[order], partner), len(order) - 1)]
    mutual = has_partner(left) & (number[at] == partner) & has_partner(right)[at]
    mutual &= int_column(right, PARTNER)[at] == int_column(left, NUMBER)
    return np.flatnonzero(mutual), at[mutual]


def _notes(partners: pa.Table, numbers: IntArray, at: NDArray[np.int32]) -> pa.RecordBatch:
    t_max = np.asarray(partners.column(T_MAX).fill_null(0).to_numpy(), np.int64)[at]
    return pa.RecordBatch.from_arrays([pa.array(t_max), pa.array(t_max), pa.array(numbers[at])], schema=_NOTE)

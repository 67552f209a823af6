"""`best=`: each row of a choosing side keeps its most probable partner, and the choice is told when it is final.

What is remembered of a row lies beside its segment: of a choosing row the partner that is best so far (all its
columns, for the partner's own row may go before the choice is final), of a preserved row that only others can choose
the last of those. Rows carry numbers where one must be told from its equals.

Decisions of a row at the instants of `timing_join.modes`, W0(x) being the least watermark at which x is final:

- one side chooses: at W0 of the choosing row. Chosen rows of a preserved other side are noted, and such a row is
  looked up among the notes at the latest W0 of itself and of the rows that match it: all of them have chosen by then.
- both choose: at the later W0 of the row and its best partner. For a mutual pair this is one instant, so that both
  rows come to the same step, and no row has to be searched for.

Rows that are final but not yet decided wait in an input of their own, in the order of their decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core import metrics
from whenabouts.core.arrays.record_batches import one_batch, table_of
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.joins.rows import SideRows
from whenabouts.core.runtime.event_reader import PREFIX, T_MAX, T_MIN, times
from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK, Step
from whenabouts.core.state.segment_layout import Layout, SegmentRows
from whenabouts.core.state.segmented_state import SegmentedState
from whenabouts.core.timing_join.best_match_order import NOBODY, BestPartners
from whenabouts.core.timing_join.modes import LEFT, RIGHT, Mode
from whenabouts.core.timing_join.outer_rows import Crossed, first_final
from whenabouts.core.timing_join.output import FinalTimes, JoinOutput

NUMBER = PREFIX + "number"
PROBABILITY = PREFIX + "probability"
PARTNER = PREFIX + "partner"
LAST = PREFIX + "last_match"
DUE = PREFIX + "due"

WAITING_FOR_PARTNER = 2
"""Input 2 holds left rows that are final and undecided, input 3 right ones."""
NOTES = 4
"""Times and numbers of the rows that were chosen."""

_NOTE = pa.schema([pa.field(name, pa.int64()) for name in (T_MIN, T_MAX, NUMBER)])
_NEVER = -(2**63)


class _Sides(NamedTuple):
    """What the rows of each input are in a mode, and the schemas that follow from it."""

    mode: Mode
    blocks: Sequence[pa.Schema]

    @property
    def numbered(self) -> bool:
        return self.mode.best == "both" or bool(self.mode.chosen_only)

    @property
    def decided(self) -> tuple[int, ...]:
        """Inputs whose rows are decided one by one."""
        return tuple(sorted({*self.mode.choosing, *self.mode.preserved}))

    @property
    def waiting(self) -> tuple[int, ...]:
        """Inputs whose rows may be final and not yet decided."""
        return self.mode.choosing if self.mode.best == "both" else self.mode.chosen_only

    def marks(self, input: int) -> pa.Schema | None:
        if input not in self.decided:
            return None
        fields = [pa.field(NUMBER, pa.int64())] if self.numbered else []
        if input not in self.mode.choosing:
            return pa.schema([*fields, pa.field(LAST, pa.int64())])
        fields += [pa.field(PROBABILITY, pa.float64()), pa.field(PARTNER, pa.int64())]
        other = self.blocks[1 - input]
        return pa.schema([*fields, *(pa.field(partner_column(n), field.type) for n, field in enumerate(other))])

    def rows(self, input: int) -> pa.Schema:
        marks = self.marks(input)
        return self.blocks[input] if marks is None else pa.schema([*self.blocks[input], *marks])


def partner_column(number: int) -> str:
    """The mark that holds column `number` of a partner's block."""
    return f"{PARTNER}_{number}"


class BestPairs:
    """What a join with `best` remembers, and what comes out when choices are final."""

    def __init__(
        self,
        mode: Mode,
        blocks: Sequence[pa.Schema],
        windows: Sequence[int],
        longest: Sequence[int],
        output: JoinOutput,
    ) -> None:
        """`windows`, `longest`: by base input, the least target time - base time; by input, the greatest length."""
        self._sides = sides = _Sides(mode, blocks)
        self._mode, self._windows, self._longest, self._output = mode, windows, longest, output
        due = pa.field(DUE, pa.int64())
        waiting = [pa.schema([due, *sides.rows(input)]) for input in (LEFT, RIGHT)]
        marks = {input: sides.marks(input) for input in sides.decided}
        awaited = {input: self._opens(input) for input in sides.decided}
        self.layout = Layout(
            [*blocks, *waiting, _NOTE],
            marks={input: schema for input, schema in marks.items() if schema is not None},
            axes=dict.fromkeys((WAITING_FOR_PARTNER + input for input in (LEFT, RIGHT)), DUE),
            opens=awaited | {WAITING_FOR_PARTNER + input: _all for input in sides.waiting},
            purpose=f"{mode.how}, best {mode.best}",
        )

    def _opens(self, input: int) -> Callable[[pa.RecordBatch], NDArray[np.bool_]]:
        """The rows that are decided at all: one without a partner is, if it then comes out alone."""
        return _all if input in self._mode.preserved else _has_partner

    def wanted(self, held: SegmentRows) -> SegmentRows:
        """All stored rows can still matter."""
        return held

    def begin(self, state: SegmentedState, rows: Sequence[SideRows]) -> BestRound:
        """Start a step with these rows; new ones get their numbers in the order of arrival."""
        numbers: list[IntArray | None] = [None, None]
        if self._sides.numbered:
            for input, side in enumerate(rows):
                new = state.rows_numbered + np.arange(len(side.t_max) - side.stored)
                state.rows_numbered += len(new)
                numbers[input] = np.concatenate([*(_ints(held.rows, NUMBER) for held in side.held), new])
        return BestRound(self._sides, rows, numbers)

    def settle(
        self, state: SegmentedState, crossed: Crossed, finality: FinalTimes, until_us: int, keep: bool, step: Step
    ) -> Iterator[pa.RecordBatch]:
        """Pairs and rows whose choices are final at the watermark `until_us`."""
        decided = {
            input: self._decided(state, input, crossed[input], finality, until_us, step)
            for input in self._sides.decided
        }
        if self._mode.best == "both":
            yield from self._mutual(decided, step)
        else:
            yield from self._one_sided(state, decided, finality, until_us, keep, step)

    def next_us(self, state: SegmentedState, finality: FinalTimes) -> list[int]:
        """Watermarks at which further rows come out, or what is kept for them can go.

        A row that waits needs no timer to be decided: it waits for another row to be final, which has one.
        """
        times_us = first_final(state, self._sides.decided, finality)
        ends = [state.first_end_us(WAITING_FOR_PARTNER + input) for input in self._sides.waiting]
        times_us += [end - 1 for end in ends if end is not None]
        end = state.first_end_us(NOTES)
        if end is not None:
            times_us += [end - self._notes_before(input, finality, 0) for input in self._mode.chosen_only]
        return times_us

    def _decided(
        self,
        state: SegmentedState,
        input: int,
        crossed: Sequence[pa.RecordBatch],
        finality: FinalTimes,
        until_us: int,
        step: Step,
    ) -> _Decided:
        """Rows whose decision falls due; those that are final and not due begin to wait."""
        schema = self._sides.rows(input)
        leaving = state.expiring(input, finality.before(input, until_us))
        rows = table_of([*crossed, *leaving], schema)
        due_us = self._due_us(input, rows, finality)
        if input not in self._sides.waiting:
            return _Decided(rows, due_us)
        with_due = one_batch(rows.add_column(0, pa.field(DUE, pa.int64()), pa.array(due_us)))
        now = np.ones(len(due_us), bool) if until_us == END_OF_TIME else due_us <= until_us
        if not now.all():
            state.append(WAITING_FOR_PARTNER + input, with_due.filter(pa.array(~now)))
            step.metrics[metrics.STORED] += int((~now).sum())
        before_us = min(until_us + 1, END_OF_TIME) if until_us != NO_WATERMARK else NO_WATERMARK
        waited = state.expiring(WAITING_FOR_PARTNER + input, before_us)
        step.metrics[metrics.EVICTED] += state.evict(WAITING_FOR_PARTNER + input, before_us)
        both = table_of([with_due.filter(pa.array(now)), *waited], with_due.schema)
        return _Decided(both.drop_columns(DUE), _ints(both, DUE))

    def _due_us(self, input: int, rows: pa.Table, finality: FinalTimes) -> IntArray:
        """The instants of `timing_join.modes`."""
        own = finality.instants(input, times(rows)[1])
        if input not in self._sides.waiting:
            return own
        column = LAST if input not in self._mode.choosing else partner_column(_place(self._sides, 1 - input, T_MAX))
        match = rows.column(column)
        other = finality.instants(1 - input, np.asarray(match.fill_null(0).to_numpy(), np.int64))
        return np.where(np.asarray(match.is_null()), own, np.maximum(own, other))

    def _mutual(self, decided: dict[int, _Decided], step: Step) -> Iterator[pa.RecordBatch]:
        left, right = decided[LEFT], decided[RIGHT]
        l_at, r_at = _meeting(left.rows, right.rows)
        pairs = l_at.astype(np.int32), r_at.astype(np.int32)
        p, event_us = _floats(left.rows, PROBABILITY)[l_at], left.due_us[l_at]
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
        finality: FinalTimes,
        until_us: int,
        keep: bool,
        step: Step,
    ) -> Iterator[pa.RecordBatch]:
        (input,) = self._mode.choosing
        rows, event_us = decided[input]
        chose = _has_partner(rows)
        at = np.flatnonzero(chose).astype(np.int32)
        partners = self._partners(input, rows)
        sides = (rows, partners) if input == LEFT else (partners, rows)
        yield from self._output.pairs(*sides, (at, at), _floats(rows, PROBABILITY)[at], event_us[at], step)
        if input in self._mode.preserved:
            yield from self._output.unmatched(input, rows, ~chose, event_us, step)
        for other in self._mode.chosen_only:
            notes = _notes(partners, _ints(rows, PARTNER), at)
            if keep and notes.num_rows:
                state.append(NOTES, notes)
                step.metrics[metrics.STORED] += notes.num_rows
            mine = decided[other]
            alone = ~np.isin(_ints(mine.rows, NUMBER), self._chosen(state, mine.rows, notes))
            yield from self._output.unmatched(other, mine.rows, alone, mine.due_us, step)
            if keep:
                step.metrics[metrics.EVICTED] += state.evict(NOTES, self._notes_before(other, finality, until_us))

    def _partners(self, input: int, rows: pa.Table) -> pa.Table:
        """The partners of choosing rows, as rows of the other input."""
        schema = self._sides.blocks[1 - input]
        columns = [rows.column(partner_column(number)) for number in range(len(schema))]
        return pa.table(columns, schema=schema)

    def _chosen(self, state: SegmentedState, rows: pa.Table, notes: pa.RecordBatch) -> IntArray:
        """Numbers of the rows that were chosen, now and (of those as old as `rows`) before."""
        if not rows.num_rows:
            return np.empty(0, np.int64)
        t_max = times(rows)[1]
        before = state.load(NOTES, int(t_max.min()), int(t_max.max()))
        return np.concatenate([_ints(each, NUMBER) for each in (*before, notes)])

    def _notes_before(self, other: int, finality: FinalTimes, until_us: int) -> int:
        """Notes of rows with a lesser `t_max` are no longer asked for: all that could match the row have chosen."""
        if until_us == NO_WATERMARK:
            return NO_WATERMARK
        choosing = 1 - other
        chosen = finality.before(choosing, until_us) + self._windows[choosing] - self._longest[choosing]
        return max(NO_WATERMARK, min(finality.before(other, until_us), chosen))


class _Decided(NamedTuple):
    """Rows with their marks, and the instants of their decisions."""

    rows: pa.Table
    due_us: IntArray


class BestRound:
    """One step's choices."""

    def __init__(self, sides: _Sides, rows: Sequence[SideRows], numbers: Sequence[IntArray | None]) -> None:
        self._sides, self._rows, self._numbers = sides, rows, numbers
        self._partners = {input: self._begin_choosing(input) for input in sides.mode.choosing}
        self._last = {input: self._begin_last(input) for input in sides.mode.chosen_only}
        self._best_before = {input: partners.best.copy() for input, partners in self._partners.items()}
        self._last_before = {input: last.copy() for input, last in self._last.items()}

    def _begin_choosing(self, input: int) -> BestPartners:
        """The candidates are the rows of the other side, and behind them the partners that stored rows have."""
        mine, other = self._rows[input], self._rows[1 - input]
        schema = self._sides.marks(input)
        assert schema is not None
        marks = mine.marks(schema)
        chose = np.flatnonzero(_has_partner(marks))
        known = marks.take(pa.array(chose))
        block = self._sides.blocks[1 - input]
        columns = [known.column(partner_column(number)) for number in range(len(block))]
        candidates = pa.concat_tables([other.table, pa.table(columns, schema=block)]).combine_chunks()
        numbers = self._numbers[1 - input]
        if numbers is not None:
            numbers = np.concatenate([numbers, _ints(known, PARTNER)])
        partners = BestPartners(len(mine.t_max), candidates, numbers)
        partners.best[chose] = other.table.num_rows + np.arange(len(chose))
        partners.probability[chose] = _floats(known, PROBABILITY)
        return partners

    def _begin_last(self, input: int) -> IntArray:
        mine = self._rows[input]
        new = np.full(len(mine.t_max) - mine.stored, _NEVER)
        stored = [np.asarray(held.rows.column(LAST).fill_null(_NEVER).to_numpy()) for held in mine.held]
        return np.concatenate([*stored, new])

    def take(
        self, pairs: tuple[NDArray[np.int32], NDArray[np.int32]], probability: NDArray[np.float64] | None, step: Step
    ) -> Iterator[pa.RecordBatch]:
        """Pairs that match, with their probabilities; nothing comes out yet."""
        assert probability is not None
        for input, partners in self._partners.items():
            partners.offer(pairs[input], pairs[1 - input], probability)
        for input, last in self._last.items():
            np.maximum.at(last, pairs[input], self._rows[1 - input].t_max[pairs[1 - input]])
        return iter(())

    def marks(self, input: int) -> pa.RecordBatch | None:
        """The marks of all rows of an input, None where none are kept."""
        schema = self._sides.marks(input)
        if schema is None:
            return None
        number = self._numbers[input]
        columns = [] if number is None else [pa.array(number)]
        if input in self._last:
            last = self._last[input]
            columns.append(pa.array(last, mask=last == _NEVER))
        else:
            columns += _of_partners(self._partners[input])
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def changed(self, input: int) -> NDArray[np.bool_]:
        """Rows whose marks are not what they were."""
        if input in self._last:
            changed: NDArray[np.bool_] = self._last[input] != self._last_before[input]
        else:
            changed = self._partners[input].best != self._best_before[input]
        return changed


def _of_partners(partners: BestPartners) -> list[pa.Array]:
    """Marks of choosing rows: probability, number, and the columns of the partner."""
    nobody = partners.best == NOBODY
    at = pa.array(partners.best, mask=nobody)
    numbers = partners.numbers
    number = np.zeros(len(nobody), np.int64) if numbers is None else np.append(numbers, 0)[partners.best]
    taken = one_batch(partners.candidates.take(at))
    return [pa.array(partners.probability, mask=nobody), pa.array(number, mask=nobody), *taken.columns]


def _meeting(left: pa.Table, right: pa.Table) -> tuple[IntArray, IntArray]:
    """Places of the pairs in which each row chose the other."""
    number, partner = _ints(right, NUMBER), _ints(left, PARTNER)
    if not len(number) or not len(partner):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    order = np.argsort(number)
    place = order[np.minimum(np.searchsorted(number[order], partner), len(order) - 1)]
    meets = _has_partner(left) & (number[place] == partner) & _has_partner(right)[place]
    meets &= _ints(right, PARTNER)[place] == _ints(left, NUMBER)
    return np.flatnonzero(meets), place[meets]


def _notes(partners: pa.Table, numbers: IntArray, at: NDArray[np.int32]) -> pa.RecordBatch:
    t_max = np.asarray(partners.column(T_MAX).fill_null(0).to_numpy(), np.int64)[at]
    return pa.RecordBatch.from_arrays([pa.array(t_max), pa.array(t_max), pa.array(numbers[at])], schema=_NOTE)


def _place(sides: _Sides, input: int, name: str) -> int:
    return int(sides.blocks[input].get_field_index(name))


def _all(rows: pa.RecordBatch) -> NDArray[np.bool_]:
    return np.ones(rows.num_rows, bool)


def _has_partner(rows: pa.RecordBatch | pa.Table) -> NDArray[np.bool_]:
    return np.asarray(rows.column(PROBABILITY).is_valid().to_numpy(zero_copy_only=False), bool)


def _ints(rows: pa.RecordBatch | pa.Table, name: str) -> IntArray:
    return np.asarray(rows.column(name).fill_null(0).to_numpy(), np.int64)


def _floats(rows: pa.RecordBatch | pa.Table, name: str) -> NDArray[np.float64]:
    return np.asarray(rows.column(name).fill_null(0.0).to_numpy(), np.float64)

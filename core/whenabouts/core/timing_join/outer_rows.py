"""Outer, semi and anti modes: one mark per row, set while the row has no partner.

A match clears the mark. A row whose mark is still set when it becomes final is emitted (outer, anti); a semi row is
emitted with its first match. Marks are stored beside the segments, so that a match rewrites a few bits, not the rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core.arrays.record_batches import table_of
from whenabouts.core.arrays.typing import BoolArray, FloatArray
from whenabouts.core.joins.rows import SideRows
from whenabouts.core.joins.sides import LEFT, RIGHT
from whenabouts.core.runtime.blocks import PREFIX, times
from whenabouts.core.runtime.protocol import Step
from whenabouts.core.state.segment_layout import Layout, SegmentRows
from whenabouts.core.state.segmented_state import SegmentedState
from whenabouts.core.timing_join.modes import Mode
from whenabouts.core.timing_join.output import FinalTimes, JoinOutput

OPEN = PREFIX + "open"
_MARKS = pa.schema([pa.field(OPEN, pa.bool_())])

NewFinal = Sequence[Sequence[pa.RecordBatch]]
"""By input: rows with marks that are new in this step and already final."""


class UnmatchedRows:
    """The finalizer of outer, semi and anti joins without `best`."""

    def __init__(self, mode: Mode, schemas: Sequence[pa.Schema], compared: Collection[str], output: JoinOutput) -> None:
        self._mode, self._output = mode, output
        self._semi = mode.how == "left_semi"
        self._tracked = (LEFT,) if mode.one_sided else mode.preserved
        kept = list(schemas)
        if mode.one_sided:  # right rows are not emitted: what decides about pairs suffices
            needed = [field for field in schemas[RIGHT] if field.name.startswith(PREFIX) or field.name in compared]
            kept[RIGHT] = pa.schema(needed)
        self.layout = Layout(
            kept,
            marks=dict.fromkeys(self._tracked, _MARKS),
            opens=dict.fromkeys(mode.preserved, _is_open),
            needed={LEFT: _is_open} if mode.one_sided else {},
            purpose=mode.how,
        )

    def wanted(self, held: SegmentRows) -> SegmentRows:
        """The stored rows that can still match: semi and anti joins need a left row only until its first match."""
        if not self._mode.one_sided or held.input != LEFT:
            return held
        still = _is_open(held.rows)
        return SegmentRows(held.input, held.first, held.at[still], held.rows.filter(pa.array(still)))

    def begin(self, state: SegmentedState, rows: Sequence[SideRows]) -> UnmatchedStep:
        """Start a step with these rows."""
        return UnmatchedStep(self._tracked, rows, self._output if self._semi else None)

    def settle(
        self, state: SegmentedState, new_final: NewFinal, final_times: FinalTimes, until_us: int, keep: bool, step: Step
    ) -> Iterator[pa.RecordBatch]:
        """The rows that are final at the watermark `until_us` and have no partner."""
        for input in self._mode.preserved:
            leaving = state.expiring(input, final_times.before(input, until_us))
            schema = pa.schema([*self.layout.schemas[input], *_MARKS])
            rows = table_of([*new_final[input], *leaving], schema)
            alone = _is_open(rows)
            event_us = final_times.instants(input, times(rows)[1])
            yield from self._output.unmatched(input, rows, alone, event_us, step)

    def next_us(self, state: SegmentedState, final_times: FinalTimes) -> list[int]:
        """The watermarks at which further rows are emitted (`Finalizer.next_us`)."""
        return first_final(state, self._mode.preserved, final_times)


class UnmatchedStep:
    """One step's matches (`finalizer.StepMatches`)."""

    def __init__(self, tracked: Sequence[int], rows: Sequence[SideRows], semi: JoinOutput | None) -> None:
        self._rows, self._semi = rows, semi
        self._open = {}
        for input in tracked:
            new = np.ones(len(rows[input].t_max) - rows[input].stored, bool)
            self._open[input] = np.concatenate([*(_is_open(held.rows) for held in rows[input].held), new])
        self._before = {input: marks.copy() for input, marks in self._open.items()}

    def take(
        self, pairs: tuple[NDArray[np.int32], NDArray[np.int32]], probability: FloatArray | None, step: Step
    ) -> Iterator[pa.RecordBatch]:
        """Process matching pairs; a semi row is emitted with its first one."""
        if self._semi is not None:
            found = np.zeros(len(self._open[LEFT]), bool)
            found[pairs[LEFT]] = True
            first = np.flatnonzero(found & self._open[LEFT])
            left = self._rows[LEFT]
            yield from self._semi.alone(LEFT, left.table, first, left.t_max[first], step)
        for input, marks in self._open.items():
            marks[pairs[input]] = False

    def marks(self, input: int) -> pa.Table | None:
        """The marks of all rows of an input, None without marks."""
        if input not in self._open:
            return None
        return pa.Table.from_arrays([pa.array(self._open[input])], schema=_MARKS)

    def changed(self, input: int) -> BoolArray:
        """Which rows' marks have changed."""
        changed: BoolArray = self._open[input] != self._before[input]
        return changed


def first_final(state: SegmentedState, inputs: Sequence[int], final_times: FinalTimes) -> list[int]:
    """For each input with undecided rows, the least watermark at which one of them is final."""
    firsts = [(input, state.first_open_us(input)) for input in inputs]
    return [int(final_times.instants(input, np.array([us]))[0]) for input, us in firsts if us is not None]


def _is_open(rows: pa.RecordBatch | pa.Table) -> BoolArray:
    return np.asarray(rows.column(OPEN).to_numpy(zero_copy_only=False), bool)

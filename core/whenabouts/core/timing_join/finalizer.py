"""The contract between the operator and join modes that must wait until rows are final.

A *finalizer* belongs to an operator: it determines what state holds, and what is emitted when rows are final.
`StepMatches` is its work on the pairs of one step. `UnmatchedRows` and `BestPairs` are the two finalizers; plain inner
joins need none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core.arrays.record_batches import one_batch
from whenabouts.core.arrays.typing import BoolArray, FloatArray
from whenabouts.core.joins.rows import SideRows
from whenabouts.core.runtime.blocks import times
from whenabouts.core.runtime.protocol import Step
from whenabouts.core.state.segment_layout import Layout, SegmentRows
from whenabouts.core.state.segmented_state import SegmentedState
from whenabouts.core.timing_join.best_match import BestPairs
from whenabouts.core.timing_join.modes import Mode
from whenabouts.core.timing_join.outer_rows import UnmatchedRows
from whenabouts.core.timing_join.output import FinalTimes, JoinOutput

Pairs = tuple[NDArray[np.int32], NDArray[np.int32]]


class StepMatches(Protocol):
    """One step of a finalizer."""

    def take(self, pairs: Pairs, probability: FloatArray | None, step: Step) -> Iterator[pa.RecordBatch]:
        """Process matching pairs (row positions on both sides); returns rows that are emitted because of them."""

    def marks(self, input: int) -> pa.Table | None:
        """The marks of all rows of an input, None without marks."""

    def changed(self, input: int) -> BoolArray:
        """Which rows' marks have changed."""


class Finalizer(Protocol):
    """What a mode stores, and what it emits when rows are final."""

    @property
    def layout(self) -> Layout:
        """The layout of the state."""

    def wanted(self, held: SegmentRows) -> SegmentRows:
        """The stored rows that can still match."""

    def begin(self, state: SegmentedState, rows: Sequence[SideRows]) -> StepMatches:
        """Start a step with these rows."""

    def settle(
        self,
        state: SegmentedState,
        new_final: Sequence[Sequence[pa.RecordBatch]],
        final_times: FinalTimes,
        until_us: int,
        keep: bool,
        step: Step,
    ) -> Iterator[pa.RecordBatch]:
        """What is decided at the watermark `until_us`; `new_final`: by input, new rows that are already final.

        Called in every step before rows are evicted. `keep` is false at the end of the input, when no state is written.
        """

    def next_us(self, state: SegmentedState, final_times: FinalTimes) -> list[int]:
        """The watermarks at which further rows are emitted or evicted."""


def finalizer_of(
    mode: Mode,
    blocks: Sequence[pa.Schema],
    compared: Collection[str],
    output: JoinOutput,
) -> Finalizer | None:
    """The finalizer of a mode, None for the plain inner join.

    `compared`: the columns of the right input that decide about pairs, besides its times.
    """
    if mode.plain:
        return None
    if mode.best is None:
        return UnmatchedRows(mode, blocks, compared, output)
    return BestPairs(mode, blocks, output)


def keep_marks(
    state: SegmentedState, input: int, side: SideRows, matches: StepMatches, before_us: int
) -> tuple[pa.RecordBatch, list[pa.RecordBatch]]:
    """Store the changed marks of stored rows; return the new rows with their marks.

    First the new rows to be stored (not final, and still needed), then those that are final (`t_max < before_us`).
    """
    marks = matches.marks(input)
    new = side.table.slice(side.stored)
    if marks is not None:
        changed, start = matches.changed(input), 0
        for held in side.held:
            stop = start + len(held.at)
            if changed[start:stop].any():
                state.mark(held, one_batch(marks.slice(start, stop - start)))
            start = stop
        columns = [*new.columns, *marks.slice(start).columns]
        new = pa.Table.from_arrays(columns, schema=pa.schema([*new.schema, *marks.schema]))
    final = times(new)[1] < before_us
    stays = one_batch(new.filter(pa.array(~final)))
    return stays.filter(pa.array(state.needed(input, stays))), new.filter(pa.array(final)).to_batches()

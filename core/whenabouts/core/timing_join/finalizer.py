"""What a join mode remembers beyond pairs, step by step: the contract between the operator and a mode's rules.

A *settler* belongs to an operator and says what state holds and what comes out when rows are final; a *round* is its
work on the pairs of one step. `UnmatchedRows` and `BestPairs` are the two settlers; plain inner joins need none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core.arrays.record_batches import one_batch, with_columns_of
from whenabouts.core.joins.rows import SideRows
from whenabouts.core.runtime.event_reader import times
from whenabouts.core.runtime.protocol import Step
from whenabouts.core.state.segment_layout import Layout, SegmentRows
from whenabouts.core.state.segmented_state import SegmentedState
from whenabouts.core.timing_join.best_match import BestPairs
from whenabouts.core.timing_join.modes import LEFT, RIGHT, Mode
from whenabouts.core.timing_join.outer_rows import UnmatchedRows
from whenabouts.core.timing_join.output import FinalTimes, JoinOutput

Pairs = tuple[NDArray[np.int32], NDArray[np.int32]]


class StepMatches(Protocol):
    """One step of a settler."""

    def take(self, pairs: Pairs, probability: NDArray[np.float64] | None, step: Step) -> Iterator[pa.RecordBatch]:
        """Pairs that match (positions in the rows of both sides); rows that come out because of them."""

    def marks(self, input: int) -> pa.RecordBatch | None:
        """The marks of all rows of an input, None where none are kept."""

    def changed(self, input: int) -> NDArray[np.bool_]:
        """Rows whose marks are not what they were."""


class Finalizer(Protocol):
    """What a mode remembers, and what comes out when rows are final."""

    @property
    def layout(self) -> Layout:
        """What state holds."""

    def wanted(self, held: SegmentRows) -> SegmentRows:
        """The stored rows that can still change anything."""

    def begin(self, state: SegmentedState, rows: Sequence[SideRows]) -> StepMatches:
        """Start a step with these rows."""

    def settle(
        self,
        state: SegmentedState,
        crossed: Sequence[Sequence[pa.RecordBatch]],
        finality: FinalTimes,
        until_us: int,
        keep: bool,
        step: Step,
    ) -> Iterator[pa.RecordBatch]:
        """What is settled at the watermark `until_us`; `crossed` are new rows that are final already, by input.

        Called in every step before the state evicts. `keep` is false at the end, when no state is written.
        """

    def next_us(self, state: SegmentedState, finality: FinalTimes) -> list[int]:
        """Watermarks at which further rows come out, or what is kept for them can go."""


def finalizer_of(
    mode: Mode,
    blocks: Sequence[pa.Schema],
    right_keys: Sequence[str],
    window: tuple[int, int],
    longest: tuple[int, int],
    output: JoinOutput,
) -> Finalizer | None:
    """The settler of a mode, None where all pairs and nothing else come out.

    `window`: bounds on right time - left time; `longest`: the greatest lengths. `best` uses them to forget notes.
    """
    if mode.plain:
        return None
    if mode.best is None:
        return UnmatchedRows(mode, blocks, right_keys, output)
    least = {LEFT: window[0], RIGHT: -window[1]}
    return BestPairs(mode, blocks, [least[LEFT], least[RIGHT]], longest, output)


def keep_marks(
    state: SegmentedState, input: int, side: SideRows, round_: StepMatches, before_us: int
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Put the marks of stored rows back where a step changed them; give back the new rows with theirs.

    First those that future rows can match and that are of use, then those that are final already (`t_max < before_us`).
    """
    marks = round_.marks(input)
    new = one_batch(side.table.slice(side.stored))
    if marks is not None:
        changed, start = round_.changed(input), 0
        for held in side.held:
            stop = start + len(held.at)
            if changed[start:stop].any():
                state.mark(held, marks.slice(start, stop - start))
            start = stop
        new = with_columns_of(new, marks.slice(start))
    final = times(new)[1] < before_us
    return new.filter(pa.array(~final & state.needed(input, new))), new.filter(pa.array(final))

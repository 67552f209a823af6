"""The marks of `best=`: what is stored beside each row, and how one step's pairs change it.

The mark of a choosing row is its best partner so far, with all of the partner's columns, because the partner's own row
may be evicted before the choice is final. The mark of a preserved row that can only be chosen is the last `t_max` of
its matches. Rows have numbers where one must be told apart from equal ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core.arrays.record_batches import take_table
from whenabouts.core.arrays.typing import BoolArray, FloatArray, IntArray
from whenabouts.core.joins.rows import SideRows
from whenabouts.core.runtime.blocks import PREFIX
from whenabouts.core.runtime.protocol import Step
from whenabouts.core.timing_join.best_match_order import NOBODY, BestPartners
from whenabouts.core.timing_join.modes import Mode

NUMBER = PREFIX + "number"
PROBABILITY = PREFIX + "probability"
PARTNER = PREFIX + "partner"
LAST = PREFIX + "last_match"

_NO_MATCH = -(2**63)


class MarkSchemas(NamedTuple):
    """Which marks the rows of each input have in a mode, and the schemas that follow from it."""

    mode: Mode
    blocks: Sequence[pa.Schema]

    @property
    def numbered(self) -> bool:
        """Whether rows have numbers."""
        return self.mode.best == "both" or bool(self.mode.chosen_only)

    @property
    def decided(self) -> tuple[int, ...]:
        """Inputs whose rows each need a decision."""
        return tuple(sorted({*self.mode.choosing, *self.mode.preserved}))

    @property
    def waiting(self) -> tuple[int, ...]:
        """Inputs whose rows can be final but undecided."""
        return self.mode.choosing if self.mode.best == "both" else self.mode.chosen_only

    def marks(self, input: int) -> pa.Schema | None:
        """The schema of an input's marks, None without marks."""
        if input not in self.decided:
            return None
        fields = [pa.field(NUMBER, pa.int64())] if self.numbered else []
        if input not in self.mode.choosing:
            return pa.schema([*fields, pa.field(LAST, pa.int64())])
        fields += [pa.field(PROBABILITY, pa.float64()), pa.field(PARTNER, pa.int64())]
        other = self.blocks[1 - input]
        return pa.schema([*fields, *(pa.field(partner_column(n), field.type) for n, field in enumerate(other))])

    def rows(self, input: int) -> pa.Schema:
        """The schema of an input's rows with their marks."""
        marks = self.marks(input)
        return self.blocks[input] if marks is None else pa.schema([*self.blocks[input], *marks])


def partner_column(number: int) -> str:
    """The mark with column `number` of the partner's block."""
    return f"{PARTNER}_{number}"


class BestStep:
    """One step's matches in a join with `best` (`finalizer.StepMatches`)."""

    def __init__(self, sides: MarkSchemas, rows: Sequence[SideRows], numbers: Sequence[IntArray | None]) -> None:
        self._schemas, self._rows, self._numbers = sides, rows, numbers
        self._partners = {input: self._begin_choosing(input) for input in sides.mode.choosing}
        self._last = {input: self._begin_last(input) for input in sides.mode.chosen_only}
        self._best_before = {input: partners.best.copy() for input, partners in self._partners.items()}
        self._last_before = {input: last.copy() for input, last in self._last.items()}

    def _begin_choosing(self, input: int) -> BestPartners:
        """The candidates: the rows of the other side, followed by the partners that stored rows already have."""
        mine, other = self._rows[input], self._rows[1 - input]
        schema = self._schemas.marks(input)
        assert schema is not None
        marks = mine.marks(schema)
        chose = np.flatnonzero(has_partner(marks))
        known = take_table(marks, chose)
        block = self._schemas.blocks[1 - input]
        columns = [known.column(partner_column(number)) for number in range(len(block))]
        candidates = pa.concat_tables([other.table, pa.table(columns, schema=block)]).combine_chunks()
        numbers = self._numbers[1 - input]
        if numbers is not None:
            numbers = np.concatenate([numbers, int_column(known, PARTNER)])
        nearest = self._schemas.mode.ties == "nearest"
        partners = BestPartners(len(mine.t_max), candidates, numbers, mine.t_min + mine.t_max if nearest else None)
        partners.best[chose] = other.table.num_rows + np.arange(len(chose))
        partners.probability[chose] = float_column(known, PROBABILITY)
        return partners

    def _begin_last(self, input: int) -> IntArray:
        mine = self._rows[input]
        new = np.full(len(mine.t_max) - mine.stored, _NO_MATCH)
        stored = [np.asarray(held.rows.column(LAST).fill_null(_NO_MATCH).to_numpy()) for held in mine.held]
        return np.concatenate([*stored, new])

    def take(
        self, pairs: tuple[NDArray[np.int32], NDArray[np.int32]], probability: FloatArray | None, step: Step
    ) -> Iterator[pa.RecordBatch]:
        """Process matching pairs and their probabilities; nothing is emitted yet."""
        assert probability is not None
        for input, partners in self._partners.items():
            partners.offer(pairs[input], pairs[1 - input], probability)
        for input, last in self._last.items():
            np.maximum.at(last, pairs[input], self._rows[1 - input].t_max[pairs[1 - input]])
        return iter(())

    def marks(self, input: int) -> pa.Table | None:
        """The marks of all rows of an input, None without marks."""
        schema = self._schemas.marks(input)
        if schema is None:
            return None
        number = self._numbers[input]
        columns = [] if number is None else [pa.array(number)]
        if input in self._last:
            last = self._last[input]
            columns.append(pa.array(last, mask=last == _NO_MATCH))
        else:
            columns += _of_partners(self._partners[input])
        return pa.Table.from_arrays(columns, schema=schema)

    def changed(self, input: int) -> BoolArray:
        """Which rows' marks have changed."""
        if input in self._last:
            changed: BoolArray = self._last[input] != self._last_before[input]
        else:
            changed = self._partners[input].best != self._best_before[input]
        return changed


def _of_partners(partners: BestPartners) -> list[pa.Array | pa.ChunkedArray]:
    """The marks of choosing rows: probability, number and columns of the partner."""
    nobody = partners.best == NOBODY
    numbers = partners.numbers
    number = np.zeros(len(nobody), np.int64) if numbers is None else np.append(numbers, 0)[partners.best]
    taken = take_table(partners.candidates, partners.best)
    return [pa.array(partners.probability, mask=nobody), pa.array(number, mask=nobody), *taken.columns]


def has_partner(rows: pa.RecordBatch | pa.Table) -> BoolArray:
    """Which choosing rows have a partner."""
    return np.asarray(rows.column(PROBABILITY).is_valid().to_numpy(zero_copy_only=False), bool)


def int_column(rows: pa.RecordBatch | pa.Table, name: str) -> IntArray:
    """A column of integers, with nulls as 0."""
    return np.asarray(rows.column(name).fill_null(0).to_numpy(), np.int64)


def float_column(rows: pa.RecordBatch | pa.Table, name: str) -> FloatArray:
    """A column of floats, with nulls as 0."""
    return np.asarray(rows.column(name).fill_null(0.0).to_numpy(), np.float64)

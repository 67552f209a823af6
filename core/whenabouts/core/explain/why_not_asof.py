"""Explains why a right row is the answer of a left row in an as-of join, or is not.

Whether a right row prevails depends on the other right rows. All of them pass through the join's own reader, keys and
kernel, so the answer agrees with the join.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.record_batches import table_of
from whenabouts.core.arrays.typing import FloatArray, IntArray
from whenabouts.core.durations import format_duration, whole_of
from whenabouts.core.errors import Code, InputError
from whenabouts.core.explain.pair_answer import (
    PairAnswer,
    Reason,
    compared,
    late_sentence,
    malformed,
    number,
    other_key,
)
from whenabouts.core.explain.pair_rows import PairRow, Row, one_row, read_pair
from whenabouts.core.frames.kinds import arrow_table
from whenabouts.core.joins.sides import RIGHT
from whenabouts.core.runtime.keys import Keys

if TYPE_CHECKING:
    from whenabouts.core.asof_join.query import AsofJoin


NUMBER = "row number of the right input"
"""A column of row numbers, the last one, so that it decides only between rows that are equal in everything else."""

MOST_OTHERS = 3
"""Of how many other right rows an answer gives the probability."""


class _Chances(NamedTuple):
    """Of the right rows that can prevail: their numbers and probabilities, and the probability that none prevails."""

    rows: IntArray
    probability: FloatArray
    none: float

    def of(self, row: int) -> float:
        """The probability that a row prevails."""
        return float(self.probability[self.rows == row].sum())

    def others(self, row: int) -> str:
        """The most probable other rows, and none, in words."""
        order = np.argsort(-self.probability, kind="stable")
        rest = [k for k in order.tolist() if self.rows[k] != row and self.probability[k]]
        told = [f"right row {self.rows[k]} with {number(self.probability[k])}" for k in rest[:MOST_OTHERS]]
        return ", ".join([*told, f"none with {number(self.none)}"])


def why_not_asof(
    left_row: Row, right_row: Row, right: Any, query: AsofJoin, watermarks: tuple[int | None, int | None]
) -> PairAnswer:
    """See `why_not`. `right`: all right rows; `right_row`: the number of one of them, or its values in some columns."""
    from whenabouts.core.asof_join.answers import partners_of

    rows = arrow_table("right", right)
    rows = rows.append_column(NUMBER, pa.array(np.arange(rows.num_rows)))
    at = _number_of(right_row, rows)
    operator, (left, row) = read_pair(left_row, rows.slice(at, 1), query, watermarks, whole=(RIGHT,))
    for side in (left, row):
        if side.fault is not None:
            return malformed(side.name, side.fault)
    batches, reader = rows.combine_chunks().to_batches(), operator.readers[RIGHT]
    all_right = table_of([reader.read(batch).block for batch in batches], reader.block_schema)

    def chances(among: pa.Table, of: AsofJoin = query) -> _Chances | None:
        return _chances(of, operator.keys, left.block, among)

    whole = chances(all_right)
    p = 0.0 if whole is None else whole.of(at)
    for side in (left, row):
        if side.t_max_us < side.watermark_us:
            return PairAnswer(
                Reason.LATE, late_sentence(side, f"it would have prevailed with {number(p)}"), p, Code.LATE
            )
    answer = other_key(operator.keys, query.inputs, [left.block, row.block], p)
    if answer is not None:
        return answer
    if whole is None:
        return malformed("left", Code.TOO_MANY_CANDIDATES)
    alone, at_any_distance = (chances(row.block, of) for of in (query, replace(query, tolerance=None, time_slots=None)))
    assert alone is not None, "one candidate"
    assert at_any_distance is not None, "one candidate"
    if not alone.of(at):
        return _out_of_reach(query, left, row, within_tolerance=not at_any_distance.of(at))
    others, confidence = whole.others(at), query.least_probability
    if not p:
        return PairAnswer(Reason.CANNOT_PREVAIL, f"cannot prevail: another row surely does before it ({others})", p)
    if p < confidence:
        return PairAnswer(Reason.PROBABILITY, f"probability {compared(p, '<', confidence)} ({others})", p)
    if query.keep == "best":
        best = partners_of(replace(query, how="left_outer"), operator.keys, left.block, all_right).right[0]
        if all_right.column(NUMBER)[int(best)].as_py() != at:
            return PairAnswer(Reason.LESS_PROBABLE, f"less probable: it prevails with {number(p)} ({others})", p)
    return PairAnswer(
        Reason.MATCH, f"match: it prevails with probability {compared(p, '>=', confidence)} ({others})", p
    )


def _chances(query: AsofJoin, keys: Keys, left: pa.Table, right: pa.Table) -> _Chances | None:
    """What can prevail among some right rows; None if there are too many candidates."""
    from whenabouts.core.asof_join.answers import prevailing_of

    found = prevailing_of(query, keys, left, right)
    if found.rejected[0]:
        return None
    numbers = np.asarray(right.column(NUMBER).to_numpy())[found.rows]
    return _Chances(numbers, found.probability, float(found.none_probability[0]))


def _number_of(row: Row, rows: pa.Table) -> int:
    """The number of the right row: as given, or of the first row with these values."""
    if (number := whole_of(row)) is not None:
        if not 0 <= number < rows.num_rows:
            problem = f"there is no right row {number}"
            raise InputError(Code.NOT_AN_INPUT, problem, f"there are {rows.num_rows}, counted from 0")
        return number
    given = one_row(row, None, "right")
    same = np.ones(rows.num_rows, bool)
    for name in given.schema.names:
        if name not in rows.column_names:
            raise InputError(Code.MISSING_COLUMN, f"the right rows have no column {name!r}", "leave it out")
        column = rows.column(name)
        value = given.column(name).cast(column.type, safe=False)
        codes = np.asarray(pa.concat_arrays([value, *column.chunks]).dictionary_encode("encode").indices)
        same &= codes[1:] == codes[0]
    found = np.flatnonzero(same)
    if not len(found):
        problem = f"no right row has the values {given.to_pylist()[0]}"
        raise InputError(Code.NOT_AN_INPUT, problem, "give one of the rows of right=, or its number")
    return int(found[0])


def _out_of_reach(query: AsofJoin, left: PairRow, row: PairRow, *, within_tolerance: bool) -> PairAnswer:
    """The answer for a right row that could not prevail if it were the only one."""
    if not within_tolerance:
        asked = f"the right row is farther from the left one than {format_duration(query.tolerance_us or 0)}"
        return PairAnswer(Reason.OUTSIDE_TOLERANCE, f"outside tolerance: {asked}", 0.0)
    points = left.t_min_us == left.t_max_us == row.t_min_us == row.t_max_us
    if points and not query.allow_exact_matches:
        return PairAnswer(
            Reason.EXACT_MATCH, "exact match: both are at one instant, and allow_exact_matches is False", 0.0
        )
    side = "after" if query.direction == "backward" else "before"
    said = f"the right row lies {side} the left one, and the join looks {query.direction}"
    return PairAnswer(Reason.OUTSIDE_WINDOW, f"outside window: {said}", 0.0)

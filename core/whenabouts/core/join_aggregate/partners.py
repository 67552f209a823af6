"""The partners of left rows as ranges of ordered right rows, with single rows beside them: no pair is written.

`partners_of` gives them for runs of left rows, so that the rows beside the ranges of one run fit into memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core.arrays.key_time_order import Times
from whenabouts.core.arrays.large_arrays import large_array, large_zeros
from whenabouts.core.arrays.typing import BoolArray, FloatArray, IntArray
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.join_aggregate.settings import JoinAggregateSettings
from whenabouts.core.joins.sides import LEFT, RIGHT
from whenabouts.core.probability.histogram_arrays import shapes_of
from whenabouts.core.probability.histogram_probability import shape_probabilities_at
from whenabouts.core.probability.possibility import instants_outside
from whenabouts.core.probability.satisfaction_probability import probabilities_at
from whenabouts.core.runtime.blocks import templates_of, times
from whenabouts.core.runtime.keys import Keys
from whenabouts.core.times.conditions import LEAST_CONFIDENCE, Condition
from whenabouts.core.times.templates import Template
from whenabouts.core.timing_join.candidate_ranges import CandidateRanges, ranges_of
from whenabouts.core.timing_join.probed_rows import (
    Beside,
    SureRanges,
    beside,
    matching_beside,
    offsets_of,
    sure_ranges,
)

ROWS_AT_ONCE = 1 << 22
"""How many rows beside ranges are processed together: some 200 MB."""

_NO_TEMPLATE = np.empty(0, np.int32)


@dataclass(frozen=True)
class Chosen:
    """The right rows of each left row of a run: the range `start[i] : stop[i]`, and `beside`."""

    start: IntArray
    stop: IntArray
    beside: Beside

    @property
    def ranges(self) -> tuple[IntArray, IntArray, Beside]:
        """As queries over ranges take them."""
        return self.start, self.stop, self.beside

    @cached_property
    def counts(self) -> IntArray:
        """How many each left row has."""
        offsets = self.beside.offsets
        found: IntArray = np.subtract(self.stop, self.start, out=large_array(len(self.start), np.int64))
        if offsets[-1]:
            found += offsets[1:]
            found -= offsets[:-1]
        return found


class Run(NamedTuple):
    """The partners of the left rows `rows`.

    `decided`: the right rows that reach the confidence, None if none is asked. `certain`: those with probability 1,
    `uncertain`: all others that are possible, with their probabilities `p`; None if no chance function is asked.
    """

    rows: slice
    decided: Chosen | None
    certain: Chosen | None
    uncertain: Beside
    p: FloatArray
    probed: int


class Side(NamedTuple):
    """The times of one side; `template` is empty if rows have none."""

    t_min: IntArray
    t_max: IntArray
    template: NDArray[np.int32]
    templates: tuple[Template, ...]


class PartnerSearch:
    """The ranges of all left rows among the ordered right rows. Both tables have block columns, in one chunk.

    No key may be null, unless there are no right rows. `window`: the bounds on right - left. `right_codes`: codes of
    the keys of the right table, None without keys. `position`: the row of the right table that each ordered right row
    is. `left` and `right`: the times of left rows and of ordered right rows.
    """

    def __init__(self, query: JoinAggregateSettings, keys: Keys, left: pa.Table, right: pa.Table) -> None:
        self._query = query
        self._condition: Condition = query.condition
        self._by = self._condition.decided_by(instants=query.reach.instants)
        self.window = self._condition.lo_us, self._condition.hi_us
        codes = keys.codes([left, right]) if keys.names and right.num_rows else [None, None]
        self.right_codes = codes[RIGHT]
        specs = query.left_time, query.right_time
        sides = []
        for table, code, spec in zip((left, right), codes, specs, strict=True):
            templates = tuple(template for _, template in spec.templates)
            sides.append((Times(*times(table), code, templates_of(table)), templates))
        self._found = self._ranges(*sides[LEFT], *sides[RIGHT])
        target, (of_left, templates_left), (of_right, templates_right) = self._found.target, *sides
        self.position = target.position
        template = _NO_TEMPLATE if of_right.template is None else of_right.template[target.position]
        self.left = Side(self._found.base.t_min, self._found.base.t_max, _template(of_left), templates_left)
        self.right = Side(target.t_min, target.t_max, template, templates_right)

    @property
    def sure(self) -> int:
        """How many pairs are taken from sure ranges."""
        return self._sure.sure

    @property
    def beside(self) -> IntArray:
        """How many right rows lie beside the sure range of each left row: each of them costs a probability."""
        ranges = self._found.ranges  # int32, and so is each difference
        return np.asarray(ranges[:, 1] - ranges[:, 0] + (ranges[:, 3] - ranges[:, 2]), np.int64)

    @cached_property
    def _sure(self) -> SureRanges:
        return sure_ranges(self._found.ranges)

    @property
    def _mixed(self) -> bool:
        """Whether ranges hold certain pairs only, and all others that are possible lie beside them.

        `possibly` widens its window, which lets pairs of two exact times in that are none.
        """
        return self._query.asks_chance or (self._condition.possible and self._by.confidence < 1)

    def _ranges(
        self, left: Times, left_templates: tuple[Template, ...], right: Times, right_templates: tuple[Template, ...]
    ) -> CandidateRanges:
        specs = self._query.left_time, self._query.right_time
        (shortest, longest), (least, most) = (
            (spec.min_uncertainty_us, _longest(rows) if spec.max_uncertainty_us is None else spec.max_uncertainty_us)
            for spec, rows in zip(specs, (left, right), strict=True)
        )

        def found(lo: int, hi: int, confidence: float, *, possible: bool = False) -> CandidateRanges:
            return ranges_of(
                left, right, lo, hi, confidence, base_lengths=(shortest, longest), target_lengths=(least, most),
                base_templates=left_templates, target_templates=right_templates, possible=possible,
            )  # fmt: skip

        asked = self._condition
        if not self._mixed:
            return found(self._by.lo_us, self._by.hi_us, self._by.confidence)
        certain = found(asked.lo_us, asked.hi_us, 1.0, possible=True)
        if asked.possible and self._query.asks_decided:
            outer = found(self._by.lo_us, self._by.hi_us, LEAST_CONFIDENCE).ranges
            ranges = np.clip(certain.ranges, outer[:, :1], outer[:, 3:])
            ranges[:, 0], ranges[:, 3] = outer[:, 0], outer[:, 3]
            certain = certain._replace(ranges=ranges)
        return certain

    def runs(self) -> Iterator[Run]:
        """The partners of all left rows, in runs of consecutive ones."""
        ranges, start = self._found.ranges, 0
        if len(ranges) and self._sure.beside <= ROWS_AT_ONCE:
            yield self._run(slice(0, len(ranges)))
            return
        until = np.cumsum(self.beside)
        while start < len(ranges):
            before = int(until[start - 1]) if start else 0
            stop = max(int(np.searchsorted(until, before + ROWS_AT_ONCE, side="right")), start + 1)
            yield self._run(slice(start, stop))
            start = stop

    def _run(self, rows: slice) -> Run:
        ranges = self._found.ranges[rows]
        start, stop = self._sure.start[rows], self._sure.stop[rows]
        if not self._mixed:
            by = self._by
            matching, probed = (
                matching_beside(self._found, rows, by.lo_us, by.hi_us, by.confidence)
                if self._sure.beside
                else (_nothing(len(ranges)), 0)
            )
            return Run(rows, Chosen(start, stop, matching), None, _nothing(len(ranges)), np.empty(0), probed)
        row, ring = beside(ranges)
        p = self._probabilities(row, ring.rows, rows.start, self._condition)
        decided = certain = None
        uncertain, uncertain_p = _nothing(len(ranges)), np.empty(0)
        if self._query.asks_decided:
            decided = Chosen(start, stop, _where(row, ring, self._accepted(row, ring.rows, rows.start, p), len(ranges)))
        if self._query.asks_chance:
            certain = Chosen(start, stop, _where(row, ring, p == 1.0, len(ranges)))
            some = (p > 0.0) & (p < 1.0)
            uncertain, uncertain_p = _where(row, ring, some, len(ranges)), p[some]
            self._require_few(rows, uncertain)
        return Run(rows, decided, certain, uncertain, uncertain_p, len(p))

    def _accepted(self, row: NDArray[np.int32], at: NDArray[np.int32], first: int, p: FloatArray) -> BoolArray:
        """Which of the pairs reach the confidence."""
        if not self._condition.possible or self._by.confidence == 1.0:  # possible and exact is certain
            reached: BoolArray = p >= self._by.confidence
            return reached
        (left, right), asked = (self.left, self.right), self._condition
        wider = self._probabilities(row, at, first, self._by)
        outside = instants_outside(
            (left.t_min, left.t_max), (right.t_min, right.t_max), row + np.int32(first), at, asked.lo_us, asked.hi_us
        )
        accepted: BoolArray = (wider >= self._by.confidence) & ~outside
        return accepted

    def _probabilities(
        self, row: NDArray[np.int32], at: NDArray[np.int32], first: int, condition: Condition
    ) -> FloatArray:
        """The canonical kernel's probability of each pair."""
        left, right, window = self.left, self.right, (condition.lo_us, condition.hi_us)
        row = row + np.int32(first)
        if not (left.templates or right.templates):
            return probabilities_at(left.t_min, left.t_max, right.t_min, right.t_max, row, at, *window)
        return shape_probabilities_at(
            left[:3], right[:3], row, at, shapes_of(left.templates), shapes_of(right.templates), *window
        )

    def _require_few(self, rows: slice, uncertain: Beside) -> None:
        """Raise QueryError WA-2182 for a left row with more uncertain partners of different times than allowed."""
        most = self._query.most_uncertain
        if most is None:
            return
        for i in np.flatnonzero(np.diff(uncertain.offsets) > most).tolist():
            at = uncertain.rows[uncertain.offsets[i] : uncertain.offsets[i + 1]]
            columns = [self.right.t_min[at], self.right.t_max[at]]
            columns += [self.right.template[at]] if self.right.templates else []
            classes = len(np.unique(np.stack(columns), axis=1).T)
            if classes > most:
                raise QueryError(
                    Code.TOO_MANY_UNCERTAIN,
                    f"the left row that ends at {int(self.left.t_max[rows.start + i])} us can meet {classes} uncertain "
                    f"right rows of different times, and most_uncertain is {most}",
                    "narrow the condition, join on a key, or raise most_uncertain; the cost of chance functions grows "
                    "with the square of this number",
                )


def _longest(rows: Times) -> int:
    return int((rows.t_max - rows.t_min).max(initial=0))


def _template(rows: Times) -> NDArray[np.int32]:
    return _NO_TEMPLATE if rows.template is None else np.ascontiguousarray(rows.template, np.int32)


def _where(row: NDArray[np.int32], ring: Beside, chosen: BoolArray, rows: int) -> Beside:
    return Beside(offsets_of(row[chosen], rows), ring.rows[chosen])


def _nothing(rows: int) -> Beside:
    return Beside(large_zeros(rows + 1, np.int64), np.empty(0, np.int32))

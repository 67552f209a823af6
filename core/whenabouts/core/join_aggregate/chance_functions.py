"""Chance functions of a run of left rows: over all right rows that are possible, whatever the confidence."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.typing import BoolArray, FloatArray, IntArray
from whenabouts.core.join_aggregate.chance_pieces import (
    ANY,
    COUNT_VARIANCE,
    NONE,
    NOT_BENT,
    SUM_VARIANCE,
    Chances,
    Clocks,
    Partners,
    Rows,
    chances,
    rows_of,
)
from whenabouts.core.join_aggregate.exact_sums import ExactSums, digits_of_floats, sums_of_rows
from whenabouts.core.join_aggregate.folded import Folded
from whenabouts.core.join_aggregate.functions import Aggregate
from whenabouts.core.join_aggregate.mark_columns import POSSIBLE
from whenabouts.core.join_aggregate.partners import Chosen, Run, Side
from whenabouts.core.join_aggregate.right_columns import RightColumns
from whenabouts.core.join_aggregate.shared_clock import Bent, given_offsets
from whenabouts.core.probability.histogram_arrays import shapes_of

_BITS = {"p_none": NONE, "p_any": ANY, "count_variance": COUNT_VARIANCE}


class ChanceFunctions:
    """The functions over one run.

    `offsets_us`: of the left and the right clock, if right rows share one (`shared_clock`). `folded`: what other right
    rows, that are not there any more, have added to expected counts and sums; None: nothing. `clocks`: the clock of
    each right row, if these are several (`clock_kernels`). `terms`: the work of the quadrature;
    `not_finite`: left rows with a NaN or infinite value among their partners.
    """

    def __init__(
        self,
        asked: Sequence[Aggregate],
        columns: RightColumns,
        sides: tuple[Side, Side],
        window: tuple[int, int],
        run: Run,
        offsets_us: tuple[int, int] | None = None,
        folded: Folded | None = None,
        clocks: IntArray | None = None,
    ) -> None:
        assert run.certain is not None, "chance functions are asked"
        self._columns, self._sides, self._window, self._run = columns, sides, window, run
        self._offsets_us, self._folded = offsets_us, folded
        self._clocks = None if clocks is None or offsets_us is None else Clocks(clocks, offsets_us[1])
        self._certain: Chosen = run.certain
        self._at_least = tuple(dict.fromkeys(each.argument for each in asked if each.function == "p_at_least"))
        self._count_at = tuple(dict.fromkeys(each.argument for each in asked if each.function == "count_at"))
        self._bits = sum({bit for name, bit in _BITS.items() if any(each.function == name for each in asked)})
        self._expected_sums: dict[str, FloatArray] = {}
        self._sum_variances: dict[str, FloatArray] = {}
        self.terms = 0
        self.not_finite: BoolArray = np.zeros(len(run.certain.start), bool)
        self._found = self._chances(self._undecided(), self._bits) if self._bits or self._tails else None

    @property
    def _tails(self) -> bool:
        return bool(self._at_least or self._count_at)

    def of(self, aggregate: Aggregate) -> pa.Array:
        """The answers for the left rows of the run."""
        name, argument, found = aggregate.function, aggregate.argument, self._found
        if name == "expected_count":
            return pa.array(self._expected_counts().to_floats())
        if name == "expected_sum":
            return pa.array(self._expected_sum(argument))
        if name == "sum_variance":
            return pa.array(self._sum_variance(argument))
        assert found is not None, "it was asked"
        if name == "p_none":
            return pa.array(found.none)
        if name == "p_any":
            return pa.array(found.any)
        if name == "count_variance":
            return pa.array(found.count_variance)
        if name == "p_at_least":
            return pa.array(found.at_least[:, self._at_least.index(argument)])
        return pa.array(found.count_at[:, self._count_at.index(argument)])

    @property
    def possible(self) -> IntArray:
        """How many possible partners each left row has."""
        found: IntArray = self._certain.counts + np.diff(self._run.uncertain.offsets)
        return found if self._folded is None else found + self._folded.number(POSSIBLE)

    def part(self, name: str) -> pa.Array:
        """A part of the marks that fold these rows, and all that were folded before (`folded`)."""
        if name == POSSIBLE:
            return pa.array(self.possible)
        kind, _, column = name.partition(":")
        sums = self._exact_sum(column) if kind == "expected_sum" else self._expected_counts()
        return sums.to_lists()

    def _expected_counts(self) -> ExactSums:
        found = self._partners().expected_counts()
        return found if self._folded is None else found.merged(self._folded.sums("expected_count"))

    def _partners(self, value: FloatArray | None = None) -> Partners:
        offsets, rows = self._run.uncertain
        return Partners(offsets, rows, self._run.p, self._certain.counts, value)

    def _undecided(self) -> Partners:
        """The partners, but for the uncertain ones of left rows whose certain partners decide everything asked."""
        partners = self._partners()
        if self._bits & COUNT_VARIANCE or self._count_at:
            return partners
        decided = self._certain.counts >= max([*self._at_least, 1])
        sizes = np.diff(partners.offsets)
        if not sizes[decided].any():
            return partners
        kept = np.repeat(~decided, sizes)
        offsets = np.concatenate([[0], np.cumsum(np.where(decided, 0, sizes))])
        return Partners(offsets, partners.rows[kept], partners.probability[kept], partners.certain)

    @cached_property
    def _times(self) -> tuple[Bent, Rows]:
        """The times of both sides, independent of each other."""
        left, right = self._sides
        at = self._run.rows
        of_left = rows_of(left.t_min[at], left.t_max[at], left.template[at], shapes_of(left.templates))
        of_right = rows_of(right.t_min, right.t_max, right.template, shapes_of(right.templates))
        if self._offsets_us is None:
            return Bent(of_left, NOT_BENT), of_right
        return given_offsets(of_left, of_right, self._offsets_us, one_clock=self._clocks is None)

    def _chances(self, partners: Partners, functions: int, *, tails: bool = True) -> Chances:
        bent, of_right = self._times
        found = chances(
            bent.rows, of_right, *self._window, partners, functions,
            at_least=self._at_least if tails else (), count_at=self._count_at if tails else (), bends=bent.bends,
            clocks=self._clocks,
        )  # fmt: skip
        self.terms += int(found.terms[0])
        return found

    def _expected_sum(self, name: str) -> FloatArray:
        """The nearest double to the exact sum."""
        if name not in self._expected_sums:
            found = self._exact_sum(name).to_floats()
            self.not_finite |= np.isnan(found)
            self._expected_sums[name] = found
        return self._expected_sums[name]

    def _exact_sum(self, name: str) -> ExactSums:
        """The exact sum of the certain values, and of the products of the others with P."""
        column, (offsets, rows) = self._columns[name], self._run.uncertain
        start, stop, (beside_offsets, beside) = self._certain.ranges
        prefix = column.certain
        certain = prefix.of_ranges(start, stop, prefix.digits.take(beside), beside_offsets)
        products = digits_of_floats(column.floats[rows] * self._run.p, column.valid[rows])
        found = certain.merged(sums_of_rows(products, offsets))
        return found if self._folded is None else found.merged(self._folded.sums(f"expected_sum:{name}"))

    def _sum_variance(self, name: str) -> FloatArray:
        if name not in self._sum_variances:
            value = self._columns[name].floats[self._run.uncertain.rows]
            found = self._chances(self._partners(value), SUM_VARIANCE, tails=False).sum_variance
            # A sum that is not finite has no variance, even if it is certain.
            self._sum_variances[name] = np.where(np.isnan(self._expected_sum(name)), np.nan, found)
        return self._sum_variances[name]

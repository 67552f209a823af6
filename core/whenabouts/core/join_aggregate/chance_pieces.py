"""The chance functions of a join aggregate: how many partners a left row has, and how sure that is.

A left row of time Y has uncertain partners of times X_j, and `B_j = [lo <= X_j - Y <= hi]`. All times are independent,
but the B_j are not: they share Y. Given Y = y they are, with `p_j(y) = P(lo <= X_j - y <= hi)`, so everything is an
expected value over Y: P(none) = E prod (1 - p_j(Y)), not the product of the 1 - P(B_j). Neither that product nor a
Poisson distribution comes near it (24 partners: 0.00165, 0.0062 and 0.0153).

**Pieces.** Cut the support of Y at the edges of its density, and at e - lo and e - hi for each edge e of a partner's
density. All cuts are integers. On a piece every p_j is linear; its values at both ends are ratios of integers,
p = n / L and q = 1 - p = (L - n) / L, and between the ends both are sums of numbers that are not negative. So a window
of a month meets intervals of a microsecond without loss. A point is 0 or 1 on the whole open piece. A share that is 1
on a piece counts as certain there.

**Integrals.** Variances are closed forms in the values at the ends: `Var N = E sum p_j q_j + Var m(Y)`, m = sum p_j,
the second term centred, E (m(Y) - c)^2 - (E m(Y) - c)^2 with c near E m(Y). Products and tails are polynomials in x, of
a degree d that is the number of partners whose shares change. Gauss-Legendre quadrature with floor(d / 2) + 1 nodes is
exact; with r nodes the error is at most c_r T^(2r), T = sum |p_j(b) - p_j(a)|, c_r = (r!)^4 / ((2r + 1) ((2r)!)^3), and
for tails c_r (2T)^(2r) / 2. The least r up to 16 with an error of at most 2^-60 is taken. Where there is none, the
piece is halved. P(N >= k) at a node is the usual recursion over partners, with one state for each number below k and
one for the rest.

**Error.** At most (4n + 30) 2^-53, relative, for n partners, so 1e-12 for probabilities, and 1e-12 (1 + E N)^2 for the
variance of a count, up to 2,000 uncertain partners. A probability is 0.0 or 1.0 only if that is certain.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.typing import FloatArray, IntArray
from whenabouts.core.join_aggregate.chance_kernels import (
    ANY,
    COUNT_VARIANCE,
    NONE,
    SUM_VARIANCE,
    Chances,
    Ring,
    Rows,
    fill_chances,
)
from whenabouts.core.join_aggregate.exact_sums import ExactSums, digits_of_floats, sums_of_rows
from whenabouts.core.join_aggregate.limbs import UNIT, VALUES
from whenabouts.core.join_aggregate.several_clocks import fill_chances_of_clocks
from whenabouts.core.probability.histogram_arrays import NO_SHAPES, Shapes

__all__ = [
    "ANY",
    "COUNT_VARIANCE",
    "NONE",
    "NOT_BENT",
    "SUM_VARIANCE",
    "Chances",
    "Clocks",
    "Partners",
    "Rows",
    "chances",
    "rows_of",
]

NOT_BENT: FloatArray = np.empty(0)
"""Densities that are constant within their buckets."""

_Number = TypeVar("_Number", bound=np.generic)

_AT_ONCE = 1 << 16
"""Left rows and their partners in a call of a kernel: a tenth of a second, and more if rows have many partners."""


class Clocks(NamedTuple):
    """The clock of each right row, as a number, and how far each may be off: its offset is uniform in
    `[-offset_us, offset_us]`, above 0, and independent of those of the others."""

    of_right: IntArray
    offset_us: int


def rows_of(
    t_min: IntArray, t_max: IntArray, shape: NDArray[np.int32] | None = None, shapes: Shapes = NO_SHAPES
) -> Rows:
    """The times of one side: uniform on `[t_min, t_max]` (equal: points), or as the shapes that `shape` numbers."""
    shape = np.empty(0, np.int32) if shape is None else shape
    if shape.size:
        t_max, shapes = _without_empty_ends(t_max, shape, shapes)
    return Rows(read_only(t_min, np.int64), read_only(t_max, np.int64), read_only(shape, np.int32), shapes)


def _without_empty_ends(t_max: IntArray, shape: NDArray[np.int32], shapes: Shapes) -> tuple[IntArray, Shapes]:
    """The same times, with shapes whose last bucket ends at the anchor: a template may end with empty ones."""
    empty = shapes.edge[shapes.start[1:] - 1]
    if not empty.any():
        return t_max, shapes
    edge = read_only(shapes.edge - np.repeat(empty, np.diff(shapes.start)), np.int64)
    return t_max + empty[shape], shapes._replace(edge=edge)


def read_only(values: NDArray[Any], type_: type[_Number]) -> NDArray[_Number]:
    """An array as numba's type of a tuple has it."""
    found = np.ascontiguousarray(values, type_).view()
    found.setflags(write=False)
    return found


class Partners:
    """The partners of each left row: how many are certain, and which are uncertain.

    The uncertain partners of left row i are the right rows `rows[offsets[i] : offsets[i + 1]]`, with the probabilities
    `probability` (the canonical kernel's, above 0 and below 1), in any order. `value`: their values, where a variance
    of a sum is asked; a null is 0.0.
    """

    def __init__(
        self,
        offsets: IntArray,
        rows: NDArray[np.int32],
        probability: FloatArray,
        certain: IntArray | None = None,
        value: FloatArray | None = None,
    ) -> None:
        n = len(offsets) - 1
        self.offsets, self.rows = read_only(offsets, np.int64), read_only(rows, np.int32)
        self.probability = np.ascontiguousarray(probability, np.float64)
        self.certain = read_only(np.zeros(n) if certain is None else certain, np.int64)
        self.value = value if value is None else np.where(np.isfinite(value), value, np.nan)

    def expected_count(self) -> FloatArray:
        """E N: the double nearest to the exact sum of the certain partners and the probabilities of the others."""
        return self.expected_counts().to_floats()

    def expected_counts(self) -> ExactSums:
        """That sum itself."""
        certain = ExactSums(np.array([VALUES, UNIT]), np.stack([np.ones_like(self.certain), self.certain], axis=1))
        return sums_of_rows(digits_of_floats(self.probability), self.offsets).merged(certain)

    def ring(self) -> Ring:
        """The arrays of the kernel."""
        value = np.empty(0) if self.value is None else self.value
        expected = self._expected(self.probability)
        expected_sum = np.empty(0) if self.value is None else self._expected(value * self.probability)
        floats = (read_only(column, np.float64) for column in (value, expected, expected_sum))
        value, expected, expected_sum = floats
        return Ring(self.offsets, self.rows, value, self.certain, expected, expected_sum)

    def _expected(self, summands: FloatArray) -> FloatArray:
        return sums_of_rows(digits_of_floats(summands), self.offsets).to_floats()


def chances(
    left: Rows,
    right: Rows,
    lo: int,
    hi: int,
    partners: Partners,
    functions: int = 0,
    *,
    at_least: tuple[int, ...] = (),
    count_at: tuple[float, ...] = (),
    bends: FloatArray = NOT_BENT,
    clocks: Clocks | None = None,
) -> Chances:
    """The chance functions of left rows whose partners lie `lo` to `hi` microseconds from them.

    `functions` is a sum of `NONE`, `ANY`, `COUNT_VARIANCE` and `SUM_VARIANCE` (which takes values). `at_least`: for
    each k >= 1 a column with P(N >= k). `count_at`: for each c in (0, 1] a column with the greatest k for which
    P(N >= k) >= c. `bends`: of the left densities (`shared_clock`). `clocks`: where right rows are readings of several
    clocks (`clock_kernels`); right times do not include the offsets. No result depends on which others are asked, nor
    on the order of the partners.

    Cost per left row with n uncertain partners: O(n log n + pieces x partners on them x nodes), at most
    2 n (buckets + 1) pieces; about 1 us for a few partners (`benchmarks/chance_pieces.py`). `terms[0]` counts nodes x
    partners. Error: see the module's text.

    >>> left, right = rows_of(np.array([0]), np.array([10])), rows_of(np.array([12] * 3), np.array([12] * 3))
    >>> three = Partners(np.array([0, 3]), np.arange(3), np.full(3, 0.3))
    >>> found = chances(left, right, 0, 5, three, NONE + COUNT_VARIANCE, at_least=(3,), count_at=(0.25,))
    >>> found.none.tolist(), found.count_variance.tolist(), found.at_least.tolist(), found.count_at.tolist()
    ([0.7], [1.89], [[0.3]], [[3]])
    """
    n = len(partners.certain)
    none, some, variance, sum_variance = (
        np.empty(n if functions & function else 0) for function in (NONE, ANY, COUNT_VARIANCE, SUM_VARIANCE)
    )
    counts = np.empty((n, len(at_least))), np.empty((n, len(count_at)), np.int64)
    out = Chances(none, some, variance, sum_variance, *counts, np.zeros(1, np.int64))
    tails = np.array(at_least, np.int64), np.array(count_at, np.float64)
    bends, ring = read_only(bends, np.float64), partners.ring()
    of_right = None if clocks is None else read_only(clocks.of_right, np.int64)
    for at in _runs(partners.offsets):
        of_run = Rows(left.t_min[at], left.t_max[at], left.shape[at], left.shapes)
        offsets = ring.offsets[at.start : at.stop + 1]
        of_ring = Ring(offsets, ring.rows, ring.value, ring.certain[at], ring.expected[at], ring.expected_sum[at])
        into = Chances._make(array if array is out.terms else array[at] for array in out)
        if clocks is None or of_right is None:
            fill_chances(of_run, right, bends, lo, hi, of_ring, functions, *tails, into)
        else:
            offset = clocks.offset_us
            fill_chances_of_clocks(of_run, right, bends, of_right, offset, lo, hi, of_ring, functions, *tails, into)
    return out


def _runs(offsets: IntArray) -> list[slice]:
    """The left rows in runs of so much work that an interrupt between two of them is soon seen."""
    work = offsets + np.arange(len(offsets))
    starts = np.unique(np.searchsorted(work[:-1], np.arange(0, work[-1], _AT_ONCE)))
    rows = len(offsets) - 1
    return [slice(*ends) for ends in pairwise([*starts[starts < rows].tolist(), rows])]

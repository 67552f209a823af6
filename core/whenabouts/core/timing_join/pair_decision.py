"""Decides whether a pair outside the sure ranges matches, by thresholds and kernel: one decision for all kernels.

Without thresholds the decision is the canonical kernel's alone (`pair_probability`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from whenabouts.core.arrays.jit import (
    BOOL,
    FLOAT64,
    INT64,
    READ_INT32,
    READ_INT64,
    READ_INT64_3D,
    WRITE_FLOAT64,
    compiled,
)
from whenabouts.core.arrays.typing import FloatArray, IntArray, Positions
from whenabouts.core.probability.histogram_arrays import Shapes
from whenabouts.core.probability.histogram_probability import SHAPES, UNIFORM, shape_probability
from whenabouts.core.probability.satisfaction_probability import pair_probability


class KindThresholds(NamedTuple):
    """The shapes of the rows, and which differences of anchors match for each pair of shapes.

    `base`, `target`: the kind of each row, int32, in the order of the fill. `table`: see
    `probability.match_thresholds.thresholds` (empty: no thresholds). `base_shapes`, `target_shapes`: the templates;
    empty if rows are uniform between their own ends.
    """

    base: NDArray[np.int32]
    target: NDArray[np.int32]
    table: IntArray
    base_shapes: Shapes
    target_shapes: Shapes
    base_is_right: bool

    def as_they_came(self) -> KindThresholds:
        """The same, for kernels that find rows by their positions."""
        return self._replace(base=_read_only(self.base), target=_read_only(self.target))

    def in_order(self, base: NDArray[np.int32], target: NDArray[np.int32]) -> KindThresholds:
        """The same for rows taken in another order."""
        if self.table.shape[:2] == (1, 1):  # all rows of a side are of one kind
            return self.as_they_came()
        return self._replace(target=_read_only(self.target[target])).of_base(base)

    def of_base(self, base: NDArray[np.int32] | IntArray) -> KindThresholds:
        """The same for some base rows, in another order."""
        return self._replace(base=_read_only(self.base[base]))


def _read_only(kinds: NDArray[np.int32]) -> NDArray[np.int32]:
    """An array as numba's type of the tuple has it."""
    view = kinds.view()  # the array itself may be the caller's
    view.setflags(write=False)
    return view


KIND_THRESHOLDS = types.NamedTuple(  # type: ignore[no-untyped-call]  # numba ships no types
    (READ_INT32, READ_INT32, READ_INT64_3D, SHAPES, SHAPES, BOOL), KindThresholds
)

_TWO_BOOLS = types.Tuple((types.boolean,) * 2)  # type: ignore[no-untyped-call]  # as above
_FLOAT_AND_BOOL = types.Tuple((types.float64, types.boolean))  # type: ignore[no-untyped-call]  # as above

OPEN = -1.0
"""Instead of a probability: the pair needs the kernel for templates."""


@compiled(_TWO_BOOLS(READ_INT64_3D, INT64, INT64, INT64), inline=True)
def compare_anchors(thresholds: IntArray, base: int, target: int, delta: int) -> tuple[bool, bool]:
    """Whether a pair of these kinds matches for sure, and whether it can match, if its anchors differ by `delta`.

    Four comparisons without a branch.
    """
    a, b = np.uint64(base), np.uint64(target)
    sure = (delta >= thresholds[a, b, 1]) & (delta <= thresholds[a, b, 2])
    possible = (delta >= thresholds[a, b, 0]) & (delta <= thresholds[a, b, 3])
    return sure, possible


@compiled(_FLOAT_AND_BOOL(
    INT64, INT64, INT64, INT64, INT64, INT64, INT64, INT64, READ_INT64_3D, BOOL
), inline=True)  # fmt: skip
def judge(
    lo: int,
    hi: int,
    base_min: int,
    base_max: int,
    base_kind: int,
    target_min: int,
    target_max: int,
    target_kind: int,
    thresholds: IntArray,
    templates: bool,
) -> tuple[float, bool]:
    """The probability of a pair, and whether it takes a call of the canonical kernel.

    A pair that the thresholds decide gets 1 or 0, which compares with the confidence as its probability would. The
    kernel decides the others: here the kernel of two uniforms, or, with `templates`, `probability_of_kinds`, which the
    caller calls if the result is `OPEN`. (That function takes a tuple of arrays. Passing it through here would make
    numba count references for every pair, which costs ten times the decision.)
    """
    sure, possible = compare_anchors(thresholds, base_kind, target_kind, target_max - base_max)
    if sure or not possible:
        return (1.0 if sure else 0.0), False
    if templates:
        return OPEN, True
    return pair_probability(base_min, base_max, target_min, target_max, lo, hi), True


@compiled(BOOL(KIND_THRESHOLDS))
def has_templates(kinds: KindThresholds) -> bool:
    """Whether the rows of at least one side have templates."""
    return kinds.base_shapes.start.size > 1 or kinds.target_shapes.start.size > 1


@compiled(FLOAT64(INT64, INT64, INT64, INT64, INT64, INT64, INT64, INT64, KIND_THRESHOLDS), inline=True)
def probability_of_kinds(
    lo: int,
    hi: int,
    base_min: int,
    base_max: int,
    base_kind: int,
    target_min: int,
    target_max: int,
    target_kind: int,
    kinds: KindThresholds,
) -> float:
    """The canonical kernel's probability of a pair in which at least one row has a template."""
    base_shape = base_kind if kinds.base_shapes.start.size > 1 else UNIFORM
    target_shape = target_kind if kinds.target_shapes.start.size > 1 else UNIFORM
    if kinds.base_is_right:  # the kernel sums over the left event first, whichever side is the base
        return shape_probability(
            target_min, target_max, target_shape, base_min, base_max, base_shape,
            kinds.target_shapes, kinds.base_shapes, -hi, -lo,
        )  # fmt: skip
    return shape_probability(
        base_min, base_max, base_shape, target_min, target_max, target_shape,
        kinds.base_shapes, kinds.target_shapes, lo, hi,
    )  # fmt: skip


@compiled(INT64(
    KIND_THRESHOLDS, INT64, READ_INT64, READ_INT64, READ_INT64, READ_INT64, READ_INT32, READ_INT32, INT64, INT64,
    WRITE_FLOAT64,
))  # fmt: skip
def fill_decisions_at(
    kinds: KindThresholds,
    first_row: int,
    base_min: IntArray,
    base_max: IntArray,
    target_min: IntArray,
    target_max: IntArray,
    base_at: Positions,
    target_at: Positions,
    lo: int,
    hi: int,
    out: FloatArray,
) -> int:
    """Decide the pairs (base_at[i], target_at[i]) as `judge` does, and return how many took the canonical kernel.

    All are positions among the rows as they came, and those of base rows are counted from `first_row`.
    """
    base_kind, target_kind, thresholds = kinds.base, kinds.target, kinds.table
    unsettled = 0
    for i in range(out.size):
        base, target = np.uint64(base_at[i]), np.uint64(target_at[i])
        sure, possible = compare_anchors(
            thresholds, base_kind[np.uint64(first_row) + base], target_kind[target], target_max[target] - base_max[base]
        )
        out[i] = 1.0 if sure else (OPEN if possible else 0.0)
        unsettled += possible & (not sure)
    if unsettled:
        templates = has_templates(kinds)
        for i in range(out.size):
            if out[i] == OPEN:
                base, target = base_at[i], target_at[i]
                times = base_min[base], base_max[base], target_min[target], target_max[target]
                out[i] = (
                    probability_of_kinds(
                        lo, hi, times[0], times[1], base_kind[first_row + base], times[2], times[3],
                        target_kind[target], kinds,
                    )
                    if templates
                    else pair_probability(times[0], times[1], times[2], times[3], lo, hi)
                )  # fmt: skip
    return unsettled

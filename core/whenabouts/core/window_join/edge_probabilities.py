"""The probabilities of combinations: of each window with a confidence, and of all of them together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from whenabouts.core.arrays.typing import FloatArray, IntArray, Positions
from whenabouts.core.joins.rows import SideRows
from whenabouts.core.window_join.graph import Edge

if TYPE_CHECKING:
    from whenabouts.core.window_join.settings import WindowJoinSettings

_EMPTY = np.empty(0, np.int32)


def edge_probabilities(
    query: WindowJoinSettings, edge: Edge, first: SideRows, second: SideRows, one: Positions, other: Positions
) -> FloatArray:
    """The canonical kernel's values for an edge, of rows `one` of its first and `other` of its second stream.

    The stream whose name sorts first is the left one, so that the order in which a user lists streams does not change
    any bit.
    """
    left, right, at, lo, hi = first, second, (one, other), edge.lo_us, edge.hi_us
    if edge.second < edge.first:
        left, right, at, lo, hi = second, first, (other, one), -edge.hi_us, -edge.lo_us
    shared_us = query.shared_offset_us(edge)
    if shared_us or (left.template is None and right.template is None):
        from whenabouts.core.probability.satisfaction_probability import (
            probabilities_at,  # numba: imported when first needed
        )

        if shared_us:
            every = np.arange(len(at[0]), dtype=np.int32)
            l_min, l_max = own_ends(left, at[0], shared_us)
            return probabilities_at(l_min, l_max, *own_ends(right, at[1], shared_us), every, every, lo, hi)
        return probabilities_at(left.t_min, left.t_max, right.t_min, right.t_max, *at, lo, hi)
    from whenabouts.core.probability.histogram_arrays import shapes_of
    from whenabouts.core.probability.histogram_probability import shape_probabilities_at

    names = sorted((edge.first, edge.second))
    shapes = [shapes_of(tuple(t for _, t in query.spec(name).templates)) for name in names]
    one_side, other_side = (
        (side.t_min, side.t_max, _EMPTY if side.template is None else side.template) for side in (left, right)
    )
    return shape_probabilities_at(one_side, other_side, *at, shapes[0], shapes[1], lo, hi)


def own_ends(side: SideRows, at: Positions, offset_us: int) -> tuple[IntArray, IntArray]:
    """Both ends of some rows' times without the offset of their clock: `[t - own, t + own]`."""
    return side.t_min[at] + offset_us, side.t_max[at] - offset_us


def probabilities_of_all(query: WindowJoinSettings, rows: Sequence[SideRows], at: Sequence[Positions]) -> FloatArray:
    """The probability that all windows with a confidence hold together; `at[s]`: rows of stream s."""
    from whenabouts.core.probability.histogram_arrays import NO_SHAPES, shapes_of
    from whenabouts.core.probability.joint_probability import densities_of
    from whenabouts.core.probability.shared_clocks import joint_probabilities_of_clocks

    reference, shared_us = rows[0].t_max[at[0]], query.shared_offsets_us
    densities = []
    for side, (name, spec), positions in zip(rows, query.times, at, strict=True):
        if name in shared_us:
            ends = own_ends(side, positions, shared_us[name])
            densities.append(densities_of(*ends, reference, NO_SHAPES, None))
            continue
        shapes = shapes_of(tuple(template for _, template in spec.templates))
        number = None if side.template is None else side.template[positions]
        densities.append(densities_of(side.t_min[positions], side.t_max[positions], reference, shapes, number))
    return joint_probabilities_of_clocks(densities, query.uncertain_windows, query.corrections)

"""The probabilities of combinations: of each window with a confidence, and of all of them together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from whenabouts.core.arrays.typing import FloatArray, Positions
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
    if left.template is None and right.template is None:
        from whenabouts.core.probability.satisfaction_probability import (
            probabilities_at,  # numba: imported when first needed
        )

        return probabilities_at(left.t_min, left.t_max, right.t_min, right.t_max, *at, lo, hi)
    from whenabouts.core.probability.histogram_arrays import shapes_of
    from whenabouts.core.probability.histogram_probability import shape_probabilities_at

    names = sorted((edge.first, edge.second))
    shapes = [shapes_of(tuple(t for _, t in query.spec(name).templates)) for name in names]
    one_side, other_side = (
        (side.t_min, side.t_max, _EMPTY if side.template is None else side.template) for side in (left, right)
    )
    return shape_probabilities_at(one_side, other_side, *at, shapes[0], shapes[1], lo, hi)


def probabilities_of_all(query: WindowJoinSettings, rows: Sequence[SideRows], at: Sequence[Positions]) -> FloatArray:
    """The probability that all windows with a confidence hold together; `at[s]`: rows of stream s."""
    from whenabouts.core.probability.histogram_arrays import shapes_of
    from whenabouts.core.probability.joint_probability import densities_of, joint_probabilities

    windows, reference = query.uncertain_windows, rows[0].t_max[at[0]]
    densities = []
    for side, (_, spec), positions in zip(rows, query.times, at, strict=True):
        shapes = shapes_of(tuple(template for _, template in spec.templates))
        number = None if side.template is None else side.template[positions]
        densities.append(densities_of(side.t_min[positions], side.t_max[positions], reference, shapes, number))
    return joint_probabilities(densities, windows)

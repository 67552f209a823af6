"""The answers of left rows: which right rows they come out with, from all right rows of a bucket that can matter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.asof_join.output import Partners
from whenabouts.core.asof_join.right_order import ranks_of_ties
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.runtime.blocks import times
from whenabouts.core.runtime.keys import Keys
from whenabouts.core.times.time_specs import TimeSpec

if TYPE_CHECKING:
    from whenabouts.core.asof_join.settings import AsofJoinSettings

Codes = NDArray[np.int32]
"""Dense codes of keys, -1 for a key with a null."""


def partners_of(query: AsofJoinSettings, keys: Keys, left: pa.Table, right: pa.Table) -> Partners:
    """The partners of left rows, among right rows; both are tables of block columns, each in one chunk."""
    left_key, right_key, count = _codes(keys, left, right)
    left_ends, right_ends = times(left), times(right)
    if not (_are_points(query.left_time, left_ends) and _are_points(query.right_time, right_ends)):
        raise QueryError(Code.NOT_AVAILABLE, "some times are uncertain", "give points: others are not available yet")

    def ranks() -> IntArray:
        return ranks_of_ties(right, right_key, query.ordered_by)

    from whenabouts.core.asof_join.point_sweep import Points, prevailing_points  # numba: imported when first needed

    partner = prevailing_points(
        Points(left_ends[1], left_key),
        Points(right_ends[1], right_key),
        keys=count,
        direction=query.direction,
        tolerance_us=query.tolerance_us,
        allow_exact_matches=query.allow_exact_matches,
        ranks=ranks,
    )
    return Partners(None, partner, None, None)


def _are_points(spec: TimeSpec, ends: tuple[IntArray, IntArray]) -> bool:
    return spec.max_uncertainty_us == 0 or bool(np.array_equal(*ends))


def _codes(keys: Keys, left: pa.Table, right: pa.Table) -> tuple[Codes | None, Codes | None, int]:
    """The codes of both sides' keys, None without keys; and how many there are."""
    if not keys.names:
        return None, None, 1
    codes = keys.small_codes([left, right])
    count = max(int(side.max(initial=-1)) for side in codes) + 1
    return codes[0], codes[1], count

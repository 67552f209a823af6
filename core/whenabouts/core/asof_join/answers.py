"""The answers of left rows: which right rows they come out with, from all right rows of a bucket that can matter."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core.arrays.typing import BoolArray, FloatArray, IntArray
from whenabouts.core.asof_join.right_order import ties_of
from whenabouts.core.runtime.blocks import templates_of, times
from whenabouts.core.runtime.keys import Keys
from whenabouts.core.times.time_specs import TimeSpec

if TYPE_CHECKING:
    from whenabouts.core.asof_join.prevailing import Prevailing, Side
    from whenabouts.core.asof_join.settings import AsofJoinSettings

Codes = NDArray[np.int32]
"""Dense codes of keys, -1 for a key with a null."""


class Partners(NamedTuple):
    """The right rows that left rows come out with.

    `left`: rows of the left table; None: all of them, in order. `right`: the right row of each, negative for none.
    `probability`: of each right row; None: certain. `none_probability`: of each left row of the table; None: exact
    times, each left row has a partner for certain or none. `rejected`: left rows that have too many candidates, and
    are none of `left`; None: there are none.
    """

    left: NDArray[np.int32] | None
    right: NDArray[np.int32]
    probability: FloatArray | None = None
    none_probability: FloatArray | None = None
    rejected: BoolArray | None = None

    @property
    def none(self) -> FloatArray:
        """The probability that no right row prevails, of the left row of each of these rows."""
        if self.none_probability is None:
            return (self.right < 0).astype(np.float64)
        return self.none_probability if self.left is None else self.none_probability[self.left]

    def where(self, kept: BoolArray) -> Partners:
        """Some of these rows."""
        at = np.flatnonzero(kept).astype(np.int32)
        return self._replace(
            left=at if self.left is None else self.left[at],
            right=self.right[at],
            probability=None if self.probability is None else self.probability[at],
        )


def partners_of(query: AsofJoinSettings, keys: Keys, left: pa.Table, right: pa.Table) -> Partners:
    """The partners of left rows, among right rows; both are tables of block columns, each in one chunk."""
    left_ends, right_ends = times(left), times(right)
    if not (_are_points(query.left_time, left_ends) and _are_points(query.right_time, right_ends)):
        sides = _sides(query, keys, left, right)
        return _chosen(query, _prevailing(query, *sides), sides[1])

    from whenabouts.core.asof_join.point_sweep import Points, prevailing_points  # numba: imported when first needed

    left_key, right_key, count = _codes(keys, left, right)
    partner = prevailing_points(
        Points(left_ends[1], left_key),
        Points(right_ends[1], right_key),
        keys=count,
        direction=query.direction,
        tolerance_us=query.tolerance_us,
        allow_exact_matches=query.allow_exact_matches,
        ties=lambda: ties_of(right, right_key, query.tie_columns),
    )
    return Partners(None, partner)


def prevailing_of(query: AsofJoinSettings, keys: Keys, left: pa.Table, right: pa.Table) -> Prevailing:
    """The right rows that can prevail for each left row, with their probabilities, whatever the confidence."""
    return _prevailing(query, *_sides(query, keys, left, right))


def _sides(query: AsofJoinSettings, keys: Keys, left: pa.Table, right: pa.Table) -> tuple[Side, Side]:
    from whenabouts.core.asof_join.prevailing import Side  # as above

    left_key, right_key, _ = _codes(keys, left, right)
    rank = ties_of(right, right_key, query.tie_columns).ranks(right.num_rows)
    of_left, of_right = (
        Side(*times(rows), codes, templates_of(rows), tuple(each for _, each in spec.templates), order)
        for rows, codes, spec, order in (
            (left, left_key, query.left_time, None),
            (right, right_key, query.right_time, rank),
        )
    )
    return of_left, of_right


def _prevailing(query: AsofJoinSettings, left: Side, right: Side) -> Prevailing:
    from whenabouts.core.asof_join.prevailing import DEFAULT_MAX_CANDIDATES, MaxCandidates, prevailing  # as above

    most = query.max_candidates
    return prevailing(
        left,
        right,
        direction=query.direction,  # type: ignore[arg-type]  # validated when the query was made
        tolerance_us=query.tolerance_us,
        allow_exact_matches=query.allow_exact_matches,
        max_candidates=DEFAULT_MAX_CANDIDATES if most is None else MaxCandidates(most, most, most),
    )


def _chosen(query: AsofJoinSettings, found: Prevailing, right: Side) -> Partners:
    partners = _all(query, found) if query.keep == "all" else _best(query, found, right)
    if not found.rejected.any():
        return partners
    usable = ~found.rejected if partners.left is None else ~found.rejected[partners.left]
    return partners.where(usable)._replace(rejected=found.rejected)


def _best(query: AsofJoinSettings, found: Prevailing, right: Side) -> Partners:
    """The most probable row of each left row; of equally probable ones the later, looking forward the earlier."""
    from whenabouts.core.asof_join.choosing import most_probable  # as above

    rows = len(found.none_probability)
    best, probability = np.empty(rows, np.int32), np.empty(rows)
    forward = query.direction == "forward"
    ends = (right.t_min, right.t_max) if forward else (right.t_max, right.t_min)
    rank = right.rank
    assert rank is not None, "given above"
    most_probable(
        found.offsets, found.rows, found.probability, *ends, rank, -1 if forward else 1, query.least_probability,
        best, probability,
    )  # fmt: skip
    return Partners(None, best, probability, found.none_probability)


def _all(query: AsofJoinSettings, found: Prevailing) -> Partners:
    """Each right row that reaches the confidence, and the left rows that have none."""
    rows = len(found.none_probability)
    reaches = found.probability >= query.least_probability
    of = np.repeat(np.arange(rows, dtype=np.int32), np.diff(found.offsets))[reaches]
    alone = np.ones(rows, bool)
    alone[of] = False
    others = np.flatnonzero(alone).astype(np.int32)
    return Partners(
        np.concatenate([of, others]),
        np.concatenate([found.rows[reaches], np.full(len(others), -1, np.int32)]),
        np.concatenate([found.probability[reaches], np.zeros(len(others))]),
        found.none_probability,
    )


def _are_points(spec: TimeSpec, ends: tuple[IntArray, IntArray]) -> bool:
    return spec.max_uncertainty_us == 0 or bool(np.array_equal(*ends))


def _codes(keys: Keys, left: pa.Table, right: pa.Table) -> tuple[Codes | None, Codes | None, int]:
    """The codes of both sides' keys, None without keys; and how many there are."""
    if not keys.names:
        return None, None, 1
    codes = keys.small_codes([left, right])
    count = max(int(side.max(initial=-1)) for side in codes) + 1
    return codes[0], codes[1], count


def high_ends_of(query: AsofJoinSettings, keys: Keys, left: pa.Table, right: pa.Table) -> IntArray:
    """The latest instant at which a candidate of each left row can begin, given these right rows; no key is null."""
    if query.direction == "backward":
        return times(left)[1]
    left_key, right_key, count = _codes(keys, left, right)
    assert query.tolerance_us is not None, "required of a stream that looks ahead"
    from whenabouts.core.asof_join.high_ends import high_ends  # numba: imported when first needed

    return high_ends(
        times(left),
        np.zeros(left.num_rows, np.int32) if left_key is None else left_key,
        times(right),
        np.zeros(right.num_rows, np.int32) if right_key is None else right_key,
        count,
        direction=query.direction,
        tolerance_us=query.tolerance_us,
        allow_exact_matches=query.allow_exact_matches,
    )

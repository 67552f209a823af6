"""Assigns each row of a correlation a kind (a template or a class of lengths), and finds the thresholds of the kinds.

Each template is a kind. For uniform rows with few distinct lengths, each length is a kind; with many lengths and
templates on the other side, lengths are grouped into classes. If both sides are uniform with many lengths there are no
kinds: the bounds are then closed forms of each row's own length.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.key_time_order import Times
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.probability.histogram_arrays import NO_SHAPES, shapes_of
from whenabouts.core.probability.match_thresholds import (
    SideKinds,
    classes_of,
    common_ranges,
    few_lengths,
    mean_offsets,
    thresholds,
)
from whenabouts.core.times.limits import ALWAYS_US, NEVER_US
from whenabouts.core.times.templates import Template
from whenabouts.core.timing_join.pair_decision import KindThresholds

Templates = tuple[Template, ...]

_NO_TABLE = np.empty((0, 0, 4), np.int64)
_NO_TABLE.setflags(write=False)
_NO_ROWS = np.empty(0, np.int32)

NO_KINDS = KindThresholds(_NO_ROWS, _NO_ROWS, _NO_TABLE, NO_SHAPES, NO_SHAPES, False).in_order(_NO_ROWS, _NO_ROWS)
"""The argument of a fill if rows have no kinds."""

_PROBE_ALL = (NEVER_US, ALWAYS_US, NEVER_US, ALWAYS_US)  # possible everywhere, sure nowhere


class RowKinds(NamedTuple):
    """`kinds`: for the fill, in the given row order. `span`: see `match_thresholds.common_ranges`. `shift`: for each
    target row, its position on the axis less its anchor."""

    kinds: KindThresholds
    span: IntArray
    shift: IntArray

    @property
    def is_single(self) -> bool:
        """Whether all rows of a side have the same length, and so the same range of partners."""
        return self.kinds.table.shape[:2] == (1, 1) and self.kinds.base_shapes is NO_SHAPES is self.kinds.target_shapes


def row_kinds(
    base: Times,
    target: Times,
    templates: tuple[Templates, Templates],
    lengths: tuple[tuple[int, int], tuple[int, int]],
    lo: int,
    hi: int,
    confidence: float,
    *,
    strategy: str,
    base_is_right: bool,
) -> RowKinds | None:
    """The kinds of the rows of both sides, None if there are none (see the module's docstring).

    `lengths`: the shortest and the longest of each side, in `auto` those of the rows themselves.

    Without templates, ITC's strategies use the bounds of their paper; with templates they use PTJoin's.
    """
    sides = (base, target)
    if any(templates):
        found = [_kinds_of(times, registered) for times, registered in zip(sides, templates, strict=True)]
    elif strategy == "auto":
        few = [_few_lengths(times, *found) for times, found in zip(sides, lengths, strict=True)]
        found = [side for side in few if side is not None]
    else:
        return None
    if len(found) < 2:
        return None
    (base_kinds, base_kind), (target_kinds, target_kind) = found
    if strategy in ("simple", "ssort"):
        table = np.tile(np.array(_PROBE_ALL, np.int64), (len(base_kinds), len(target_kinds), 1))
        table.setflags(write=False)
    else:
        table = thresholds(base_kinds, target_kinds, lo, hi, confidence)
    shift = mean_offsets(target_kinds) if strategy == "auto" else np.zeros(len(target_kinds), np.int64)
    present = np.flatnonzero(np.bincount(target_kind, minlength=len(target_kinds)))
    kinds = KindThresholds(
        base_kind, target_kind, table, shapes_of(templates[0]), shapes_of(templates[1]), base_is_right
    )
    return RowKinds(kinds, common_ranges(table, shift, present), shift[target_kind])


def _few_lengths(times: Times, shortest: int, longest: int) -> tuple[SideKinds, NDArray[np.int32]] | None:
    if shortest == longest:
        return ((shortest, longest),), np.zeros(len(times), np.int32)
    # Usually the first rows show whether lengths are few; computing all lengths costs a pass over memory.
    first = slice(1024)
    if few_lengths(times.t_max[first] - times.t_min[first]) is None:
        return None
    return few_lengths(times.t_max - times.t_min)


def _kinds_of(times: Times, templates: Templates) -> tuple[SideKinds, NDArray[np.int32]]:
    if times.template is not None:
        return templates, times.template
    lengths = times.t_max - times.t_min
    return few_lengths(lengths) or classes_of(lengths)

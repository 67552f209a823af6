"""The pairs of `auto` where rows have few candidates each: searched and filled block by block, within the cache.

The general way (`candidate_ranges`, then a fill kernel) keeps the ranges of all rows, and reads times and positions of
targets from all over memory. Here the pairs of some thousand base rows are written while their targets are still in the
cache, and most need only the positions. Base rows in no order of time are searched by key and time; their pairs
are then written in the order of the rows all the same, so that gathering columns reads memory forwards.

The pairs, their order and the counts are those of the general way, which is left to rows with many candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.grouped_words import GroupedRows, rows_in_groups
from whenabouts.core.arrays.key_time_order import nearly_in_order
from whenabouts.core.arrays.large_arrays import large_array
from whenabouts.core.arrays.threads import both, cuts, each
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.probability.match_thresholds import fill_kind_bounds
from whenabouts.core.probability.midpoint_bounds import fill_anchored_ranges
from whenabouts.core.times.limits import ALWAYS_US, FARTHEST_US, NEVER_US
from whenabouts.core.timing_join.candidate_ranges import Sides
from whenabouts.core.timing_join.length_classes import NO_KINDS, RowKinds
from whenabouts.core.timing_join.near_pairs import MANY, fill_near_pairs, keys_in_order, rows_in_order
from whenabouts.core.timing_join.pair_decision import KindThresholds
from whenabouts.core.timing_join.pair_fill import PASSED, RUN, STATE_SLOTS
from whenabouts.core.timing_join.range_search import locate, scatter_rows
from whenabouts.core.timing_join.short_fill import MOST_CANDIDATES

Pairs = tuple[NDArray[np.int32], NDArray[np.int32]]

_ROWS_AT_ONCE = 1 << 14
_FARTHER = 4 * FARTHEST_US
"""No two times are as far apart; twice of it and of a time are still an int64."""


@dataclass(frozen=True, slots=True)
class _Search:
    """What all blocks of a join share.

    `base`: the order in which base rows are searched; None: as they came. Rows are searched by key and twice the
    midpoint, or, if they are of several kinds, by key and shifted anchor. `span`: int64[n, 4] for n kinds of base rows,
    where partners lie, from a row's anchor (from twice the anchor, if all rows of a side are of one kind); None: from
    each row's own length. `kinds`: what decides the other pairs; NO_KINDS: the kernel of two uniforms.
    """

    sides: Sides
    base: GroupedRows | None
    target: GroupedRows
    span: IntArray | None
    kinds: KindThresholds

    @property
    def by_anchor(self) -> bool:
        """Whether rows are of several kinds."""
        return self.kinds is not NO_KINDS


def near_pairs(sides: Sides, of: RowKinds | None) -> tuple[Pairs, IntArray] | None:
    """All pairs of sides, and the counts of what was done for them; None: take the general way.

    `of`: the kinds of the rows, if they have any. O(n) for n rows of both sides.
    """
    if _are_many(sides):
        return None
    search = _search_of(sides, of)
    rows = len(sides.base)
    most = MOST_CANDIDATES * max(rows, _ROWS_AT_ONCE)
    # The first rows usually show whether there are few.
    if rows > _ROWS_AT_ONCE and not _few_of_first(search):
        return None
    ranges = None
    if search.base is not None:
        ranges = large_array(4 * rows, np.int32).reshape(rows, 4)
        each(lambda part: _scatter(search, part, ranges), cuts(rows, per_thread=2))
    found = each(lambda part: _filled(search, part, ranges, most), cuts(rows, per_thread=4))
    parts = [part for part in found if part is not None]
    if len(parts) < len(found):
        return None
    state = np.sum([state for _, state in parts], axis=0)
    if state[PASSED] > most:
        return None
    if len(parts) == 1:
        return parts[0]
    ends = np.cumsum([len(base) for (base, _), _ in parts])
    whole = large_array(int(ends[-1]), np.int32), large_array(int(ends[-1]), np.int32)
    each(lambda part: _copied(*part, whole), [(end, pairs) for end, (pairs, _) in zip(ends, parts, strict=True)])
    return whole, state


def _are_many(sides: Sides) -> bool:
    """Whether rows have far too many candidates if times and keys are spread evenly: then ordering them is useless."""
    (earliest, latest), width = sides.extent, sides.hi - sides.lo
    even = len(sides.target) * width / (sides.keys * (latest - earliest + 1))
    return width <= FARTHEST_US and even > 2 * MOST_CANDIDATES


def _copied(end: int, pairs: Pairs, into: Pairs) -> None:
    for some, whole in zip(pairs, into, strict=True):
        whole[end - len(some) : end] = some


def _doubled(of: RowKinds, length: int) -> IntArray:
    """The ranges of partners as distances of twice the midpoint of a target, which has this length."""
    span = of.span
    of_anchors = np.clip(span - of.shift[0], -_FARTHER, _FARTHER)
    return np.where((span > NEVER_US) & (span < ALWAYS_US), 2 * of_anchors - length, span)


def _search_of(sides: Sides, of: RowKinds | None) -> _Search:
    base, target = sides.base, sides.target
    if of is None or of.is_single:
        kinds, span = NO_KINDS, None if of is None else _doubled(of, sides.target_lengths[0])
        axes = (lambda: _sum(base.t_min, base.t_max)), (lambda: _sum(target.t_min, target.t_max))
        earliest, latest = sides.extent
        within = 2 * earliest, 2 * latest
    else:
        kinds, span = of.kinds.as_they_came(), of.span
        axes, within = ((lambda: base.t_max), (lambda: _sum(target.t_max, of.shift))), None
    as_it_came = nearly_in_order(base.t_max)
    ordered_base, ordered_target = both(
        lambda: None if as_it_came else rows_in_groups(axes[0](), base.key, sides.keys, within),
        lambda: rows_in_groups(axes[1](), target.key, sides.keys, within),
        len(base) + len(target),
    )
    return _Search(sides, ordered_base, ordered_target, span, kinds)


def _sum(some: IntArray, others: IntArray) -> IntArray:
    return np.add(some, others, out=large_array(len(some), np.int64))


def _few_of_first(search: _Search) -> bool:
    ranges = next(_ranges(search, slice(0, _ROWS_AT_ONCE)))[1]
    return int((ranges[:, 3] - ranges[:, 0]).sum()) <= MOST_CANDIDATES * _ROWS_AT_ONCE


def _ranges(search: _Search, part: slice) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int32]]]:
    """Positions and ranges of blocks of base rows in the order of the search, in arrays that are used again."""
    base, target, ordered = search.sides.base, search.target, search.base
    size = max(min(_ROWS_AT_ONCE, part.stop - part.start), 1)
    bounds_of_some, ranges_of_some = (large_array(4 * size, type_).reshape(size, 4) for type_ in (np.int64, np.int32))
    keys_of_some = np.zeros(size, np.int64)
    cursors = np.stack((target.starts[:-1], target.starts[:-1]))
    bounds_of = _bounds(search, size)
    for start in range(part.start, part.stop, size):
        rows = slice(start, min(start + size, part.stop))
        count = rows.stop - start
        bounds, ranges, key = bounds_of_some[:count], ranges_of_some[:count], keys_of_some[:count]
        if ordered is not None:
            position = ordered.position[rows]
            keys_in_order(ordered.starts, start, key)
        else:
            position = np.arange(start, rows.stop, dtype=np.int32)
            key = key if base.key is None else base.key[rows]
        bounds_of(rows, position, bounds)
        locate(bounds, key, target.values, target.starts, True, cursors, ranges)
        yield position, ranges


def _bounds(search: _Search, size: int) -> Callable[[slice, NDArray[np.int32], IntArray], None]:
    """A function that computes the bounds of partners of up to `size` base rows, in the order of the search."""
    sides, ordered, span = search.sides, search.base, search.span
    if search.by_anchor:
        anchors, ranges_of_kinds = sides.base.t_max if ordered is None else ordered.values, cast(IntArray, span)

        def by_kind(rows: slice, position: NDArray[np.int32], out: IntArray) -> None:
            kind = search.kinds.base[rows if ordered is None else position]
            fill_kind_bounds(anchors[rows], kind, ranges_of_kinds, out)

        return by_kind
    times_of_some, one_kind = large_array(2 * size, np.int64).reshape(2, size), np.zeros(size, np.int32)

    def by_midpoint(rows: slice, position: NDArray[np.int32], out: IntArray) -> None:
        if ordered is None:
            t_min, t_max = sides.base.t_min[rows], sides.base.t_max[rows]
        else:
            t_min, t_max = times_of_some[:, : len(out)]
            rows_in_order(ordered.values[rows], position, sides.base.t_min, t_min, t_max)
        if span is None:
            fill_anchored_ranges(t_min, t_max, sides.lo, sides.hi, *sides.target_lengths, sides.confidence, out)
        else:
            fill_kind_bounds(2 * t_max, one_kind[: len(out)], span, out)

    return by_midpoint


def _scatter(search: _Search, part: slice, out: NDArray[np.int32]) -> None:
    """Write the ranges of a part of the base rows, taken in the order of the search, by their positions."""
    for position, ranges in _ranges(search, part):
        scatter_rows(ranges, position, out)


def _filled(search: _Search, part: slice, given: NDArray[np.int32] | None, most: int) -> tuple[Pairs, IntArray] | None:
    """The pairs of a range of base rows and the counts; None if `most` candidates or a row's own are too many.

    `given`: the ranges of all rows, if they are already found.
    """
    base, target = search.sides.base, search.sides.target
    lo, hi, confidence = search.sides.lo, search.sides.hi, search.sides.confidence
    state, out, written = np.zeros(STATE_SLOTS, np.int64), _room(min(most, 4 * (part.stop - part.start))), 0
    start = part.start
    for ranges in [given[part]] if given is not None else (ranges for _, ranges in _ranges(search, part)):
        rows = slice(start, start + len(ranges))
        while True:
            count = fill_near_pairs(
                lo, hi, confidence, ranges, base.t_min[rows], base.t_max[rows], start, target.t_min, target.t_max,
                search.target.position, search.kinds, given is None, state, written, *out,
            )  # fmt: skip
            if count >= 0:
                break
            if count == MANY or len(out[0]) > most:
                return None
            out = _grown(out, written, most)
        start, written = rows.stop, count
    return (out[0][:written], out[1][:written]), state


def _room(pairs: int) -> Pairs:
    """For so many pairs, and for what the kernel writes beyond the last short run."""
    return large_array(pairs + RUN, np.int32), large_array(pairs + RUN, np.int32)


def _grown(given: Pairs, written: int, most: int) -> Pairs:
    """Arrays with more room for pairs, up to `most`, and what is written so far."""
    out = _room(min(most, 2 * len(given[0])))
    for before, after in zip(given, out, strict=True):
        after[:written] = before[:written]
    return out

"""The pairs of `auto` where rows have few candidates each: searched and filled block by block, within the cache.

The general way (`candidate_ranges`, then a fill kernel) keeps the ranges of all rows, and reads times and positions of
targets from all over memory. Here the pairs of some thousand base rows are written while their targets are still in the
cache, and most need only the positions. Base rows in no order of time are searched by key and time; their pairs
are then written in the order of the rows all the same, so that gathering columns reads memory forwards.

The pairs, their order and the counts are those of the general way, which is left to rows with many candidates and to
rows of several kinds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.grouped_words import GroupedRows, rows_in_groups
from whenabouts.core.arrays.key_time_order import Times, nearly_in_order
from whenabouts.core.arrays.large_arrays import large_array
from whenabouts.core.arrays.threads import both, cuts, each
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.probability.match_thresholds import fill_kind_bounds
from whenabouts.core.probability.midpoint_bounds import fill_anchored_ranges
from whenabouts.core.times.limits import ALWAYS_US, FARTHEST_US, NEVER_US
from whenabouts.core.timing_join.candidate_ranges import Sides
from whenabouts.core.timing_join.length_classes import RowKinds
from whenabouts.core.timing_join.near_pairs import MANY, RUN, fill_near_pairs, rows_in_order
from whenabouts.core.timing_join.pair_fill import PASSED, STATE_SLOTS
from whenabouts.core.timing_join.range_search import locate, scatter_rows
from whenabouts.core.timing_join.short_fill import MOST_CANDIDATES

Pairs = tuple[NDArray[np.int32], NDArray[np.int32]]

_ROWS_AT_ONCE = 1 << 14
_FARTHER = 4 * FARTHEST_US
"""No two times are as far apart; twice of it and of a time are still an int64."""


@dataclass(frozen=True, slots=True)
class _Search:
    """What all blocks of a join share.

    `base`: the order in which base rows are searched; None: as they came. `span`: int64[1, 4], if all rows of a side
    have the same length: where twice the midpoints of partners lie, from twice a row's t_max.
    """

    sides: Sides
    base: GroupedRows | None
    target: GroupedRows
    span: IntArray | None


def near_pairs(sides: Sides, of: RowKinds | None) -> tuple[Pairs, IntArray] | None:
    """All pairs of sides, and the counts of what was done for them; None: take the general way.

    `of`: the kinds of the rows, if they have any. O(n) for n rows of both sides.
    """
    if of is not None and not of.is_single:
        return None
    search = _search_of(sides, None if of is None else _doubled(of, sides.target_lengths[0]))
    rows = len(sides.base)
    most = MOST_CANDIDATES * max(rows, _ROWS_AT_ONCE)
    # The first rows usually show whether there are few.
    if rows > _ROWS_AT_ONCE and not _few_of_first(search):
        return None
    ranges = None
    if search.base is not None:
        ranges = large_array(4 * rows, np.int32).reshape(rows, 4)
        each(lambda part: _scatter(search, part, ranges), cuts(rows))
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


def _copied(end: int, pairs: Pairs, into: Pairs) -> None:
    for some, whole in zip(pairs, into, strict=True):
        whole[end - len(some) : end] = some


def _doubled(of: RowKinds, length: int) -> IntArray:
    """The ranges of partners as distances of twice the midpoint of a target, which has this length."""
    span = of.span
    of_anchors = np.clip(span - of.shift[0], -_FARTHER, _FARTHER)
    return np.where((span > NEVER_US) & (span < ALWAYS_US), 2 * of_anchors - length, span)


def _search_of(sides: Sides, span: IntArray | None) -> _Search:
    as_it_came = nearly_in_order(sides.base.t_max)
    base, target = both(
        lambda: None if as_it_came else _by_midpoint(sides.base, sides),
        lambda: _by_midpoint(sides.target, sides),
        len(sides.base) + len(sides.target),
    )
    return _Search(sides, base, target, span)


def _by_midpoint(times: Times, sides: Sides) -> GroupedRows:
    earliest, latest = sides.extent
    doubled = np.add(times.t_min, times.t_max, out=large_array(len(times), np.int64))
    return rows_in_groups(doubled, times.key, sides.keys, (2 * earliest, 2 * latest))


def _few_of_first(search: _Search) -> bool:
    ranges = next(_ranges(search, slice(0, _ROWS_AT_ONCE)))[1]
    return int((ranges[:, 3] - ranges[:, 0]).sum()) <= MOST_CANDIDATES * _ROWS_AT_ONCE


def _ranges(search: _Search, part: slice) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int32]]]:
    """Positions and ranges of blocks of base rows in the order of the search, in arrays that are used again."""
    sides, target, ordered = search.sides, search.target, search.base
    size = max(min(_ROWS_AT_ONCE, part.stop - part.start), 1)
    bounds_of_some, ranges_of_some = np.empty((size, 4), np.int64), np.empty((size, 4), np.int32)
    times_of_some, keys_of_some = np.empty((2, size), np.int64), np.zeros(size, np.int64)
    kind = np.zeros(size, np.int32)
    cursors = np.stack((target.starts[:-1], target.starts[:-1]))
    for start in range(part.start, part.stop, size):
        count = min(size, part.stop - start)
        rows, key = slice(start, start + count), keys_of_some[:count]
        if ordered is None:
            t_min, t_max = sides.base.t_min[rows], sides.base.t_max[rows]
            key = key if sides.base.key is None else sides.base.key[rows]
            position = np.arange(start, start + count, dtype=np.int32)
        else:
            t_min, t_max, position = times_of_some[0, :count], times_of_some[1, :count], ordered.position[rows]
            rows_in_order(*ordered, start, sides.base.t_min, t_min, t_max, key)
        bounds, ranges = bounds_of_some[:count], ranges_of_some[:count]
        if search.span is None:
            fill_anchored_ranges(t_min, t_max, sides.lo, sides.hi, *sides.target_lengths, sides.confidence, bounds)
        else:
            fill_kind_bounds(2 * t_max, kind[:count], search.span, bounds)
        locate(bounds, key, target.values, target.starts, True, cursors, ranges)
        yield position, ranges


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
                search.target.position, given is None, state, written, *out,
            )  # fmt: skip
            if count >= 0:
                break
            if count == MANY or len(out[0]) > most:
                return None
            out = _grown(out, written, most)
        start, written = rows.stop, count
    return (out[0][:written], out[1][:written]), state


def _room(pairs: int) -> Pairs:
    return large_array(pairs + RUN, np.int32), large_array(pairs + RUN, np.int32)


def _grown(given: Pairs, written: int, most: int) -> Pairs:
    """Arrays with more room for pairs, up to `most`, and what is written so far."""
    out = _room(min(most, 2 * len(given[0])))
    for before, after in zip(given, out, strict=True):
        after[:written] = before[:written]
    return out

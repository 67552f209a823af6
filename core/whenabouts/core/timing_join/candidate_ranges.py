"""For each base row the range of ordered targets that match for sure, and the wider range of those that can match.

This is the half of a correlation that costs nothing per pair: order the rows, compute bounds in time, search them.
`timing_join.strategies` fills pairs from the ranges; counts and sums over partners need no more than the ranges.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.extremes import extremes
from whenabouts.core.arrays.key_time_order import (
    Axis,
    OrderedRows,
    Times,
    nearly_in_order,
    order_rows,
    sorted_rows,
)
from whenabouts.core.arrays.large_arrays import large_array, large_zeros, row_numbers
from whenabouts.core.arrays.threads import both, cuts, each
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.probability.confidence_bounds import fill_confidence_bounds
from whenabouts.core.probability.match_thresholds import fill_kind_bounds
from whenabouts.core.probability.midpoint_bounds import fill_anchored_ranges
from whenabouts.core.times.conditions import LEAST_CONFIDENCE
from whenabouts.core.times.limits import FARTHEST_US
from whenabouts.core.timing_join.length_classes import NO_KINDS, RowKinds, Templates, row_kinds
from whenabouts.core.timing_join.pair_decision import KindThresholds
from whenabouts.core.timing_join.range_search import locate, probe_all, scatter_rows, time_extremes
from whenabouts.core.timing_join.settings import STRATEGIES, WHOLE_BUFFER

_BOUNDED_AT_ONCE = 1 << 15
"""How many rows' bounds are computed and searched at a time: a megabyte, which stays in the cache."""

_TARGET_AXIS: dict[str, Axis] = {"simple": "arrival", "auto": "midpoint"}


@dataclass(frozen=True, slots=True)
class Sides:
    """What a correlation compares: see `strategies.correlate` for the arguments. `sides_of` makes valid ones.

    `base_lengths`, `target_lengths`: the shortest and the longest, as declared or, in `auto`, as seen. `keys`: one more
    than the greatest code of a key (1 without keys). `extent`: the least `t_min` and the greatest `t_max` of both.
    """

    base: Times
    target: Times
    lo: int
    hi: int
    confidence: float
    strategy: str
    base_lengths: tuple[int, int]
    target_lengths: tuple[int, int]
    templates: tuple[Templates, Templates]
    base_is_right: bool
    keys: int
    extent: tuple[int, int]


class CandidateRanges(NamedTuple):
    """The ordered rows of both sides, and the ranges of targets of each base row.

    `ranges[i]` is `outer_lo <= sure_lo <= sure_hi <= outer_hi`, half-open indices into the targets, for base row i in
    the order of `base`. `kinds`: what decides the pairs outside the sure ranges besides the kernel; `by_kind`: whether
    rows have kinds.
    """

    base: BaseRows
    target: OrderedRows
    ranges: NDArray[np.int32]
    kinds: KindThresholds
    by_kind: bool

    def between(self, start: int, stop: int) -> CandidateRanges:
        """The same for the base rows `start` to `stop`, without copies."""
        t_min, t_max, position, key = self.base
        base = BaseRows(t_min[start:stop], t_max[start:stop], position[start:stop], key[start:stop])
        kinds = self.kinds._replace(base=self.kinds.base[start:stop])
        return CandidateRanges(base, self.target, self.ranges[start:stop], kinds, self.by_kind)

    def only(self, at: IntArray) -> CandidateRanges:
        """The same for the base rows at these indices, in this order."""
        kinds = self.kinds.of_base(at) if self.kinds.base.size else self.kinds
        return CandidateRanges(self.base.only(at), self.target, self.ranges[at], kinds, self.by_kind)


def ranges_of(
    base: Times,
    target: Times,
    lo: int,
    hi: int,
    confidence: float,
    *,
    base_lengths: tuple[int, int],
    target_lengths: tuple[int, int],
    base_templates: Templates = (),
    target_templates: Templates = (),
    base_is_right: bool = False,
    possible: bool = False,
) -> CandidateRanges:
    """The ranges of `auto`: targets in the sure range match, those outside the outer range do not.

    The arguments are those of `strategies.correlate`. Base rows keep their order, and targets are ordered by key and
    axis (twice the midpoint; with templates or few lengths, the anchor shifted to the mean); those equal on the axis
    keep their order. `possible`: the outer range holds every target with a probability above 0, not only those that can
    reach the confidence. With the confidence 1 the sure range then holds certain partners, and the rest of the outer
    range all that are uncertain.

    Cost: O(n + m) for rows nearly in time order, O((n + m) log (n + m)) otherwise, whatever the number of pairs.
    Raises ValueError as `correlate` does.

    >>> found = ranges_of(Times(np.array([0]), np.array([10])), Times(np.array([2, 9, 30]), np.array([4, 14, 31])),
    ...     -10, 10, 1.0, base_lengths=(0, 10), target_lengths=(0, 10), possible=True)
    >>> found.ranges.tolist()
    [[0, 0, 1, 2]]
    """
    sides = sides_of(
        base, target, lo, hi, confidence, strategy="auto", base_lengths=base_lengths, target_lengths=target_lengths,
        base_templates=base_templates, target_templates=target_templates, base_is_right=base_is_right,
    )  # fmt: skip
    if not len(base) or not len(target):
        rows = _base_rows(sides.base, by_t_max=False)
        ordered = order_rows(sides.target, "arrival", sides.keys)
        return CandidateRanges(rows, ordered, np.zeros((len(base), 4), np.int32), NO_KINDS, False)
    found = candidate_ranges(sides, kinds_of(sides))
    if possible:
        wide = replace(sides, confidence=LEAST_CONFIDENCE)
        outer = candidate_ranges(wide, kinds_of(wide)).ranges
        ranges = np.clip(found.ranges, outer[:, :1], outer[:, 3:])
        ranges[:, 0], ranges[:, 3] = outer[:, 0], outer[:, 3]
        found = found._replace(ranges=ranges)
    return found


def sides_of(
    base: Times,
    target: Times,
    lo: int,
    hi: int,
    confidence: float,
    *,
    strategy: str,
    base_lengths: tuple[int, int],
    target_lengths: tuple[int, int],
    base_templates: Templates,
    target_templates: Templates,
    base_is_right: bool,
) -> Sides:
    """The sides of a correlation, checked: raises ValueError as `strategies.correlate` says."""
    if strategy not in STRATEGIES:
        raise ValueError(f"unknown strategy {strategy!r}; known are {', '.join(STRATEGIES)}")
    if not 0.0 < confidence <= 1.0:
        raise ValueError(f"confidence must be in (0, 1], got {confidence}")
    if lo > hi:
        raise ValueError(f"the window [{lo}, {hi}] is empty")
    if (base.key is None) != (target.key is None):
        raise ValueError("either both sides have keys or neither has")
    if (base.template is None) == bool(base_templates) or (target.template is None) == bool(target_templates):
        raise ValueError("rows have template numbers exactly where templates are given")
    (base, base_found, base_seen), (target, target_found, target_seen) = both(
        lambda: _checked(base, base_lengths, "base"),
        lambda: _checked(target, target_lengths, "target"),
        len(base) + len(target),
    )
    if strategy == "auto":
        base_lengths, target_lengths = base_found, target_found
    templates = base_templates, target_templates
    extent = min(base_seen[0], target_seen[0]), max(base_seen[1], target_seen[1])
    keys = max(base_seen[2], target_seen[2]) + 1
    return Sides(
        base, target, lo, hi, confidence, strategy, base_lengths, target_lengths, templates, base_is_right, keys, extent
    )


def _checked(times: Times, declared: tuple[int, int], side: str) -> tuple[Times, tuple[int, int], tuple[int, int, int]]:
    """`times` as contiguous int64 arrays that no kernel can overrun; the least and greatest length in them; their first
    and last time and the greatest code."""
    (shortest, longest), (first, last), greatest = declared, (0, 0), 0
    t_min, t_max = np.ascontiguousarray(times.t_min, np.int64), np.ascontiguousarray(times.t_max, np.int64)
    key = None if times.key is None else np.ascontiguousarray(times.key, np.int64)
    if t_min.shape != t_max.shape or (key is not None and key.shape != t_min.shape):
        raise ValueError(f"the {side} arrays differ in length")
    if t_min.size >= 2**31:
        raise ValueError(f"the {side} has {t_min.size} rows; positions are int32")
    if t_min.size:
        first, last, shortest, longest = time_extremes(t_min, t_max)
        if min(first, last) < -FARTHEST_US or max(first, last) > FARTHEST_US:
            raise ValueError(f"{side} times must lie within +-{FARTHEST_US} us")
        # The lengths of rows with templates are those of the query's current templates, which may have changed.
        if times.template is None and (shortest < max(declared[0], 0) or longest > declared[1]):
            raise ValueError(f"{side} lengths {shortest}..{longest} us are outside the declared {declared}")
        if key is not None:
            least, greatest = extremes(key)
            if least < 0:
                raise ValueError(f"{side} key codes must be >= 0, got {least}")
    template = None if times.template is None else np.ascontiguousarray(times.template, np.int32)
    return Times(t_min, t_max, key, template), (shortest, longest), (first, last, greatest)


def kinds_of(sides: Sides) -> RowKinds | None:
    """The kinds of the rows of both sides, None if there are none."""
    return row_kinds(
        sides.base, sides.target, sides.templates, (sides.base_lengths, sides.target_lengths), sides.lo, sides.hi,
        sides.confidence, strategy=sides.strategy, base_is_right=sides.base_is_right,
    )  # fmt: skip


def candidate_ranges(sides: Sides, of: RowKinds | None) -> CandidateRanges:
    """Order the rows as the strategy does, and find the ranges; neither side may be empty. `of`: as of `kinds_of`."""
    keys = sides.keys
    target, (base, in_time) = both(
        lambda: _target_rows(sides, keys, of),
        lambda: (_base_rows(sides.base, by_t_max=sides.strategy in ("lazy", "lazy_lookup")), _in_time(sides, keys)),
        len(sides.base) + len(sides.target),
    )
    kinds, span = NO_KINDS, None
    if of is not None:
        kinds = of.kinds.in_order(base.position, target.position)
        span = of.span
    return CandidateRanges(base, target, _ranges(sides, base, in_time, target, kinds.base, span), kinds, of is not None)


class BaseRows(NamedTuple):
    """Base rows in the order of the fill; they need not be grouped by key."""

    t_min: IntArray
    t_max: IntArray
    position: NDArray[np.int32]
    key: IntArray

    def only(self, at: IntArray) -> BaseRows:
        """The rows at these indices."""
        return BaseRows(self.t_min[at], self.t_max[at], self.position[at], self.key[at])


def _base_rows(times: Times, *, by_t_max: bool) -> BaseRows:
    key = large_zeros(len(times), np.int64) if times.key is None else times.key
    if not by_t_max:
        return BaseRows(times.t_min, times.t_max, row_numbers(len(times)), key)
    rows = order_rows(Times(times.t_min, times.t_max), "t_max", 1)
    return BaseRows(rows.t_min, rows.t_max, rows.position, key[rows.position])


def _target_rows(sides: Sides, keys: int, of: RowKinds | None) -> OrderedRows:
    axis = _TARGET_AXIS.get(sides.strategy, "t_max")
    if of is None or axis != "midpoint":
        return order_rows(sides.target, axis, keys)
    return order_rows(sides.target, "shifted", keys, of.shift)


def _in_time(sides: Sides, keys: int) -> BaseRows | None:
    """The base rows in the order in which their ranges are searched; None: that of the pairs.

    Pairs are written in the order of the base rows, so that gathering their columns reads memory forwards. Only the
    search runs in time order, where it is much cheaper.
    """
    rows = sides.base
    if sides.strategy != "auto" or nearly_in_order(rows.t_max):
        return None
    ordered = sorted_rows(rows, rows.t_max, "t_max", keys)
    key = np.repeat(np.arange(keys), np.diff(ordered.starts))
    return BaseRows(ordered.t_min, ordered.t_max, ordered.position, key)


def _ranges(
    sides: Sides,
    base: BaseRows,
    in_time: BaseRows | None,
    target: OrderedRows,
    kind: NDArray[np.int32],
    span: IntArray | None,
) -> NDArray[np.int32]:
    """int32[n, 4]: outer_lo, sure_lo, sure_hi, outer_hi of each base row, as half-open indices into the targets."""
    ranges = large_array(4 * base.t_min.size, np.int32).reshape(-1, 4)
    if sides.strategy in WHOLE_BUFFER:
        probe_all(base.key, target.starts, ranges)
        return ranges
    if in_time is None:
        each(lambda part: _search(sides, base, part, target, kind, span, ranges[part]), cuts(len(ranges)))
        return ranges
    kind = kind[in_time.position] if span is not None else kind
    each(lambda part: _search(sides, in_time, part, target, kind, span, ranges, scattered=True), cuts(len(ranges)))
    return ranges


def _search(
    sides: Sides,
    base: BaseRows,
    part: slice,
    target: OrderedRows,
    kind: NDArray[np.int32],
    span: IntArray | None,
    out: NDArray[np.int32],
    *,
    scattered: bool = False,
) -> None:
    """Write the ranges of a part of the base rows to `out`: one after the other, or by their positions."""
    fill_bounds = fill_anchored_ranges if sides.strategy == "auto" else fill_confidence_bounds
    cursors = np.stack((target.starts[:-1], target.starts[:-1]))
    size = min(_BOUNDED_AT_ONCE, part.stop - part.start)
    bounds_of_some, found_of_some = (large_array(4 * size, type_).reshape(size, 4) for type_ in (np.int64, np.int32))
    for start in range(part.start, part.stop, _BOUNDED_AT_ONCE):
        rows = slice(start, min(start + _BOUNDED_AT_ONCE, part.stop))
        bounds = bounds_of_some[: rows.stop - start]
        if span is not None:
            fill_kind_bounds(base.t_max[rows], kind[rows], span, bounds)
        else:
            times = base.t_min[rows], base.t_max[rows]
            fill_bounds(*times, sides.lo, sides.hi, *sides.target_lengths, sides.confidence, bounds)
        found = found_of_some[: len(bounds)] if scattered else out[start - part.start : rows.stop - part.start]
        locate(bounds, base.key[rows], target.axis, target.starts, sides.strategy != "eager", cursors, found)
        if scattered:
            scatter_rows(found, base.position[rows], out)

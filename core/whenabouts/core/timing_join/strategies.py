"""The five correlation strategies of the ITC paper and `auto`, over arrays of times.

A strategy determines the order of the rows on both sides, and for each base row four indices `outer_lo <= sure_lo <=
sure_hi <= outer_hi` into the ordered targets of its key. Targets in the sure range match, other targets in the outer
range are *probed* with the canonical kernel, and the rest cannot match. One fill kernel writes the pairs of all
strategies, in bounded chunks.

| strategy | base rows | targets | ranges |
| --- | --- | --- | --- |
| `simple` (ITC Alg. 1) | as they arrive | as they arrive | all targets are probed |
| `ssort` (ITC SSort) | as they arrive | by t_max | all targets are probed |
| `eager` (ITC Alg. 2, PTJoin) | as they arrive | by t_max | LH, LL, RL, RH, each by binary search |
| `lazy` (ITC Alg. 4-5) | by t_max | by t_max | the same, by pointers that move with the base block |
| `lazy_lookup` (ITC Alg. 6-7) | by t_max | by t_max | as lazy; the fill reuses probe results (Corollary 2) |
| `auto` | as they arrive | by midpoint | quantile ranges, by moving pointers |

With templates, the axis of `auto` is the anchor shifted to the template's mean, and the ranges of all strategies but
`simple` and `ssort` are those of PTJoin Theorem 3.

`simple` and `ssort` differ in the order of their targets only. ITC lets `simple` mark obsolete tuples while it visits
them, and expects longer runs of them in the sorted buffers of `ssort`. Here all strategies share one state, sorted into
segments of time, and drop rows by the bound that ITC has for `eager`, LH(e_inv), at the watermark: no buffer is longer
than it must be, and the counts and the state of the two are equal.

Rows with different keys are never compared: targets are grouped by key, and ordered as in the table within a key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.key_time_order import (
    Axis,
    OrderedRows,
    Times,
    nearly_in_order,
    order_rows,
    sorted_positions,
)
from whenabouts.core.arrays.typing import BoolArray, IntArray, Positions
from whenabouts.core.probability.confidence_bounds import fill_confidence_bounds, is_wide
from whenabouts.core.probability.match_thresholds import fill_kind_bounds
from whenabouts.core.probability.midpoint_bounds import fill_anchored_ranges
from whenabouts.core.times.limits import FARTHEST_US, NEVER_US
from whenabouts.core.timing_join.first_partners import find_first_partners
from whenabouts.core.timing_join.length_classes import NO_KINDS, Templates, row_kinds
from whenabouts.core.timing_join.pair_decision import KindThresholds
from whenabouts.core.timing_join.pair_fill import (
    EVERYTHING,
    HITS,
    LEFT_PROBE,
    PASSED,
    PROBED,
    RIGHT_PROBE,
    STATE_SLOTS,
    SURE,
    TAKEN,
    fill_pairs,
    part_extent,
)
from whenabouts.core.timing_join.range_search import locate, probe_all, scatter_rows, time_extremes
from whenabouts.core.timing_join.where import PAIRS_AT_ONCE

__all__ = ["STRATEGIES", "CorrelationCounters", "Times", "correlate"]

PROBING_ALL = frozenset({"simple", "ssort"})
"""Strategies without bounds: the kernel tests every pair."""

STRATEGIES = ("auto", "simple", "ssort", "eager", "lazy", "lazy_lookup")

Pairs = tuple[NDArray[np.int32], NDArray[np.int32]]

Accepts = Callable[[Positions, Positions], BoolArray]
"""Which of the pairs (base positions, target positions) meet a further condition."""

FIRST_CANDIDATES = 8
"""How many candidates of a row are tried first when one accepted partner is enough."""

_BOUNDED_AT_ONCE = 1 << 15
"""How many rows' bounds are computed and searched at a time: a megabyte, which stays in the cache."""

_TARGET_AXIS: dict[str, Axis] = {"simple": "arrival", "auto": "midpoint"}


@dataclass(slots=True)
class CorrelationCounters:
    """What a correlation did; all fields add up over blocks.

    `probed`: kernel calls that decided pairs. `sure`: pairs from sure ranges, without the kernel. `lookup_hits`: pairs
    from the look-up table, without the kernel. `matched`: pairs written. `correlations`: blocks correlated. `passed`:
    all candidates processed.
    """

    probed: int = 0
    sure: int = 0
    matched: int = 0
    lookup_hits: int = 0
    correlations: int = 0
    passed: int = 0


def correlate(
    base: Times,
    target: Times,
    lo: int,
    hi: int,
    confidence: float,
    *,
    strategy: str,
    base_lengths: tuple[int, int],
    target_lengths: tuple[int, int],
    counters: CorrelationCounters,
    base_templates: Templates = (),
    target_templates: Templates = (),
    base_is_right: bool = False,
    first_only: bool = False,
    chunk_pairs: int = 1 << 24,
    expect: Callable[[int, int], None] | None = None,
    accepts: Accepts | None = None,
) -> Iterator[Pairs]:
    """The pairs of equal key with `P(lo <= X_target - X_base <= hi) >= confidence`, each exactly once.

    Times are int64 microseconds; `base_lengths` and `target_lengths` are the declared `(rho, pi)` of
    the sides (`auto` uses the lengths it sees). The templates are those that `Times.template` numbers.
    `base_is_right`: the base is the right-hand side of the condition; the kernel for templates needs this to sum in a
    fixed order. Yields int32 arrays (base positions, target positions) of at most `chunk_pairs` pairs. All strategies
    and chunk sizes give the same set of pairs, in different orders. Adds to `counters` as chunks are consumed.

    With templates, and in `auto` with few distinct lengths, pairs are decided by comparing integers (PTJoin Theorem
    2, `probability.match_thresholds`); only pairs in the guard band and in windows narrower than
    the supports are probed. `simple` and `ssort` probe every pair always.

    `first_only`: at most one arbitrary pair for each base row, as semi and anti modes need. A row with a sure partner
    then costs O(1), and no other pair is formed. `simple` and `ssort` still give all pairs.

    `accepts`: a further condition, called with blocks of pairs that meet all others; pairs that it does not accept are
    none. With `first_only` the pairs of a row are tried until one is accepted.

    `expect` is called before any pair is made, with the least (the sure ones) and the greatest possible number.

    Cost for n base rows and m targets: `simple` and `ssort` O(n m) kernel calls; the others O(n + m) for rows nearly in
    time order (`eager`: n log m), plus a copy per sure pair and a kernel call per probed pair. Memory: 60 bytes per row
    and 8 bytes per pair of a chunk. Source: ITC (Lee and Lee 2010) Algorithms 1-7; `auto`: see
    `probability.midpoint_bounds`.

    Raises ValueError for an unknown strategy, a confidence outside (0, 1], an empty window, a length outside
    the declared ones, a time out of range, negative key codes, keys on one side only, or templates without numbers.

    >>> base, target = Times(np.array([0, 50]), np.array([10, 60])), Times(np.array([5, 50]), np.array([15, 70]))
    >>> [(b.tolist(), t.tolist()) for b, t in correlate(base, target, -5, 5, 0.5, strategy="auto",
    ...     base_lengths=(0, 20), target_lengths=(0, 20), counters=CorrelationCounters())]
    [([0], [0])]
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"unknown strategy {strategy!r}; known are {', '.join(STRATEGIES)}")
    if not 0.0 < confidence <= 1.0:
        raise ValueError(f"confidence must be in (0, 1], got {confidence}")
    if lo > hi:
        raise ValueError(f"the window [{lo}, {hi}] is empty")
    if (base.key is None) != (target.key is None):
        raise ValueError("either both sides have keys or neither has")
    if chunk_pairs < 1:
        raise ValueError(f"chunk_pairs must be at least 1, got {chunk_pairs}")
    if (base.template is None) == bool(base_templates) or (target.template is None) == bool(target_templates):
        raise ValueError("rows have template numbers exactly where templates are given")
    base, _ = _checked(base, base_lengths, "base")
    target, seen = _checked(target, target_lengths, "target")
    if strategy == "auto":
        target_lengths = seen
    templates = base_templates, target_templates
    join = _Join(
        base, target, lo, hi, confidence, strategy, base_lengths, target_lengths, templates, base_is_right, first_only,
        accepts,
    )  # fmt: skip
    return _pairs(join, counters, chunk_pairs if accepts is None else min(chunk_pairs, PAIRS_AT_ONCE), expect)


@dataclass(frozen=True, slots=True)
class _Join:
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
    first_only: bool
    accepts: Accepts | None


def _checked(times: Times, declared: tuple[int, int], side: str) -> tuple[Times, tuple[int, int]]:
    """`times` as contiguous int64 arrays that no kernel can overrun, and the least and greatest length in them."""
    shortest, longest = declared
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
        if key is not None and key.min() < 0:
            raise ValueError(f"{side} key codes must be >= 0, got {key.min()}")
    template = None if times.template is None else np.ascontiguousarray(times.template, np.int32)
    return Times(t_min, t_max, key, template), (shortest, longest)


def _pairs(
    join: _Join, counters: CorrelationCounters, chunk_pairs: int, expect: Callable[[int, int], None] | None
) -> Iterator[Pairs]:
    counters.correlations += 1
    if not len(join.base) or not len(join.target):
        return
    keys = 1
    if join.base.key is not None and join.target.key is not None:
        keys = int(max(join.base.key.max(), join.target.key.max())) + 1
    of = row_kinds(
        join.base, join.target, join.templates, join.lo, join.hi, join.confidence,
        strategy=join.strategy, base_is_right=join.base_is_right,
    )  # fmt: skip
    target = _target_rows(join, keys, None if of is None else of.shift)
    base = _base_rows(join.base, by_t_max=join.strategy in ("lazy", "lazy_lookup"))
    kinds, span = NO_KINDS, None
    if of is not None:
        kinds = of.kinds.in_order(base.position, target.position)
        span = of.span
    ranges = _ranges(join, base, target, keys, kinds.base, span)
    if join.first_only and join.strategy not in PROBING_ALL:
        search = _first_partners if join.accepts is None else _first_accepted
        yield from search(join, base, target, ranges, kinds, counters)
        return
    if expect is not None:
        expect(part_extent(ranges, SURE)[0], part_extent(ranges, EVERYTHING)[0])
    parts: tuple[int, ...] = (EVERYTHING,)
    lengths = join.base_lengths[1] + join.target_lengths[1]
    # Corollary 2 compares one tail of D. In a narrow window both tails matter, and dominance proves nothing.
    if join.strategy == "lazy_lookup" and of is None and is_wide(join.lo, join.hi, lengths):
        parts = (SURE, LEFT_PROBE, RIGHT_PROBE)
    for part in parts:
        yield from _fill(join, base, target, ranges, kinds, part, counters, chunk_pairs)


class _BaseRows(NamedTuple):
    """Base rows in the order of the fill; they need not be grouped by key."""

    t_min: IntArray
    t_max: IntArray
    position: NDArray[np.int32]
    key: IntArray

    def only(self, at: IntArray) -> _BaseRows:
        """The rows at these indices."""
        return _BaseRows(self.t_min[at], self.t_max[at], self.position[at], self.key[at])


def _base_rows(times: Times, *, by_t_max: bool) -> _BaseRows:
    key = np.zeros(len(times), np.int64) if times.key is None else times.key
    if not by_t_max:
        return _BaseRows(times.t_min, times.t_max, np.arange(len(times), dtype=np.int32), key)
    rows = order_rows(Times(times.t_min, times.t_max), "t_max", 1)
    return _BaseRows(rows.t_min, rows.t_max, rows.position, key[rows.position])


def _target_rows(join: _Join, keys: int, shift: IntArray | None) -> OrderedRows:
    axis = _TARGET_AXIS.get(join.strategy, "t_max")
    if shift is None or axis != "midpoint":
        return order_rows(join.target, axis, keys)
    return order_rows(join.target, "shifted", keys, shift)


def _ranges(
    join: _Join,
    base: _BaseRows,
    target: OrderedRows,
    keys: int,
    kind: NDArray[np.int32],
    span: IntArray | None,
) -> NDArray[np.int32]:
    """int32[n, 4]: outer_lo, sure_lo, sure_hi, outer_hi of each base row, as half-open indices into the targets."""
    if join.strategy == "auto" and not nearly_in_order(base.t_max):
        # Pairs are written in the order of the base rows, so that gathering their columns reads memory forwards. Only
        # the search runs in time order, where it is much cheaper.
        order = sorted_positions(base.t_max, base.key, keys)
        in_time = _BaseRows(
            base.t_min.take(order, mode="clip"),
            base.t_max.take(order, mode="clip"),
            order.astype(np.int32),
            base.key.take(order, mode="clip"),
        )
        ranges = np.empty((order.size, 4), np.int32)
        kind = kind[order] if span is not None else kind
        scatter_rows(_ranges_in_order(join, in_time, target, kind, span), order, ranges)
        return ranges
    return _ranges_in_order(join, base, target, kind, span)


def _ranges_in_order(
    join: _Join, base: _BaseRows, target: OrderedRows, kind: NDArray[np.int32], span: IntArray | None
) -> NDArray[np.int32]:
    ranges = np.empty((base.t_min.size, 4), np.int32)
    if join.strategy in PROBING_ALL:
        probe_all(base.key, target.starts, ranges)
        return ranges
    fill_bounds = fill_anchored_ranges if join.strategy == "auto" else fill_confidence_bounds
    cursors = np.stack((target.starts[:-1], target.starts[:-1]))
    for start in range(0, len(ranges), _BOUNDED_AT_ONCE):
        rows = slice(start, start + _BOUNDED_AT_ONCE)
        bounds = np.empty(ranges[rows].shape, np.int64)
        if span is not None:
            fill_kind_bounds(base.t_max[rows], kind[rows], span, bounds)
        else:
            times = base.t_min[rows], base.t_max[rows]
            fill_bounds(*times, join.lo, join.hi, *join.target_lengths, join.confidence, bounds)
        locate(bounds, base.key[rows], target.axis, target.starts, join.strategy != "eager", cursors, ranges[rows])
    return ranges


def _first_partners(
    join: _Join,
    base: _BaseRows,
    target: OrderedRows,
    ranges: NDArray[np.int32],
    kinds: KindThresholds,
    counters: CorrelationCounters,
) -> Iterator[Pairs]:
    """One pair for each base row that has a partner."""
    state, found = np.zeros(STATE_SLOTS, np.int64), np.empty(len(ranges), np.int32)
    find_first_partners(
        join.lo, join.hi, join.confidence, base.t_min, base.t_max, target.t_min, target.t_max, ranges, kinds, state,
        found,
    )  # fmt: skip
    counters.sure += int(state[TAKEN])
    counters.probed += int(state[PROBED])
    counters.passed += int(state[PASSED])
    at = np.flatnonzero(found >= 0)
    counters.matched += at.size
    if at.size:
        yield base.position[at], target.position[found[at]]


def _first_accepted(
    join: _Join,
    base: _BaseRows,
    target: OrderedRows,
    ranges: NDArray[np.int32],
    kinds: KindThresholds,
    counters: CorrelationCounters,
) -> Iterator[Pairs]:
    """One accepted pair for each base row that has one.

    The candidates of all rows are tried in rounds, each of twice as many as the last, and only of the rows that have
    found none yet: at most twice the candidates up to the first accepted one.
    """
    found = np.zeros(len(join.base), bool)
    tried, size = 0, FIRST_CANDIDATES
    while True:
        open_ = np.flatnonzero((ranges[:, 3] - ranges[:, 0] > tried) & ~found[base.position])
        if not open_.size:
            return
        base, ranges = base.only(open_), ranges[open_]
        if kinds.base.size:
            kinds = kinds.of_base(open_)
        start = ranges[:, :1] + np.int32(tried)
        part = np.clip(ranges, start, start + np.int32(size))
        for base_at, target_at in _fill(join, base, target, part, kinds, EVERYTHING, counters, PAIRS_AT_ONCE):
            rows, first = np.unique(base_at, return_index=True)
            first = first[~found[rows]]
            found[rows] = True
            yield base_at[first], target_at[first]
        tried, size = tried + size, 2 * size


def _fill(
    join: _Join,
    base: _BaseRows,
    target: OrderedRows,
    ranges: NDArray[np.int32],
    kinds: KindThresholds,
    part: int,
    counters: CorrelationCounters,
    chunk_pairs: int,
) -> Iterator[Pairs]:
    """Yield one part of the pairs, resuming the fill kernel after each full chunk."""
    candidates, first, last = part_extent(ranges, part)
    table = np.full(last - first if part in (LEFT_PROBE, RIGHT_PROBE) else 0, NEVER_US)
    state = np.zeros(STATE_SLOTS, np.int64)
    while (remaining := candidates - int(state[PASSED])) > 0:
        # The number of candidates is an upper bound of the pairs. Memory that is not written is never mapped, so a
        # loose bound costs nothing.
        capacity = min(remaining, chunk_pairs)
        out_base, out_target = np.empty(capacity, np.int32), np.empty(capacity, np.int32)
        before = state.copy()
        count = fill_pairs(
            part, join.lo, join.hi, join.confidence, base.t_min, base.t_max, base.position,
            target.t_min, target.t_max, target.position, ranges, kinds, table, first, state, out_base, out_target,
        )  # fmt: skip
        done = state - before
        counters.sure += int(done[TAKEN])
        counters.probed += int(done[PROBED])
        counters.lookup_hits += int(done[HITS])
        counters.passed += int(done[PASSED])
        pairs = out_base[:count], out_target[:count]
        if join.accepts is not None and count:
            accepted = join.accepts(*pairs)
            pairs = pairs[0][accepted], pairs[1][accepted]
        counters.matched += len(pairs[0])
        if len(pairs[0]):
            yield pairs

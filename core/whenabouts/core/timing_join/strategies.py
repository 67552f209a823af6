"""The five correlation strategies of the ITC paper and `auto`, over arrays of times.

A strategy determines the order of the rows on both sides, and for each base row four indices `outer_lo <= sure_lo <=
sure_hi <= outer_hi` into the ordered targets of its key. Targets in the sure range match, other targets in the outer
range are *probed* with the canonical kernel, and the rest cannot match. One fill kernel writes the pairs of all
strategies, in bounded chunks; others, with the same pairs in the same order, those of rows with few candidates and
those that need only be possible.
Such rows of `auto` are mostly searched and filled in one go, again with the same pairs (`near_join`).

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

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.key_time_order import Times
from whenabouts.core.arrays.large_arrays import large_array
from whenabouts.core.arrays.threads import cuts, each
from whenabouts.core.arrays.typing import BoolArray, IntArray, Positions
from whenabouts.core.probability.confidence_bounds import is_wide
from whenabouts.core.times.conditions import LEAST_CONFIDENCE
from whenabouts.core.times.limits import NEVER_US
from whenabouts.core.timing_join.candidate_ranges import (
    CandidateRanges,
    Sides,
    candidate_ranges,
    kinds_of,
    sides_of,
)
from whenabouts.core.timing_join.first_partners import find_first_partners
from whenabouts.core.timing_join.length_classes import Templates
from whenabouts.core.timing_join.near_join import near_pairs
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
    candidate_counts,
    fill_pairs,
    part_extent,
)
from whenabouts.core.timing_join.possible_fill import fill_possible_pairs
from whenabouts.core.timing_join.settings import STRATEGIES, WHOLE_BUFFER
from whenabouts.core.timing_join.short_fill import MOST_CANDIDATES, fill_short_rows
from whenabouts.core.timing_join.where import PAIRS_AT_ONCE

__all__ = ["STRATEGIES", "CorrelationCounters", "Times", "correlate"]

Pairs = tuple[NDArray[np.int32], NDArray[np.int32]]

Accepts = Callable[[Positions, Positions], BoolArray]
"""Which of the pairs (base positions, target positions) meet a further condition."""

_NO_TABLE = np.empty(0, np.int64)

FIRST_CANDIDATES = 8
"""How many candidates of a row are tried first when one accepted partner is enough."""


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

    `expect` is called before any pair is given, with the least (the sure ones) and the greatest possible number.

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
    if chunk_pairs < 1:
        raise ValueError(f"chunk_pairs must be at least 1, got {chunk_pairs}")
    sides = sides_of(
        base, target, lo, hi, confidence, strategy=strategy, base_lengths=base_lengths, target_lengths=target_lengths,
        base_templates=base_templates, target_templates=target_templates, base_is_right=base_is_right,
    )  # fmt: skip
    if accepts is not None:
        chunk_pairs = min(chunk_pairs, PAIRS_AT_ONCE)
    return _pairs(_Join(sides, first_only, accepts), counters, chunk_pairs, expect)


@dataclass(frozen=True, slots=True)
class _Join:
    sides: Sides
    first_only: bool
    accepts: Accepts | None


def _pairs(
    join: _Join, counters: CorrelationCounters, chunk_pairs: int, expect: Callable[[int, int], None] | None
) -> Iterator[Pairs]:
    counters.correlations += 1
    sides = join.sides
    if not len(sides.base) or not len(sides.target):
        return
    of = kinds_of(sides)
    if sides.strategy == "auto" and not join.first_only:
        near = near_pairs(sides, of)
        if near is not None:
            if expect is not None:
                expect(int(near[1][TAKEN]), int(near[1][PASSED]))
            yield from _counted(join, _in_chunks(*near, chunk_pairs), counters)
            return
    found = candidate_ranges(sides, of)
    if join.first_only and sides.strategy not in WHOLE_BUFFER:
        search = _first_partners if join.accepts is None else _first_accepted
        yield from search(join, found, counters)
        return
    if expect is not None:
        counts = each(lambda at: candidate_counts(found.ranges[at]), cuts(len(found.ranges)))
        expect(sum(sure for sure, _ in counts), sum(candidates for _, candidates in counts))
    parts: tuple[int, ...] = (EVERYTHING,)
    lengths = sides.base_lengths[1] + sides.target_lengths[1]
    # Corollary 2 compares one tail of D. In a narrow window both tails matter, and dominance proves nothing.
    if sides.strategy == "lazy_lookup" and not found.by_kind and is_wide(sides.lo, sides.hi, lengths):
        parts = (SURE, LEFT_PROBE, RIGHT_PROBE)
    for part in parts:
        yield from _fill(join, found, part, counters, chunk_pairs)


def _first_partners(join: _Join, found: CandidateRanges, counters: CorrelationCounters) -> Iterator[Pairs]:
    """One pair for each base row that has a partner."""
    sides, (base, target, ranges, kinds, _) = join.sides, found
    state, first = np.zeros(STATE_SLOTS, np.int64), np.empty(len(ranges), np.int32)
    find_first_partners(
        sides.lo, sides.hi, sides.confidence, base.t_min, base.t_max, target.t_min, target.t_max, ranges, kinds, state,
        first,
    )  # fmt: skip
    counters.sure += int(state[TAKEN])
    counters.probed += int(state[PROBED])
    counters.passed += int(state[PASSED])
    at = np.flatnonzero(first >= 0)
    counters.matched += at.size
    if at.size:
        yield base.position[at], target.position[first[at]]


def _first_accepted(join: _Join, found: CandidateRanges, counters: CorrelationCounters) -> Iterator[Pairs]:
    """One accepted pair for each base row that has one.

    The candidates of all rows are tried in rounds, each of twice as many as the last, and only of the rows that have
    found none yet: at most twice the candidates up to the first accepted one.
    """
    done, first_pair = np.zeros(len(join.sides.base), bool), np.empty(len(join.sides.base), np.int64)
    tried, size = 0, FIRST_CANDIDATES
    while True:
        open_ = np.flatnonzero((found.ranges[:, 3] - found.ranges[:, 0] > tried) & ~done[found.base.position])
        if not open_.size:
            return
        found = found.only(open_)
        start = found.ranges[:, :1] + np.int32(tried)
        tries = found._replace(ranges=np.clip(found.ranges, start, start + np.int32(size)))
        for base_at, target_at in _fill(join, tries, EVERYTHING, counters, PAIRS_AT_ONCE):
            first = np.flatnonzero(~done[base_at])
            rows = base_at[first]
            first_pair[rows[::-1]] = first[::-1]  # of a row with several, the last that is written stays
            first = first[first_pair[rows] == first]
            done[rows] = True
            yield base_at[first], target_at[first]
        tried, size = tried + size, 2 * size


def _fill(
    join: _Join, found: CandidateRanges, part: int, counters: CorrelationCounters, chunk_pairs: int
) -> Iterator[Pairs]:
    """Yield one part of the pairs, in chunks."""
    if part in (LEFT_PROBE, RIGHT_PROBE):  # in order: each row can use what the rows before it have found
        chunks = _resumed(join.sides, found, part, chunk_pairs)
    else:
        chunks = _by_blocks(join.sides, found, part, chunk_pairs)
    yield from _counted(join, chunks, counters)


def _counted(join: _Join, chunks: Iterable[tuple[Pairs, IntArray]], counters: CorrelationCounters) -> Iterator[Pairs]:
    """The accepted pairs of each chunk."""
    for pairs, done in chunks:
        counters.sure += int(done[TAKEN])
        counters.probed += int(done[PROBED])
        counters.lookup_hits += int(done[HITS])
        counters.passed += int(done[PASSED])
        if join.accepts is not None and len(pairs[0]):
            accepted = join.accepts(*pairs)
            pairs = pairs[0][accepted], pairs[1][accepted]
        counters.matched += len(pairs[0])
        if len(pairs[0]):
            yield pairs


def _in_chunks(pairs: Pairs, done: IntArray, chunk_pairs: int) -> Iterator[tuple[Pairs, IntArray]]:
    """Pairs in chunks, the first of which has the counts of all."""
    base, target = pairs
    for start in range(0, max(len(base), 1), chunk_pairs):
        chunk = slice(start, start + chunk_pairs)
        yield (base[chunk], target[chunk]), done if start == 0 else np.zeros_like(done)


def _resumed(sides: Sides, found: CandidateRanges, part: int, chunk_pairs: int) -> Iterator[tuple[Pairs, IntArray]]:
    """The pairs of a part and the counts of what was done for them, resuming the fill kernel after each full chunk."""
    base, target, ranges, kinds, _ = found
    candidates, first, last = part_extent(ranges, part)
    table = np.full(last - first if part in (LEFT_PROBE, RIGHT_PROBE) else 0, NEVER_US)
    state = np.zeros(STATE_SLOTS, np.int64)
    while (remaining := candidates - int(state[PASSED])) > 0:
        # The number of candidates is an upper bound of the pairs. Memory that is not written is never mapped, so a
        # loose bound costs nothing.
        capacity = min(remaining, chunk_pairs)
        out_base, out_target = large_array(capacity, np.int32), large_array(capacity, np.int32)
        before = state.copy()
        count = fill_pairs(
            part, sides.lo, sides.hi, sides.confidence, base.t_min, base.t_max, base.position,
            target.t_min, target.t_max, target.position, ranges, kinds, table, first, state, out_base, out_target,
        )  # fmt: skip
        yield (out_base[:count], out_target[:count]), state - before


def _by_blocks(sides: Sides, found: CandidateRanges, part: int, chunk_pairs: int) -> Iterator[tuple[Pairs, IntArray]]:
    """As `_resumed`, with chunks that end between rows, which several threads fill."""
    which = part != SURE
    slices = cuts(len(found.ranges), per_thread=4)
    sizes = [counts[which] for counts in each(lambda at: candidate_counts(found.ranges[at]), slices)]
    if sum(sizes) <= chunk_pairs:
        yield _at_once(sides, found, part, slices, sizes)
        return
    columns = (0, 3) if which else (1, 2)
    ends = np.cumsum(found.ranges[:, columns[1]] - found.ranges[:, columns[0]], dtype=np.int64)
    start = before = 0
    while start < len(ends):
        stop = max(int(np.searchsorted(ends, before + chunk_pairs, side="right")), start + 1)
        block = found.between(start, stop)
        if ends[stop - 1] - before > chunk_pairs:  # a single row
            yield from _resumed(sides, block, part, chunk_pairs)
        else:
            slices = cuts(stop - start, per_thread=4)
            sizes = [candidate_counts(block.ranges[at])[which] for at in slices]
            yield _at_once(sides, block, part, slices, sizes)
        start, before = stop, int(ends[stop - 1])


def _at_once(
    sides: Sides, found: CandidateRanges, part: int, slices: Sequence[slice], sizes: Sequence[int]
) -> tuple[Pairs, IntArray]:
    """All pairs of some slices of rows, which have `sizes` candidates, in the order of the rows."""
    target = found.target
    out_base, out_target = large_array(sum(sizes), np.int32), large_array(sum(sizes), np.int32)
    firsts = [0, *accumulate(sizes)]
    few = sum(sizes) <= MOST_CANDIDATES * sum(rows.stop - rows.start for rows in slices)
    plain = part == EVERYTHING and not found.kinds.table.size

    def fill(number: int) -> tuple[int, IntArray]:
        base, _, ranges, kinds, _ = found.between(slices[number].start, slices[number].stop)
        out, state = slice(*firsts[number : number + 2]), np.zeros(STATE_SLOTS, np.int64)
        lo, hi, confidence, base_out, target_out = sides.lo, sides.hi, sides.confidence, out_base[out], out_target[out]
        rows = base.t_min, base.t_max, base.position, target.t_min, target.t_max, target.position, ranges
        if plain and confidence <= LEAST_CONFIDENCE:
            count = fill_possible_pairs(lo, hi, *rows, state, base_out, target_out)
        elif plain and few:
            count = fill_short_rows(lo, hi, confidence, *rows, state, base_out, target_out)
        else:
            count = fill_pairs(
                part, lo, hi, confidence, *rows, kinds, _NO_TABLE, 0, state, base_out, target_out
            )  # fmt: skip
        return count, state

    filled = each(fill, range(len(slices)))
    written = 0
    for first, (count, _) in zip(firsts[:-1], filled, strict=True):
        if first > written:  # candidates before it that are no pairs
            for out in (out_base, out_target):
                out[written : written + count] = out[first : first + count]
        written += count
    return (out_base[:written], out_target[:written]), np.sum([state for _, state in filled], axis=0)

"""How many operations each strategy may take, counted pair by pair from the papers' definitions.

Whether a target lies in the sure or in the probe range of a base row is decided here for each pair by itself, with
exact rationals, from what the four bounds mean (ITC section 4.1 and Figure 1): among the targets that end at x, the
probability of one tail is least at one extreme of the declared lengths and greatest at the other. No bound is ever
computed or searched for. Thresholds carry the guard band of 2^-49 that the bounds are specified with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from whenabouts.conformance import oracle
from whenabouts.conformance.oracle import BAND, Event
from whenabouts.core.times.conditions import Condition
from whenabouts.core.times.time_specs import TimeSpec
from whenabouts.core.timing_join.query import TimingJoin

OPEN_US = 2**62
LEFT_PROBE, SURE, RIGHT_PROBE = "left probe", "sure", "right probe"


@dataclass(slots=True)
class TimingJoinCounts:
    """Operations of one or more correlations, under the names of `whenabouts.core.metrics`."""

    probed: int = 0
    sure: int = 0
    lookup_hits: int = 0
    matched: int = 0
    correlations: int = 0


@dataclass(frozen=True, slots=True)
class Geometry:
    """One direction of a query: D = X_target - X_base in [lo, hi], and the declared lengths of both sides."""

    lo: int
    hi: int
    confidence: float
    base_longest: int
    shortest: int
    longest: int

    @property
    def lookup(self) -> bool:
        """Whether Corollary 2 holds: it needs a window wider than both uncertainties together."""
        return self.hi - self.lo >= self.base_longest + self.longest


def geometry(query: TimingJoin, base: str) -> Geometry:
    """The direction of `query` in which rows of `base` look for partners."""
    condition, (left, right) = query.condition, (_lengths(query.left_time), _lengths(query.right_time))
    if base == "left":
        return Geometry(condition.lo_us, condition.hi_us, condition.confidence, left[1], *right)
    return Geometry(-condition.hi_us, -condition.lo_us, condition.confidence, right[1], *left)


def _lengths(spec: TimeSpec) -> tuple[int, int]:
    assert spec.max_uncertainty_us is not None, "the laws on counts declare the lengths"
    return spec.min_uncertainty_us, spec.max_uncertainty_us


@lru_cache(maxsize=1 << 16)
def _region(base_length: int, distance: int, g: Geometry) -> str | None:
    """Where a target that ends `distance` after the base row's start lies: sure, a probe range, or None (violation).

             LH        LL                 RL        RH
    ---------|---------|==================|---------|--------->  t_max of the target
    violation left probe       sure       right probe violation
    """
    base = (0, base_length)
    shortest, longest = (distance - g.shortest, distance), (distance - g.longest, distance)
    after_lo = [oracle.probability(base, target, g.lo, OPEN_US).exact for target in (shortest, longest)]
    before_hi = [oracle.probability(base, target, -OPEN_US, g.hi).exact for target in (longest, shortest)]
    confidence = Fraction(g.confidence)
    if not all(p == 1 or (p > 0 and p >= confidence - BAND) for p in (after_lo[0], before_hi[0])):
        return None
    wide = g.hi - g.lo >= base_length + g.longest
    surely_after, surely_before = (p == 1 or p >= confidence + BAND for p in (after_lo[1], before_hi[1]))
    if wide and surely_after and surely_before:
        return SURE
    return LEFT_PROBE if not (wide and surely_after) else RIGHT_PROBE


def region(base: Event, target: Event, g: Geometry) -> str | None:
    """`_region` of a pair."""
    return _region(base.t_max - base.t_min, target.t_max - base.t_min, g)


def correlation(strategy: str, base: Sequence[Event], target: Sequence[Event], g: Geometry) -> TimingJoinCounts:
    """Operations of correlating `base` rows with `target` rows (ITC Alg. 1-7); `strategy` is not `auto`."""
    counts = TimingJoinCounts(correlations=1)
    probes: list[tuple[str, Event, Event]] = []
    for event, other in oracle.candidates(base, target):
        p = oracle.probability(event.time, other.time, g.lo, g.hi)
        counts.matched += oracle.is_match(p, g.confidence)
        where = LEFT_PROBE if strategy in ("simple", "ssort") else region(event, other, g)
        counts.sure += where == SURE
        if where in (LEFT_PROBE, RIGHT_PROBE):
            probes.append((where, event, other))
    if strategy == "lazy_lookup" and g.lookup:
        counts.lookup_hits = sum(_answered(probes, where, g) for where in (LEFT_PROBE, RIGHT_PROBE))
    counts.probed = len(probes) - counts.lookup_hits
    return counts


def _answered(probes: Sequence[tuple[str, Event, Event]], region_: str, g: Geometry) -> int:
    """Probes of a range that an earlier one proves (ITC Alg. 6, Corollary 2).

    The left range is walked from the newest base row to the oldest: a row that starts no later than one that was
    proven to match the same target matches it too. The right range goes the other way. A value inside the guard band
    proves nothing. Base rows of one block end at different times in the inputs of this law, so the walk is unique.
    """
    backward = region_ == LEFT_PROBE
    walk = sorted(
        (probe for probe in probes if probe[0] == region_), key=lambda probe: probe[1].t_max, reverse=backward
    )
    best: dict[int, int] = {}  # by target: the start of the base row that reaches farthest
    hits = 0
    for _, event, target in walk:
        mark = event.t_min if backward else -event.t_min
        if id(target) in best and mark <= best[id(target)]:
            hits += 1
            continue
        p = oracle.probability(event.time, target.time, g.lo, g.hi).exact
        if p == 1 or p >= Fraction(g.confidence) + BAND:
            best[id(target)] = max(mark, best.get(id(target), mark))
    return hits


def add(total: TimingJoinCounts, part: TimingJoinCounts) -> None:
    """Add `part` to `total`."""
    total.probed += part.probed
    total.sure += part.sure
    total.lookup_hits += part.lookup_hits
    total.matched += part.matched
    total.correlations += part.correlations


def block(query: TimingJoin, left: Sequence[Event], right: Sequence[Event]) -> TimingJoinCounts:
    """Operations on finite input, all of it one block of one bucket.

    Per arrival (`simple`, `ssort`, `eager`), the left rows arrive first and find no rows, then each right row meets all
    left ones. Lazy strategies take the left rows as the base of the block and the right rows as its targets.
    """
    lazy = query.strategy in ("lazy", "lazy_lookup")
    base, target = (left, right) if lazy else (right, left)
    counts = correlation(query.strategy, base, target, geometry(query, "left" if lazy else "right"))
    counts.correlations = 2  # of the left rows, and of the right ones: in each strategy one of them meets no rows
    return counts


def alternating(query: TimingJoin, steps: Sequence[tuple[str, Sequence[Event]]]) -> TimingJoinCounts:
    """Operations on a stream whose steps have rows of one input each, none of which is ever dropped.

    All strategies then correlate a step's rows with the stored rows of the other input (a block size of 1 lets lazy
    ones wait for nothing), which pins the counts whatever an engine's own batches are.
    """
    total, seen = TimingJoinCounts(), {"left": list[Event](), "right": list[Event]()}
    for side, events in steps:
        other = "right" if side == "left" else "left"
        if events:
            add(total, correlation(query.strategy, events, seen[other], geometry(query, side)))
        seen[side] += events
    return total


def correlations_of_blocks(steps: Sequence[tuple[int, int]], block_size: int) -> int:
    """Correlations on a stream whose rows wait until there are `block_size` of them: one for each input in a block.

    ITC Algorithm 4. `steps`: the rows of both inputs in each step; a block is checked after a step, and the end of the
    input ends the last one.

    >>> correlations_of_blocks([(4, 0), (0, 4), (4, 0)], 8), correlations_of_blocks([(4, 0), (0, 4), (4, 0)], 1)
    (3, 3)
    """
    total, waiting = 0, [0, 0]
    for number, rows in enumerate(steps, 1):
        waiting = [before + more for before, more in zip(waiting, rows, strict=True)]
        if sum(waiting) >= block_size or number == len(steps):
            total += sum(count > 0 for count in waiting)
            waiting = [0, 0]
    return total


def in_steps(query: TimingJoin, steps: Sequence[Mapping[str, Sequence[Event]]]) -> TimingJoinCounts:
    """Operations on a stream in given steps, each with rows of both sides, none of which is ever dropped.

    Per arrival (ITC Alg. 1 and 2), a step's left rows come before its right ones, and each side's rows meet all rows of
    the other that came before. Lazy strategies (Alg. 4 to 7) let rows wait until there are `block_size`, and at the end
    of the stream: then the new left rows meet all right ones, and the new right rows the left ones of earlier blocks.
    """
    lazy, block_size = query.strategy in ("lazy", "lazy_lookup"), query.block_size or 1
    total, seen = TimingJoinCounts(), {"left": list[Event](), "right": list[Event]()}
    waiting: dict[str, list[Event]] = {"left": [], "right": []}
    for number, step in enumerate([*steps, {}]):
        for side, events in step.items():
            waiting[side] += events
        new = {side: waiting[side] for side in ("left", "right")}
        if lazy and sum(map(len, new.values())) < block_size and number < len(steps):
            continue
        waiting = {"left": [], "right": []}
        against = {"left": [*seen["right"], *(new["right"] if lazy else ())]}
        against["right"] = [*seen["left"], *(() if lazy else new["left"])]
        for side, events in new.items():
            if events:
                add(total, correlation(query.strategy, events, against[side], geometry(query, side)))
            seen[side] += events
    return total


def left_open(left: Sequence[Event], right: Sequence[Event], condition: Condition) -> int:
    """Pairs that satisfaction times leave to the kernel (PTJoin Theorem 2), where every shape has its own.

    P is at most either tail, so a pair with a tail under the confidence is decided; in a window that is wide for the
    pair one tail is certain and P is the other one, so two tails over the confidence decide as well. What remains are
    pairs in the guard band, and the middle of narrow windows.
    """
    confidence, found = Fraction(condition.confidence), 0
    for event, other in oracle.candidates(left, right):
        tails = [
            oracle.probability(event.time, other.time, *window)
            for window in ((condition.lo_us, OPEN_US), (-OPEN_US, condition.hi_us))
        ]
        if any(p.exact == 0 or p.exact < confidence - p.band for p in tails):
            continue
        support = sum(time.buckets[-1][1] - time.buckets[0][0] for time in (event.time, other.time))
        wide = condition.one_sided or condition.hi_us - condition.lo_us >= support
        found += not (wide and all(p.exact == 1 or p.exact >= confidence + p.band for p in tails))
    return found

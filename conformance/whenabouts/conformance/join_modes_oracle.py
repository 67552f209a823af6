"""What each mode of the timing join puts out, and when, recomputed from scratch: plain loops over all pairs.

Nothing is shared with the core's algorithms: a row's matches are all of them, a best partner is the first of its
sorted matches, and the instant at which a row is final comes from a search over exact rationals for the last row of
the other input that could still match.

Which of two probabilities is greater is a matter of the kernel's rounding where they are closer than its band. As for
membership (see `oracle`), exact integers below 2^53 leave no doubt, nor do equal times; anything else is ambiguous.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa

from whenabouts.conformance import oracle
from whenabouts.conformance.multiset import Bits, Row, Whole
from whenabouts.conformance.oracle import BAND, AmbiguousPairError, Event, Pair, Time
from whenabouts.core.runtime.key_names import shared
from whenabouts.core.times.time_specs import TimeSpec
from whenabouts.core.timing_join.query import TimingJoin

SIDES = ("left", "right")
_FAR = 10**19
PRESERVED = {
    "inner": (),
    "left_outer": ("left",),
    "right_outer": ("right",),
    "full_outer": ("left", "right"),
    "left_anti": ("left",),
}
CHOOSING = {None: (), "left": ("left",), "right": ("right",), "both": ("left", "right")}


Where = Callable[[Mapping[str, Any], Mapping[str, Any]], bool] | None


class ExpectedRow(NamedTuple):
    """An output row without computed columns, its exact probability (None: no pair), and the time of its event.

    `left`, `right`: numbers of the input rows, None for a side that has no part in it.
    """

    row: Row
    p: oracle.Ratio | None
    at_us: int
    left: int | None
    right: int | None


@lru_cache(maxsize=1 << 10)
def _ahead_us(lo: int, other: Time, this: Time, confidence: float) -> int:
    """Least s such that `this`, moved to end at s, can match a row of the other input like `other`; both end at 0.

    D = this - other must reach `lo`; a confidence of 0 asks whether it can. A probability less than the kernel's guard
    band below the confidence counts as possible, for no rounding may lose a pair; the instant at which a row is final
    depends on that width, so it is the documented one: 2^-49, and (buckets + 8) 2^-51 where that is more.
    """
    buckets = _spanned(this) + _spanned(other)
    band = max(Fraction(buckets + 8, 2**51), Fraction(1, 2**49)) if this.shape or other.shape else BAND
    low, high = lo + other.t_min - 1, lo - this.t_min + 1  # no chance; certainty
    while high - low > 1:
        middle = (low + high) // 2
        moved = Time(this.t_min + middle, middle, this.shape)
        p = oracle.probability(other, moved, lo, _FAR)
        possible = (
            oracle.can_meet(other, moved, lo, _FAR)
            if confidence == 0
            else p.exact == 1 or (p.exact > 0 and p.exact >= Fraction(confidence) - band)
        )
        low, high = (low, middle) if possible else (middle, high)
    return high


def _spanned(time: Time) -> int:
    """Buckets from the first to the last that has any probability, the empty ones between them included."""
    gaps = sum(before[1] != after[0] for before, after in pairwise(time.buckets))
    return len(time.buckets) + gaps


def _extremes(spec: TimeSpec, length_us: int | None) -> list[Time]:
    """What the rows of an input can be like, ending at 0: its templates, or an interval of this length."""
    if spec.templates:
        shapes = [oracle.shape_of(template) for _, template in spec.templates]
        return [Time(shape[0][0], 0, shape) for shape in shapes]
    assert length_us is not None, "streams declare their lengths"
    return [Time(-length_us, 0)]


def final_us(query: TimingJoin, side: str, t_max: int) -> int:
    """The least watermark that proves that no future row matches a row of `side` that ends at `t_max`.

    >>> from whenabouts.core import Point, within
    >>> join = TimingJoin(left_time=Point("t"), right_time=Point("t"), condition=within(10, confidence=1))
    >>> final_us(join, "left", 100)
    111
    """
    specs = {"left": query.left_time, "right": query.right_time}
    other = specs["right" if side == "left" else "left"]
    lo = query.condition.lo_us if side == "right" else -query.condition.hi_us
    others = _extremes(other, other.max_uncertainty_us)
    these = _extremes(specs[side], specs[side].min_uncertainty_us)
    ahead = min(_ahead_us(lo, one, this, query.condition.confidence) for one in others for this in these)
    return t_max - ahead + 1


def in_order(value: object) -> Any:
    """A key that sorts values of a column: nulls first, NaN last, -0.0 before 0.0.

    >>> sorted([0.0, None, float("nan"), -0.0, -1.0], key=in_order)
    [None, -1.0, -0.0, 0.0, nan]
    """
    if isinstance(value, Bits | Whole):
        value = value.value
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (1, math.isnan(value), 0.0 if math.isnan(value) else value, math.copysign(1.0, value) > 0)
    return (1, value.encode() if isinstance(value, str) else value)


def _best(candidates: Sequence[tuple[int, Event, oracle.Ratio]], to: Event | None) -> int:
    """The number of the best partner of `candidates` (number, row, probability); `to`: the nearest to it wins a tie."""
    greatest = max(p.exact for _, _, p in candidates)
    near = [each for each in candidates if greatest - each[2].exact <= each[2].band]
    known = all(p.small or p.exact in (0, 1) for _, _, p in near)
    if not known and len({event.time for _, event, _ in near}) > 1:
        raise AmbiguousPairError(f"which is the best of {near} depends on the kernel's rounding")

    def key(candidate: tuple[int, Event, oracle.Ratio]) -> tuple[object, ...]:
        number, event, p = candidate
        value = 1.0 if p.exact == 1 else p.nearest
        apart = 0 if to is None else abs(Fraction(event.t_min + event.t_max - to.t_min - to.t_max, 2))
        return (-value, apart, event.t_max, event.t_min, *map(in_order, event.values), number)

    return min(near, key=key)[0]


class Matches:
    """All matches of two inputs, by the numbers of their rows: `p` of each pair, partners `of` each side's rows."""

    def __init__(
        self,
        query: TimingJoin,
        events: Mapping[str, Sequence[Event]],
        schemas: Mapping[str, pa.Schema] | None = None,
        where: Where = None,
    ) -> None:
        self.query, self.events = query, events
        self.streaming = not query.condition.one_sided and all(
            spec.max_uncertainty_us is not None for spec in (query.left_time, query.right_time)
        )
        numbered = {side: [_Numbered(*event, n) for n, event in enumerate(events[side])] for side in SIDES}
        found: list[Pair] = oracle.pairs(numbered["left"], numbered["right"], query.condition)  # type: ignore[arg-type]
        if where is not None and schemas is not None:
            found = [p for p in found if where(*(_fields(schemas[s], getattr(p, s)) for s in SIDES))]
        self.p = {(pair.left.number, pair.right.number): pair.p for pair in found}  # type: ignore[attr-defined]
        self.of: dict[str, dict[int, list[int]]] = {side: defaultdict(list) for side in SIDES}
        for left, right in self.p:
            self.of["left"][left].append(right)
            self.of["right"][right].append(left)

    def final_us(self, side: str, number: int) -> int:
        """When a row is final; a null key is final with its arrival. (0 where the query cannot run on a stream.)"""
        event = self.events[side][number]
        if event.key is None and self.query.key_columns:
            return event.t_max
        return final_us(self.query, side, event.t_max) if self.streaming else 0

    def best(self, side: str, number: int) -> int | None:
        """The number of a row's best partner."""
        other = "right" if side == "left" else "left"
        partners = self.of[side].get(number)
        if not partners:
            return None
        pair = (lambda n: (number, n)) if side == "left" else (lambda n: (n, number))
        to = self.events[side][number] if self.query.ties == "nearest" else None
        return _best([(n, self.events[other][n], self.p[pair(n)]) for n in partners], to)


class _Numbered(NamedTuple):
    """An event that knows its place."""

    t_min: int
    t_max: int
    key: tuple[object, ...] | None
    values: tuple[object, ...]
    shape: oracle.Shape
    number: int

    @property
    def time(self) -> Time:
        """When it happened."""
        return Time(self.t_min, self.t_max, self.shape)


def _fields(schema: pa.Schema, event: Event) -> dict[str, Any]:
    """A row's plain values by column."""
    plain = (value.value if isinstance(value, Bits | Whole) else value for value in event.values)
    return dict(zip(schema.names, plain, strict=True))


def results(
    query: TimingJoin,
    schemas: Mapping[str, pa.Schema],
    events: Mapping[str, Sequence[Event]],
    where: Where = None,
) -> list[ExpectedRow]:
    """Every output row of a mode. `at_us` holds for streams. `where`: the query's condition on two rows as dicts."""
    matches = Matches(query, events, schemas, where)
    if query.how == "left_semi":
        lefts = events["left"]
        return [ExpectedRow(lefts[n].values, None, lefts[n].t_max, n, None) for n in matches.of["left"]]
    chosen = _chosen(matches)
    rows = _Rows(query, schemas)
    found = []
    if query.how != "left_anti":
        for (left, right), at_us in chosen.items():
            row = rows.pair(events["left"][left], events["right"][right])
            found.append(ExpectedRow(row, matches.p[left, right], at_us, left, right))
    for side in PRESERVED[query.how]:
        in_a_pair = {pair[SIDES.index(side)] for pair in chosen}
        for number, event in enumerate(events[side]):
            if number not in in_a_pair:
                row = event.values if query.how == "left_anti" else rows.alone(side, event)
                numbers = (number, None) if side == "left" else (None, number)
                found.append(ExpectedRow(row, None, _alone_us(matches, side, number), *numbers))
    return found


def _chosen(matches: Matches) -> dict[tuple[int, int], int]:
    """The pairs that a mode selects, and the times of their events."""
    best, events = matches.query.best, matches.events
    if best is None:
        return {(n, m): max(events["left"][n].t_max, events["right"][m].t_max) for n, m in matches.p}
    chosen = {}
    for n, m in matches.p:
        wants = {"left": matches.best("left", n) == m, "right": matches.best("right", m) == n}
        if all(wants[side] for side in CHOOSING[best]):
            finals = {"left": matches.final_us("left", n), "right": matches.final_us("right", m)}
            chosen[n, m] = max(finals[side] for side in CHOOSING[best])
    return chosen


def _alone_us(matches: Matches, side: str, number: int) -> int:
    """When it is settled that a row comes out alone."""
    own, other = matches.final_us(side, number), "right" if side == "left" else "left"
    best = matches.query.best
    if best == "both":
        partner = matches.best(side, number)
        return own if partner is None else max(own, matches.final_us(other, partner))
    if best == other:  # it cannot choose, and may be chosen as long as one of its matches is open
        return max([own, *(matches.final_us(other, n) for n in matches.of[side].get(number, ()))])
    return own


class _Rows:
    """How values of the inputs become output rows."""

    def __init__(self, query: TimingJoin, schemas: Mapping[str, pa.Schema]) -> None:
        self._left, self._right = schemas["left"].names, schemas["right"].names
        self._keys = shared(query.key_columns)

    def pair(self, left: Event, right: Event) -> Row:
        return (*left.values, *self._beside(right.values))

    def alone(self, side: str, event: Event) -> Row:
        if side == "left":
            return (*event.values, *self._beside([None] * len(self._right)))
        own = dict(zip(self._right, event.values, strict=True))
        left = [own[name] if name in self._keys else None for name in self._left]
        return (*left, *self._beside(event.values))

    def _beside(self, values: Sequence[object]) -> list[object]:
        return [value for name, value in zip(self._right, values, strict=True) if name not in self._keys]

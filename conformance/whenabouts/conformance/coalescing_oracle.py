"""Coalescing recomputed from scratch: sort, cut the extent out, walk through each group. Nothing of the core's.

A row is a plain dict. Numbers are compared as exact rationals; every extent is computed from all rows, so that nothing
that an update could have left behind is in it. Source of the model: Al-Kateb, Kunta, Lee 2010, sections 2.3 and 3.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise, product
from typing import Any, NamedTuple

import pyarrow as pa

Row = Mapping[str, Any]
Predicate = Callable[[Row, Row], bool]


class Reading(NamedTuple):
    """A row of a group at an instant; `group` holds keys that sort as the columns do."""

    ts: int
    group: tuple[Any, ...]
    row: Row


class CoalescedTuple(NamedTuple):
    """A coalesced tuple, valid in `[start, end)`: the rows that made it, the first of which lends it its values."""

    group: tuple[Any, ...]
    rows: tuple[Row, ...]
    start: int
    end: int

    @property
    def n(self) -> int:
        """How many constituents it has."""
        return len(self.rows)

    @property
    def duration(self) -> int:
        """`end - start`."""
        return self.end - self.start


class Settled(NamedTuple):
    """What rows become before any window: one reading for each group and instant, and the rows that lost."""

    readings: tuple[Reading, ...]
    duplicates: tuple[Row, ...]
    replayed: int


def sort_key(value: Any) -> tuple[Any, ...]:
    """Nulls, then values by size, then NaN; -0.0 before 0.0."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (2,) if math.isnan(value) else (1, value, math.copysign(1, value))
    return (1, value, 0)


def group_key(value: Any) -> tuple[Any, ...]:
    """As `sort_key`, where -0.0 is 0.0: they are one group."""
    return sort_key(value + 0.0 if isinstance(value, float) else value)


def settle(rows: Iterable[Row], time: str, group: Sequence[str]) -> Settled:
    """One reading for each (group, time): the smallest row in column order; equal rows are replays of it."""
    rivals: dict[tuple[int, tuple[Any, ...]], list[Row]] = defaultdict(list)
    for row in rows:
        rivals[row[time], tuple(group_key(row[name]) for name in group)].append(row)
    readings, duplicates, replayed = [], [], 0
    for (ts, key), here in rivals.items():
        ordered = sorted(here, key=_row_key)
        readings.append(Reading(ts, key, ordered[0]))
        for previous, row in pairwise(ordered):
            if _row_key(previous) == _row_key(row):
                replayed += 1
            else:
                duplicates.append(row)
    return Settled(tuple(sorted(readings, key=_place)), tuple(duplicates), replayed)


def _row_key(row: Row) -> tuple[Any, ...]:
    return tuple(sort_key(value) for value in row.values())


def _place(reading: Reading) -> tuple[int, tuple[Any, ...]]:
    return reading.ts, reading.group


def equivalent(kind: str, bound: float | None, previous: Any, value: Any) -> bool:
    """Whether a value extends a run, compared with the previous one of its group.

    Null and NaN equal only themselves, an infinite value is near none but itself.
    """
    if previous is None or value is None or previous != previous or value != value:
        same = previous is value or (previous is not None and value is not None and previous != previous != value)
        same = same and (value is None or value != value)
        return same and kind not in ("increasing", "decreasing")
    match kind:
        case "equal":
            return bool(previous == value)
        case "increasing":
            return bool(value > previous)
        case "non_decreasing":
            return bool(value >= previous)
        case "decreasing":
            return bool(value < previous)
        case "non_increasing":
            return bool(value <= previous)
    assert bound is not None
    if previous == value or math.isinf(previous) or math.isinf(value):
        return bool(previous == value)
    exact = [Fraction(number) for number in (bound, previous, value)]
    limit = exact[0] if kind == "within_value" else exact[0] * abs(exact[1])
    return abs(exact[2] - exact[1]) <= limit


def all_equivalent(kind: str, bound: float | None, values: Sequence[str]) -> Predicate:
    """Rows whose value columns are all equivalent."""
    return lambda previous, row: all(equivalent(kind, bound, previous[name], row[name]) for name in values)


def pair_by_pair(predicate: Callable[[pa.Table, pa.Table], Any], schema: pa.Schema) -> Predicate:
    """A function of two tables, asked about one pair of rows at a time: what is put to it together changes nothing."""

    def goes_on(previous: Row, value: Row) -> bool:
        tables = [pa.table({n: pa.array([row[n]], schema.field(n).type) for n in row}) for row in (previous, value)]
        (told,) = predicate(*tables).to_pylist()
        return told is True

    return goes_on


def extent_by_time(readings: Iterable[Reading], at: int, width: int, *, closed: str = "both") -> list[Reading]:
    """Readings with `at - width <= ts <= at` (`closed="right"`: `at - width < ts`)."""
    first = at - width + (closed == "right")
    return [reading for reading in readings if first <= reading.ts <= at]


def extent_by_rows(
    readings: Sequence[Reading], at: int | tuple[int, tuple[Any, ...]], n: int, *, per_group: bool = False
) -> list[Reading]:
    """The n readings with the largest (ts, group) up to `at`, of the stream or of each group."""
    until = sorted((r for r in readings if (r.ts <= at if isinstance(at, int) else _place(r) <= at)), key=_place)
    if not per_group:
        return until[-n:]
    kept: list[Reading] = []
    for group in {reading.group for reading in until}:
        kept += [reading for reading in until if reading.group == group][-n:]
    return kept


def coalesced(extent: Iterable[Reading], goes_on: Predicate) -> list[CoalescedTuple]:
    """The runs of an extent: `end` is where the next run of the group begins; that of the last one, its last row."""
    groups: dict[tuple[Any, ...], list[Reading]] = defaultdict(list)
    for reading in sorted(extent, key=_place):
        groups[reading.group].append(reading)
    runs = []
    for group, readings in groups.items():
        cut = [0, *(i for i in range(1, len(readings)) if not goes_on(readings[i - 1].row, readings[i].row))]
        for start, stop in zip(cut, [*cut[1:], len(readings)], strict=True):
            end = readings[stop].ts if stop < len(readings) else readings[-1].ts
            rows = tuple(reading.row for reading in readings[start:stop])
            runs.append(CoalescedTuple(group, rows, readings[start].ts, end))
    return runs


def instants(readings: Sequence[Reading], slide: int) -> range:
    """`k * slide` from the first one at or after the first reading to the first one at or after the last."""
    if not readings:
        return range(0)
    first, last = (-(-ts // slide) for ts in (min(r.ts for r in readings), max(r.ts for r in readings)))
    return range(first * slide, last * slide + 1, slide)


def row_instants(readings: Sequence[Reading], slide: int, *, per_group: bool = False) -> Iterator[Reading]:
    """Every slide-th reading in the order of (ts, group), of the stream or of each group."""
    ordered = sorted(readings, key=_place)
    if not per_group:
        yield from ordered[slide - 1 :: slide]
        return
    for group in {reading.group for reading in ordered}:
        yield from [reading for reading in ordered if reading.group == group][slide - 1 :: slide]


def join(
    left: Iterable[CoalescedTuple],
    right: Iterable[CoalescedTuple],
    pairs: Callable[[CoalescedTuple, CoalescedTuple], bool],
) -> list[tuple[CoalescedTuple, CoalescedTuple, tuple[int, int]]]:
    """All pairs of runs that satisfy `pairs`, with the intersection of their periods: a loop over all of them."""
    return [(a, b, (max(a.start, b.start), min(a.end, b.end))) for a, b in product(left, right) if pairs(a, b)]


def aggregate(function: str, durations: Sequence[int], values: Sequence[Any] = ()) -> Fraction | int | None:
    """MAX, MIN, SUM, AVG, COUNT, MEDIAN of durations, or `time_weighted`: the mean of values weighted by them.

    Exact; None where there is nothing to say (no run, or no duration to weigh with).
    """
    match function:
        case "count":
            return len(durations)
        case "sum":
            return sum(durations)
        case "time_weighted":
            total = sum(durations)
            weighted = [Fraction(value) * duration for value, duration in zip(values, durations, strict=True)]
            return sum(weighted, Fraction(0)) / total if total else None
    if not durations:
        return None
    match function:
        case "max":
            return max(durations)
        case "min":
            return min(durations)
        case "avg":
            return Fraction(sum(durations), len(durations))
        case "median":
            return Fraction(statistics.median([Fraction(duration) for duration in durations]))
    raise ValueError(function)

"""Temporal predicates and functions on periods `[start, end)`, over whole Arrow arrays.

The thirteen relations of Allen (1983), and OVERLAPS, CONTAINS, VALID, BEGIN, END, DURATION, INTERSECT and UNION, which
Al-Kateb 2010 adopts from TSQL2. Ends are int64, or timestamps of one type. If an end is null the result is null.

An empty period `[t, t)`, which the last tuple of a group has until the next one arrives, contains no instant: it
overlaps nothing and has no intersection. Allen's relations compare its ends like those of other periods, and equal ends
take precedence: `[5, 5)` starts `[5, 8)` and finishes `[2, 5)`. So exactly one of the thirteen holds for any two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from whenabouts.core.coalescing.columns import VALID_FROM, VALID_TO

Ends: TypeAlias = pa.Array | pa.ChunkedArray
Booleans: TypeAlias = pa.Array | pa.ChunkedArray


class Period(NamedTuple):
    """Periods `[start[i], end[i])`; `start <= end` is assumed."""

    start: Ends
    end: Ends


Relation: TypeAlias = Callable[[Period, Period], Booleans]


def valid(rows: pa.Table | pa.RecordBatch) -> Period:
    """VALID: the periods of coalesced tuples, from their columns `valid_from` and `valid_to`."""
    return Period(rows.column(VALID_FROM), rows.column(VALID_TO))


def begin(period: Period) -> Ends:
    """BEGIN: the first instant."""
    return period.start


def end(period: Period) -> Ends:
    """END: the instant after the last one."""
    return period.end


def duration(period: Period) -> Ends:
    """DURATION: `end - start`, microseconds for integers, else an Arrow duration.

    >>> duration(Period(pa.array([1]), pa.array([4]))).to_pylist()
    [3]
    """
    return pc.subtract(period.end, period.start)


def intersect(a: Period, b: Period) -> Period:
    """INTERSECT: the instants in both; null if there is none.

    >>> [ends.to_pylist() for ends in intersect(Period(pa.array([1, 1]), pa.array([5, 3])),
    ...                                         Period(pa.array([3, 3]), pa.array([9, 9])))]
    [[3, None], [5, None]]
    """
    return _where(overlaps(a, b), _later(a.start, b.start), _sooner(a.end, b.end))


def union(a: Period, b: Period) -> Period:
    """UNION of periods that meet or overlap: from the first begin to the last end; null if there is a gap."""
    joined = pc.and_(pc.less_equal(a.start, b.end), pc.less_equal(b.start, a.end))
    return _where(joined, _sooner(a.start, b.start), _later(a.end, b.end))


def overlaps(a: Period, b: Period) -> Booleans:
    """OVERLAPS: they share an instant."""
    return pc.less(_later(a.start, b.start), _sooner(a.end, b.end))


def contains(a: Period, b: Period) -> Booleans:
    """CONTAINS: b is within a, equal ends included."""
    return pc.and_(pc.less_equal(a.start, b.start), pc.less_equal(b.end, a.end))


def before(a: Period, b: Period) -> Booleans:
    """Allen's `<`: a ends, then b begins after a gap."""
    return _all(_earlier(a, b), pc.less(a.end, b.start))


def meets(a: Period, b: Period) -> Booleans:
    """Allen's `m`: b begins where a ends."""
    return _all(_earlier(a, b), pc.equal(a.end, b.start))


def partly_before(a: Period, b: Period) -> Booleans:
    """Allen's `o`: a begins first and ends inside b."""
    return _all(_earlier(a, b), pc.greater(a.end, b.start))


def starts(a: Period, b: Period) -> Booleans:
    """Allen's `s`: both begin together, a ends first."""
    return _all(pc.equal(a.start, b.start), pc.less(a.end, b.end))


def during(a: Period, b: Period) -> Booleans:
    """Allen's `d`: a begins after b and ends before it."""
    return _all(pc.greater(a.start, b.start), pc.less(a.end, b.end))


def finishes(a: Period, b: Period) -> Booleans:
    """Allen's `f`: both end together, b begins first."""
    return _all(pc.greater(a.start, b.start), pc.equal(a.end, b.end))


def equals(a: Period, b: Period) -> Booleans:
    """Allen's `=`."""
    return _all(pc.equal(a.start, b.start), pc.equal(a.end, b.end))


def after(a: Period, b: Period) -> Booleans:
    """Allen's `>`: inverse of `before`."""
    return before(b, a)


def met_by(a: Period, b: Period) -> Booleans:
    """Allen's `mi`: inverse of `meets`."""
    return meets(b, a)


def partly_after(a: Period, b: Period) -> Booleans:
    """Allen's `oi`: inverse of `partly_before`."""
    return partly_before(b, a)


def started_by(a: Period, b: Period) -> Booleans:
    """Allen's `si`: inverse of `starts`."""
    return starts(b, a)


def strictly_contains(a: Period, b: Period) -> Booleans:
    """Allen's `di`: inverse of `during`."""
    return during(b, a)


def finished_by(a: Period, b: Period) -> Booleans:
    """Allen's `fi`: inverse of `finishes`."""
    return finishes(b, a)


ALLEN: dict[str, Relation] = {
    relation.__name__: relation
    for relation in (
        before, meets, partly_before, starts, during, finishes, equals,
        finished_by, strictly_contains, started_by, partly_after, met_by, after,
    )
}  # fmt: skip
"""The thirteen relations by name: exactly one holds for any two periods. The inverse of the k-th is the k-th from the
end."""

PREDICATES: dict[str, Relation] = ALLEN | {"overlaps": overlaps, "contains": contains}
"""All predicates by name."""


def _earlier(a: Period, b: Period) -> Booleans:
    return _all(pc.less(a.start, b.start), pc.less(a.end, b.end))


def _all(one: Booleans, other: Booleans) -> Booleans:
    return pc.and_(one, other)


def _later(one: Ends, other: Ends) -> Ends:
    return pc.if_else(pc.less(one, other), other, one)


def _sooner(one: Ends, other: Ends) -> Ends:
    return pc.if_else(pc.less(one, other), one, other)


def _where(condition: Booleans, start: Ends, stop: Ends) -> Period:
    nothing = pa.scalar(None, start.type)
    return Period(pc.if_else(condition, start, nothing), pc.if_else(condition, stop, nothing))

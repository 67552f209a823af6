"""Where an engine's own join costs less than ours, and from where on it does not: what the scripts for Spark and for
Flink share, so that their charts can be compared."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import exp, log

from curves import Curve, draw

from whenabouts.core.durations import parse_duration

ROWS = (1_000, 4_000, 16_000, 64_000)
"""Of a side: in a micro-batch on Spark, in a second on Flink."""
KEYS = (8, 100, 10_000)
LATE = ("1 second", "60 seconds")
"""How late rows may come, which is how long they stay in state."""
PER_SECOND = 1.2
"""Events of a key and side in a second of event time: each meets 2.4 of the other side within a second."""


def rows_held(keys: int, per_second: float, lateness: str) -> int:
    """Rows of a side in the state of a join within a second.

    >>> rows_held(10_000, PER_SECOND, "60 seconds")
    744000
    """
    return round(keys * per_second * (parse_duration(lateness) / 1e6 + 2))


def crossing(points: Sequence[tuple[float, float]]) -> float | None:
    """The x at which a line through the points first rises above 1, on logarithmic axes.

    >>> round(crossing([(1_000, 0.5), (4_000, 2.0)]))
    2000
    >>> crossing([(1_000, 1.5), (4_000, 2.0)]) is None
    True
    """
    for (x, low), (beyond, high) in pairwise(points):
        if low <= 1 < high:
            return exp(log(x) + (log(beyond) - log(x)) * log(1 / low) / log(high / low))
    return None


def verdict(label: str, points: Sequence[tuple[float, float]], own: str, unit: str) -> str:
    """Where a line crosses 1, in words. `own`: whose own join, `unit`: of x.

    >>> verdict("8 keys", [(1_000, 0.5), (4_000, 2.0)], "Spark's", "rows")
    '8 keys: ours costs less from 2,000 rows on'
    >>> verdict("8 keys", [(1_000, 0.5), (4_000, 0.8)], "Flink's", "rows a second")
    "8 keys: Flink's own costs less up to 4,000 rows a second (1.2 times)"
    """
    at = crossing(points)
    if at is not None:
        not_at = [f"{x:,.0f}" for x, ratio in points if x > at and ratio <= 1]
        return f"{label}: ours costs less from {at:,.0f} {unit} on" + f", but not at {', '.join(not_at)}" * bool(not_at)
    if points[0][1] > 1:
        return f"{label}: ours costs less at {points[0][0]:,.0f} {unit} already ({points[0][1]:.1f} times)"
    return f"{label}: {own} own costs less up to {points[-1][0]:,.0f} {unit} ({1 / points[-1][1]:.1f} times)"


def picture(name: str, found: Curve, own: str, x_label: str, ticks: Sequence[float]) -> str:
    """The lines, and one where both cost the same. Returns the file's name."""
    places = [at for points in found.values() for at, _ in points]
    level = {"equal": [(min(places), 1.0), (max(places), 1.0)]}
    marks = {"yticks": ticks, "yticklabels": list(map(str, ticks))}
    return draw(name, {**found, **level}, x_label, f"CPU of {own} own join over ours", **marks)

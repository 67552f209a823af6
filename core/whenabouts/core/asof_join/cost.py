"""What an as-of join costs, and how many rows a stream of it holds: what the planner says of it.

There is one way to run it, so nothing is chosen. Exact times take one sweep over sorted rows. Otherwise a left row
costs what its *candidates* do: the right rows of its key that may prevail, one and those that overlap it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from whenabouts.core.costs.choices import Alternative, Choice, Held, Workload
from whenabouts.core.joins.sides import LEFT, RIGHT
from whenabouts.core.times.time_specs import TimeSpec

if TYPE_CHECKING:
    from whenabouts.core.asof_join.settings import AsofJoinSettings


SWEEP, QUADRATURE = "sweep", "quadrature"

_SWEPT_NS = 60.0
_FOUND_NS = 300.0
_PER_CANDIDATE = {(False, True): (500.0, 1.0), (True, False): (300.0, 1.35), (True, True): (125.0, 2.9)}
"""Nanoseconds c and exponent p by which of (right, both) times are uncertain: d candidates cost c * d ** p. Fitted to
`benchmarks/asof_chance.py`."""


def algorithm(query: AsofJoinSettings, load: Workload) -> Choice:
    """How the join runs, with its cost in nanoseconds for a left row; an unknown rate counts as one row per second.

    >>> from whenabouts.core import Point
    >>> from whenabouts.core.asof_join.query import AsofJoin
    >>> print(algorithm(AsofJoin(left_time=Point("t"), right_time=Point("t"), on="k"), Workload()))
    algorithm = sweep: both times are points, ns a left row: sweep 60
    """
    right = _mean_s(query.right_time)
    left = _mean_s(query.left_time)
    if not left and not right:
        return _only(SWEEP, _SWEPT_NS, "both times are points")
    candidates = 1.0 + _per_key(query, load) * (left + right)
    price, power = _PER_CANDIDATE[bool(right), bool(left)]
    cost = _FOUND_NS + price * candidates**power
    return _only(QUADRATURE, cost, f"times are uncertain: {candidates:.3g} right rows may prevail for a left row")


def held(query: AsofJoinSettings, input: int, load: Workload) -> Held:
    """The rows of an input that state holds on average, if rows come at random times; unknown rates count as above.

    Left rows wait until they are settled, right rows for the left row that waits longest; then they are carried.
    """
    mean, longest = _waits_us(query, load)
    of_right = query.right_time.max_uncertainty_us or 0
    if input == LEFT:
        return Held(of_right + mean)
    return Held(of_right + longest + (query.left_time.max_uncertainty_us or 0), carried_rows(query, load))


def carried_rows(query: AsofJoinSettings, load: Workload) -> float:
    """The right rows that lie before all left rows to come, and that these may still need.

    Of each key the row that begins last, and those that overlap it. With a tolerance only of keys that had a right row
    within it: of rows at random times a share of `1 - exp(-rate * tolerance)`.
    """
    if query.direction == "forward":
        return 0.0
    rate = _per_key(query, load)
    alive = 1.0 if query.tolerance_us is None else -math.expm1(-rate * query.tolerance_us / 1e6)
    return load.keys * alive * (1.0 + rate * _mean_s(query.right_time))


def _waits_us(query: AsofJoinSettings, load: Workload) -> tuple[float, float]:
    """How long left rows wait for a right row that settles them, beyond the greatest length of a right time.

    On average, and the row that waits longest at a time. Backward they do not wait; else for the tolerance at most.
    """
    if query.direction == "backward":
        return 0.0, 0.0
    most_s = (query.tolerance_us or 0) / 1e6
    rate = _per_key(query, load) * (2.0 if query.direction == "nearest" else 1.0)  # a row before settles one, too
    lefts = load.rate(query.inputs[LEFT]) or 1.0
    mean_s = -math.expm1(-rate * most_s) / rate
    longest_s = min(math.log(max(lefts / rate, 1.0)) / rate, most_s)  # beyond it, less than one left row waits
    return mean_s * 1e6, max(mean_s, longest_s) * 1e6


def _only(value: str, cost: float, why: str) -> Choice:
    return Choice("algorithm", value, why, "ns a left row", (Alternative(value, cost),))


def _per_key(query: AsofJoinSettings, load: Workload) -> float:
    """Right rows of a key per second."""
    return (load.rate(query.inputs[RIGHT]) or 1.0) / load.keys


def _mean_s(spec: TimeSpec) -> float:
    """The mean length of a time in seconds, if lengths are uniform between the declared ones."""
    return (spec.min_uncertainty_us + (spec.max_uncertainty_us or 0)) / 2e6

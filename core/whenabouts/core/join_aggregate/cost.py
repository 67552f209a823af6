"""How a join aggregate runs, and how many rows a stream of it holds: what the planner says of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from whenabouts.core.costs.choices import Choice, Held, Workload, ruled

if TYPE_CHECKING:
    from whenabouts.core.join_aggregate.settings import JoinAggregateSettings

LEFT, RIGHT = 0, 1


def algorithm(query: JoinAggregateSettings) -> Choice:
    """How the join aggregate runs: there is one way.

    >>> from whenabouts.core import Point
    >>> from whenabouts.core.join_aggregate.query import JoinAggregate
    >>> asked = JoinAggregate(left_time=Point("t"), right_time=Point("t"), condition="1 s", aggregates={"n": "p_none"})
    >>> print(algorithm(asked))
    algorithm = ranges and pieces: no pairs are written, and uncertain partners of a left row are integrated over
    """
    if query.asks_chance:
        return ruled(
            "algorithm",
            "ranges and pieces",
            "no pairs are written, and uncertain partners of a left row are integrated over",
        )
    return ruled("algorithm", "ranges", "no pairs are written: sure partners of a left row are a range")


def held(query: JoinAggregateSettings, input: int, load: Workload) -> Held:
    """The rows of an input that state holds on average, if rows come at random times; an unknown rate counts as one row
    per second.

    Left rows wait until no partner can come; right rows for the left row that has waited longest.
    """
    behind = float(query.kept_for_us(input))
    if input == RIGHT:
        waits_s = max(query.kept_for_us(LEFT), 0) / 1e6
        rate = load.rate(query.inputs[LEFT]) or 1.0
        behind += (waits_s + math.expm1(-rate * waits_s) / rate) * 1e6  # the mean age of the oldest open left row
    return Held(behind)

"""How a join aggregate runs, and how many rows a stream of it holds: what the planner says of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from whenabouts.core.costs.choices import Choice, Held, Workload, ruled
from whenabouts.core.durations import parse_duration
from whenabouts.core.joins.sides import LEFT

if TYPE_CHECKING:
    from whenabouts.core.join_aggregate.settings import JoinAggregateSettings


RIGHT_PER_LEFT = 4
"""Right rows are folded once there are so many for each open left row: fewer are cheaper kept than folded."""

FEW = 1_000
"""Fewer right rows are not folded."""


def folding(query: JoinAggregateSettings) -> Choice:
    """Whether a stream folds right rows into open left rows.

    >>> from whenabouts.core import Point
    >>> from whenabouts.core.join_aggregate.query import JoinAggregate
    >>> asked = JoinAggregate(left_time=Point("t"), right_time=Point("t"), condition="1 s", aggregates={"n": "p_none"})
    >>> print(folding(asked))
    folding = never: n=p_none needs the right rows themselves
    """
    needs = next((each.described for each in query.aggregates if not each.can_fold), None)
    if needs is not None:
        return ruled("folding", "never", f"{needs} needs the right rows themselves", pinned=query.folding == "never")
    return ruled(
        "folding", query.folding,
        f"where at least {FEW:,} right rows, and {RIGHT_PER_LEFT} for each open left row, can only meet open left rows",
        pinned=query.folding != "auto",
    )  # fmt: skip


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

    Left rows wait until no partner can come; right rows for the left row that has waited longest, or until there are
    enough of them to be folded.
    """
    behind = float(query.kept_for_us(input))
    if input == LEFT:
        return Held(behind)
    waits_s = max(query.kept_for_us(LEFT), 0) / 1e6
    left_rate, right_rate = (load.rate(name) or 1.0 for name in query.inputs)
    oldest_s = waits_s + math.expm1(-left_rate * waits_s) / left_rate  # the mean age of the oldest open left row
    deferred = Held(behind + oldest_s * 1e6)
    if query.folding == "never" or not query.can_fold:
        return deferred
    enough = 0.0
    if query.folding == "auto":
        open_rows = left_rate * (waits_s + (query.lateness_us[LEFT] + parse_duration(load.every)) / 1e6)
        enough = max(FEW, RIGHT_PER_LEFT * open_rows)
    kept = max(behind, 0.0)
    if right_rate * (deferred.behind_us - kept) / 1e6 <= enough:
        return deferred
    some_open = -math.expm1(-left_rate * waits_s)
    return Held(kept, some_open * enough / 2)  # none to `enough` while a left row is open, else none

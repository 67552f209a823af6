"""What an ordinary join gives on the demo's tables: one that takes each recorded time for the time of the event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from whenabouts.cli.demo_runs import WINDOW, the_query
from whenabouts.core import Point, possibly, within
from whenabouts.core.explain.pair_answer import PairAnswer
from whenabouts.core.explain.why_not import why_not
from whenabouts.core.local import run

_PAIR = ["flight_id", "t_min_report"]
"""What identifies a pair: an airport has one report an hour."""


class Comparison(NamedTuple):
    """The pairs of the ordinary join against those of the timing join.

    `invented`: those that only the ordinary join has. `missed`: those that it lacks. Both with `probability`, the
    least (invented) or most (missed) probable first.
    """

    ordinary: pa.Table
    invented: pa.Table
    missed: pa.Table

    @property
    def sentence(self) -> str:
        """The numbers in words."""
        return (
            f"An ordinary join, of recorded times at most {WINDOW} apart, gives {self.ordinary.num_rows:,} pairs.\n"
            f"It invents {_many(self.invented)} and misses {_many(self.missed)}."
        )


def compare(tables: Sequence[pa.Table], pairs: pa.Table) -> Comparison:
    """Join both tables by their recorded times, the start of each interval, and compare with the timing join's pairs.

    The ordinary join is that of exact times on the local engine: a pair matches or it does not. The probability of the
    pairs that it invents is that of the timing join without a confidence.
    """
    query = the_query()
    recorded = replace(
        query, left_time=Point("t_min"), right_time=Point("t_min"), condition=within(WINDOW, confidence=1.0)
    )
    ordinary = run(recorded, tables).output
    possible = run(the_query(possibly(within(WINDOW))), tables).output.select([*_PAIR, "probability"])
    invented = ordinary.select(_PAIR).join(pairs.select(_PAIR), _PAIR, join_type="left anti")
    invented = invented.join(possible, _PAIR, join_type="left outer")
    invented = invented.set_column(2, "probability", pc.fill_null(invented["probability"], 0.0))
    missed = pairs.select([*_PAIR, "probability"]).join(ordinary.select(_PAIR), _PAIR, join_type="left anti")
    by_pair = [(name, "ascending") for name in _PAIR]
    return Comparison(
        ordinary,
        invented.sort_by([("probability", "ascending"), *by_pair]),
        missed.sort_by([("probability", "descending"), *by_pair]),
    )


def explained(tables: Sequence[pa.Table], pair: pa.Table) -> PairAnswer:
    """Why a pair (the first row of `pair`) is one of the timing join, or not."""
    flights, weather = tables
    wanted = pair.slice(0, 1).to_pylist()[0]
    flight = flights.filter(pc.equal(flights["flight_id"], wanted["flight_id"]))
    at_airport = pc.equal(weather["origin"], flight["origin"][0])
    report = weather.filter(pc.and_(at_airport, pc.equal(weather["t_min"], wanted["t_min_report"])))
    return why_not(flight, report, query=the_query())


def _many(pairs: pa.Table) -> str:
    mean = pc.mean(pairs["probability"]).as_py()
    return f"{pairs.num_rows:,}" + ("" if mean is None else f" (probability {mean:.2f} on average)")

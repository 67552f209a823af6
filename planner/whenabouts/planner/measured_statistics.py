"""Statistics of running queries, from the counts of their operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from whenabouts.core import metrics
from whenabouts.core.costs.eager_lazy_cost import Statistics
from whenabouts.core.errors import Code, QueryError


def measured_statistics(counts: Mapping[str, int], seconds: float, names: Iterable[str]) -> dict[str, Statistics]:
    """The statistics of the queries of a shared operator, from its counts in ``seconds`` of event time.

    cp is ``coalesced.NAME`` / ``neighbours.NAME``, oop is rows out of order / rows processed. The rate is rows
    processed per second, ``step_rows`` rows per step. Queries that have not produced an extent are left out, and so are
    all if no more rows were processed than were found to be duplicates, which had counted before: that says nothing of
    the stream. Raises: QueryError WA-2072 unless ``seconds`` is above zero.

    >>> counts = {"rows_processed": 50, "rows_out_of_order": 5, "coalesced.hot": 30, "neighbours.hot": 40}
    >>> measured_statistics(counts, 10.0, ["hot", "cold"])
    {'hot': Statistics(cp=0.75, oop=0.1, rate=5.0, arrived=None, source='measured', step_rows=None)}
    """
    if not seconds > 0:
        raise QueryError(
            Code.BAD_STATISTICS, f"seconds is {seconds}", "give the seconds of event time in which the counts arose"
        )
    rows, steps = counts.get(metrics.PROCESSED, 0), counts.get(metrics.STEPS, 0)
    found = {}
    for name in names:
        pairs = counts.get(metrics.neighbours(name), 0)
        if pairs and rows > 0:
            late = min(counts.get(metrics.OUT_OF_ORDER, 0) / rows, 1.0)
            cp = counts.get(metrics.coalesced(name), 0) / pairs
            at_a_time = rows / steps if steps else None
            found[name] = Statistics(cp, late, rows / seconds, source="measured", step_rows=at_a_time)
    return found


def blended(before: Statistics, now: Statistics, weight: float) -> Statistics:
    """The exponentially weighted mean of two measurements. Statistics that were not measured are replaced.

    >>> one, other = Statistics(0.5, rate=10.0, source="measured"), Statistics(1.0, rate=20.0, source="measured")
    >>> blended(one, other, 0.5).cp, blended(replace(one, source="declared"), other, 0.5).rate
    (0.75, 20.0)
    """
    if before.source != "measured":
        return now
    mixed: dict[str, float | None] = {}
    for name in ("cp", "oop", "rate", "step_rows"):
        known = [value for value in (getattr(before, name), getattr(now, name)) if value is not None]
        mixed[name] = (1 - weight) * known[0] + weight * known[-1] if known else None
    return replace(now, **mixed)  # type: ignore[arg-type]  # cp and oop are always known

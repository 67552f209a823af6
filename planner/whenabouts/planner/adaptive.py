"""Plans that follow the stream: measured and made again in every bucket while the queries run, adopted where they win.

What decides is a value that rides in the query (`whenabouts.core.shared_coalescing.scheme_policy`): the queries as they
were registered, the costs, the hysteresis. A bucket hands it what it counted; what it measured before stands in the
bucket's state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

from whenabouts.core.costs.eager_lazy_cost import Statistics
from whenabouts.core.durations import Duration, parse_duration
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.shared_coalescing.scheme_policy import SchemeDecision, Stretch
from whenabouts.planner.coalescing_plans import Given, Registered, plan_coalescing
from whenabouts.planner.measured_statistics import blended, measured_statistics
from whenabouts.planner.plans import Scheme


@dataclass(frozen=True)
class Adaptive:
    """Decides eager or lazy in a bucket of keys, by what this bucket counted (`core.adapting.Adapting`).

    Every ``every_us`` of event time the statistics are taken in, with ``weight`` (see `Registry.observe_counts`), and
    all queries are planned again; a plan is adopted if it costs less than the decisions in force by more than
    ``hysteresis``. Where nothing was counted, or constraints cannot hold together, all stays as it is. Pins and
    longest scans hold; of a memory budget each bucket has its part. Cost: that of planning, once per ``every_us`` and
    bucket: some 200 microseconds a query, and a run of the solver where the budget binds.
    """

    registered: Mapping[str, Registered]
    given: Given
    hysteresis: float
    weight: float
    every_us: int

    @classmethod
    def of(
        cls,
        registered: Mapping[str, Registered],
        given: Given,
        hysteresis: float,
        every: Duration,
        weight: float,
        buckets: int | None,
    ) -> Adaptive:
        """For queries as they are registered now. Raises: see `Registry.share`."""
        every_us = parse_duration(every, name="adapt_every")
        if every_us <= 0:
            raise QueryError(Code.BAD_WINDOW, f"adapt_every is {every!r}", "give more than zero")
        if buckets is not None and (isinstance(buckets, bool) or buckets < 1):
            raise QueryError(Code.BAD_OPTION, f"buckets is {buckets!r}", "give the number of buckets, 1 or more")
        if given.budget is not None and buckets is None:
            raise QueryError(
                Code.BAD_OPTION, "schemes are to follow the stream under a memory budget, in nobody knows how many "
                "buckets", "give share(buckets=) what the engine gets, so that each has its part of the budget",
            )  # fmt: skip
        check_weight(weight)
        budget = None if given.budget is None else given.budget / (buckets or 1)
        # What runs is not decided here, and a solver that is stopped by a clock would not decide alike twice.
        plain = {name: replace(each, runs=None) for name, each in registered.items()}
        return cls(plain, given._replace(budget=budget, time_limit=None), hysteresis, weight, every_us)

    def adapted(self, past: Stretch, schemes: Mapping[str, str], known: Mapping[str, Any]) -> SchemeDecision:
        """The schemes from now on, and the statistics of which measured ones are remembered."""
        before = {
            name: replace(each, statistics=Statistics(**known[name])) if name in known else each
            for name, each in self.registered.items()
        }
        now = observed(before, past.counts, past.seconds, self.weight)
        measured = {n: asdict(each.statistics) for n, each in now.items() if each.statistics.source == "measured"}
        if not measured:
            return SchemeDecision(schemes, dict(known))
        return SchemeDecision(self._schemes(now, {name: cast(Scheme, schemes[name]) for name in now}), measured)

    def _schemes(self, registered: Mapping[str, Registered], in_force: Mapping[str, Scheme]) -> Mapping[str, Scheme]:
        """Those of the best plan if it wins clearly, or if what is in force breaks a constraint by now."""
        try:
            best = plan_coalescing(registered, self.given)
        except QueryError:  # nothing keeps the constraints any more
            return in_force
        try:
            kept = plan_coalescing(registered, self.given, in_force)
        except QueryError:
            return best.schemes
        return best.schemes if best.beats(kept, self.hysteresis) else in_force


def observed(
    registered: Mapping[str, Registered], counts: Mapping[str, int], seconds: float, weight: float
) -> dict[str, Registered]:
    """The queries with what was counted in so many seconds of event time taken into their statistics."""
    found = measured_statistics(counts, seconds, registered)
    return {
        name: replace(each, statistics=blended(each.statistics, found[name], weight)) if name in found else each
        for name, each in registered.items()
    }


def check_weight(weight: float) -> None:
    """Raises: QueryError WA-2072 for what is no weight of a new figure."""
    if not 0.0 < weight <= 1.0:
        raise QueryError(Code.BAD_STATISTICS, f"weight is {weight}", "give a number in (0, 1]")

"""Plans that adapt to the stream: every bucket measures and plans again while the queries run.

The policy is a value inside the query (`whenabouts.core.shared_coalescing.scheme_policy`): the registered queries, the
costs, the hysteresis. A bucket passes its counts to it; earlier measurements are part of the bucket's state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

from whenabouts.core.costs.eager_lazy_cost import Statistics
from whenabouts.core.durations import Duration, parse_duration
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.shared_coalescing.scheme_policy import Observation, SchemeDecision
from whenabouts.planner.coalescing_plans import CoalescingEntry, PlanningInputs, plan_coalescing
from whenabouts.planner.measured_statistics import blended, measured_statistics
from whenabouts.planner.plans import Scheme


@dataclass(frozen=True)
class Adaptive:
    """Decides eager or lazy in a bucket, by the counts of this bucket (a `scheme_policy.SchemePolicy`).

    Every ``every_us`` of event time the statistics are updated, with ``weight`` (see `Registry.observe_counts`), and
    all queries are planned again. A plan is adopted if it is cheaper than the decisions in force by more than
    ``hysteresis``. Without counts, or if the constraints contradict each other, nothing changes. Pins and scan limits
    hold; each bucket has an equal part of a memory budget. Cost: that of planning, once per ``every_us`` and bucket:
    about 200 microseconds per query, and a run of the solver if the budget binds.
    """

    registered: Mapping[str, CoalescingEntry]
    given: PlanningInputs
    hysteresis: float
    weight: float
    every_us: int

    @classmethod
    def of(
        cls,
        registered: Mapping[str, CoalescingEntry],
        given: PlanningInputs,
        hysteresis: float,
        every: Duration,
        weight: float,
        buckets: int | None,
    ) -> Adaptive:
        """A policy for the registered queries. Raises: as `Registry.share`."""
        every_us = parse_duration(every, name="adapt_every")
        if every_us <= 0:
            raise QueryError(Code.BAD_WINDOW, f"adapt_every is {every!r}", "give more than zero")
        if buckets is not None and (isinstance(buckets, bool) or buckets < 1):
            raise QueryError(Code.BAD_OPTION, f"buckets is {buckets!r}", "give the number of buckets, 1 or more")
        if given.budget is not None and buckets is None:
            raise QueryError(
                Code.BAD_OPTION, "adapt_every with a memory budget needs the number of buckets",
                "give share(buckets=) the number that the engine uses: each bucket gets its part of the budget",
            )  # fmt: skip
        check_weight(weight)
        budget = None if given.budget is None else given.budget / (buckets or 1)
        # Policies do not run queries, and a solver stopped by a clock would not be deterministic.
        plain = {name: replace(each, runs=None) for name, each in registered.items()}
        return cls(plain, given._replace(budget=budget, time_limit=None), hysteresis, weight, every_us)

    def decide(self, past: Observation, schemes: Mapping[str, str], known: Mapping[str, Any]) -> SchemeDecision:
        """The next schemes, with the measured statistics to be remembered."""
        before = {
            name: replace(each, statistics=Statistics(**known[name])) if name in known else each
            for name, each in self.registered.items()
        }
        now = observed(before, past.counts, past.seconds, self.weight)
        measured = {n: asdict(each.statistics) for n, each in now.items() if each.statistics.source == "measured"}
        if not measured:
            return SchemeDecision(schemes, dict(known))
        return SchemeDecision(self._schemes(now, {name: cast(Scheme, schemes[name]) for name in now}), measured)

    def _schemes(
        self, registered: Mapping[str, CoalescingEntry], in_force: Mapping[str, Scheme]
    ) -> Mapping[str, Scheme]:
        """Those of the best plan if it is clearly cheaper, or if the schemes in force now break a constraint."""
        try:
            best = plan_coalescing(registered, self.given)
        except QueryError:  # no plan satisfies the constraints
            return in_force
        try:
            kept = plan_coalescing(registered, self.given, in_force)
        except QueryError:
            return best.schemes
        return best.schemes if best.beats(kept, self.hysteresis) else in_force


def observed(
    registered: Mapping[str, CoalescingEntry], counts: Mapping[str, int], seconds: float, weight: float
) -> dict[str, CoalescingEntry]:
    """The queries with their statistics updated by the counts of ``seconds`` of event time."""
    found = measured_statistics(counts, seconds, registered)
    return {
        name: replace(each, statistics=blended(each.statistics, found[name], weight)) if name in found else each
        for name, each in registered.items()
    }


def check_weight(weight: float) -> None:
    """Raises: QueryError WA-2072 for a weight outside (0, 1]."""
    if not 0.0 < weight <= 1.0:
        raise QueryError(Code.BAD_STATISTICS, f"weight is {weight}", "give a number in (0, 1]")

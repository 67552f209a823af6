"""Plans that follow the stream: measured while the queries run, made again, and adopted where they win clearly."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import pyarrow as pa

from whenabouts.core.durations import Duration, parse_duration
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.select_project import SelectProject
from whenabouts.planner.plans import Plan
from whenabouts.planner.registry import Registry


class Switch(NamedTuple):
    """When a new plan was adopted, in event time, and what it decided otherwise: query -> (before, now)."""

    at_us: int
    changes: dict[str, tuple[str | None, str | None]]


class Replanning:
    """Steers the shared query of a registry's stream (`protocol.Steering`): give it to the host that runs `query`.

    After each ``every`` of event time the registry observes what was counted in it (with ``weight``, see
    `Registry.observe_counts`) and plans again; a plan is adopted if it wins by more than the registry's hysteresis.
    What comes out is what it would be without any switch. ``options``: of `Registry.share`.

    ``plan``: the one in force. ``switches``: what was adopted so far. Cost: that of planning, once per ``every``.
    Raises: QueryError WA-2021 unless ``every`` is above zero, and what `Registry.share` and `plan` raise.
    """

    def __init__(
        self,
        registry: Registry,
        schema: pa.Schema,
        *,
        every: Duration = "1 min",
        weight: float = 0.3,
        plan: Plan | None = None,
        **options: Any,
    ) -> None:
        self._every_us = parse_duration(every, name="every")
        if self._every_us <= 0:
            raise QueryError(Code.BAD_WINDOW, f"every is {every!r}", "give more than zero")
        self._registry, self._schema, self._weight, self._options = registry, schema, weight, options
        self.plan = plan or registry.plan()
        self.switches: list[Switch] = []
        self._seen: Counter[str] = Counter()
        self._since_us: int | None = None

    @property
    def query(self) -> SelectProject:
        """The shared query under the plan in force."""
        return self._registry.share(self._schema, plan=self.plan, **self._options)

    def __call__(self, counts: Counter[str], latest_us: int) -> SelectProject | None:
        """The query that goes on, None where nothing changes."""
        if self._since_us is None:
            self._seen, self._since_us = counts, latest_us
            return None
        past_us = latest_us - self._since_us
        if past_us < self._every_us:
            return None
        counted = {name: counts[name] - self._seen[name] for name in counts}
        self._seen, self._since_us = counts, latest_us
        self._registry.observe_counts(counted, past_us / 1e6, weight=self._weight)
        before, self.plan = self.plan, self._registry.replan(self.plan)
        changes = before.diff(self.plan)
        if before.schemes == self.plan.schemes:
            return None
        self.switches.append(Switch(latest_us, changes))
        return self.query

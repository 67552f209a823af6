"""The counts of an operator in Flink's metric group, under the names of `whenabouts.core.metrics`.

Flink's counters can also be decremented, so that they serve for the size of a bucket's state, too. (A gauge of PyFlink
is read by a JVM thread, from which Python must not be called in thread mode.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from whenabouts.core.metrics import LATE, shown_of, state_bytes, state_rows
from whenabouts.core.runtime.protocol import Query

FLINK_NAMES = {LATE: "numLateRecordsDropped"}
"""Counts that Flink's own operators have, too, by their names there: dashboards and alerts look for them."""


class GroupCounts:
    """Adds the counts of every step of a query to the counters of a subtask."""

    def __init__(self, group: Any, query: Query) -> None:
        self._counters = {name: group.counter(name) for name in shown_of(query)}
        self._same = {name: group.counter(of_flink) for name, of_flink in FLINK_NAMES.items()}
        self._held_names = [name(input) for input in query.inputs for name in (state_rows, state_bytes)]
        self._held: dict[int, Mapping[str, int]] = {}

    def take(self, counts: Counter[str], bucket: int | None) -> None:
        """Add the counts of a bucket's step, or (None) of rows that were part of no step.

        The size of state is the sum over the buckets' last steps. A bucket without a step since the job began is not
        included.
        """
        change = Counter({name: n for name, n in counts.items() if name not in self._held_names})
        if bucket is not None:
            now = {name: counts[name] for name in self._held_names}
            change.update(now)
            change.subtract(self._held.get(bucket, {}))
            self._held[bucket] = now
        for name, n in change.items():
            if n and name in self._counters:
                self._counters[name].inc(n)
                if name in self._same:
                    self._same[name].inc(n)

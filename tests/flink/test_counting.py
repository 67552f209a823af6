"""Counts in Flink's metric group, here a group of Python; test_job.py sees those of a job."""

from __future__ import annotations

from collections import Counter

from whenabouts import JoinAggregate, Point, WatchClock, within
from whenabouts.flink_plugin.counting import GroupCounts


class _Group:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.names: list[str] = []

    def counter(self, name: str) -> _Counter:
        self.names.append(name)
        return _Counter(self.counts, name)


class _Counter:
    def __init__(self, counts: Counter[str], name: str) -> None:
        self._counts, self._name = counts, name

    def inc(self, n: int) -> None:
        self._counts[self._name] += n


def test_a_query_has_its_own_counts_from_the_start() -> None:
    group = _Group()
    counts = GroupCounts(group, WatchClock(reading="t", against="seen"))
    assert {"clock_steps", "clock_misfits", "matched", "state_rows_rows"} <= set(group.names)
    counts.take(Counter(matched=3, clock_steps=1, clock_misfits=2, state_rows_rows=5), 0)
    counts.take(Counter(matched=1, clock_steps=1, state_rows_rows=4), 0)
    found = {"matched": 4, "clock_steps": 2, "clock_misfits": 2, "state_rows_rows": 4}
    assert {name: group.counts[name] for name in found} == found
    sums = JoinAggregate(
        left_time=Point("t"), right_time=Point("t"), condition=within("1 s", confidence=1), aggregates={"n": "count"}
    )
    group = _Group()
    GroupCounts(group, sums)
    assert {"chance_terms", "rows_not_finite"} <= set(group.names)
    assert "clock_steps" not in group.names

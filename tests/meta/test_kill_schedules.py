"""Tests of the kill schedules: without the fix of a past bug in a host or an engine, a schedule finds the bug."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from whenabouts.conformance import simulated_flink, simulated_spark
from whenabouts.conformance.kill_schedules import Scenario, check, scenario
from whenabouts.core.hosting import element_host
from whenabouts.core.hosting.bucket_record import JsonRecords
from whenabouts.core.hosting.element_host import ElementHost
from whenabouts.core.hosting.element_watermark import ElementWatermark
from whenabouts.core.hosting.segment_cache import SegmentCache

pytestmark = [pytest.mark.slow, pytest.mark.full]

EVERY_RUN = 300
"""The number of schedules that run by default (tests/core/test_kill_schedules.py)."""

Break = Callable[[pytest.MonkeyPatch], Any]


def _sets_no_timer_again(patch: pytest.MonkeyPatch) -> None:
    """Timers that a checkpoint in process mode lacks are not set again (decision 0020)."""
    patch.setattr(ElementHost, "_record_with_timers", lambda self, state: self._records.get(state))


def _calls_nobody(patch: pytest.MonkeyPatch) -> None:
    """A bucket without further rows is not called when its task starts (decision 0021)."""
    patch.setattr(simulated_flink.SimulatedFlinkRun, "calls", False)


def _keeps_its_cache(patch: pytest.MonkeyPatch) -> None:
    """Segments of a job that has failed are read in the next one."""
    cache = SegmentCache()
    patch.setattr(element_host, "SegmentCache", lambda: cache)


def _keeps_its_records(patch: pytest.MonkeyPatch) -> None:
    """So are the records of its buckets."""
    records = JsonRecords()
    patch.setattr(element_host, "JsonRecords", lambda: records)


def _forgets_its_watermark(patch: pytest.MonkeyPatch) -> None:
    """After a restore the watermark of a bucket goes back."""
    patch.setattr(ElementWatermark, "at_least", lambda self, ms: self)


def _drops_what_it_gathered(patch: pytest.MonkeyPatch) -> None:
    """Rows that are gathered before the operator are not part of a checkpoint."""
    whole = simulated_flink.Bucket.copy

    def copy(self: simulated_flink.Bucket) -> simulated_flink.Bucket:
        copied = whole(self)
        copied.kept = ()
        return copied

    patch.setattr(simulated_flink.Bucket, "copy", copy)


def _gives_a_replay_twice(patch: pytest.MonkeyPatch) -> None:
    """A sink that ignores the number of a micro-batch."""

    def sink(self: Any, kept: Any, number: int, given: list[Any]) -> None:
        kept.sink.setdefault(number, []).extend(given)

    patch.setattr(simulated_spark.SimulatedSparkRun, "_sink", sink)


def _replays_over_its_own_state(patch: pytest.MonkeyPatch) -> None:
    """A replayed micro-batch finds the state that its first attempt wrote."""
    whole = simulated_spark.SimulatedSparkRun._attempt

    def attempt(self: Any, kept: Any, number: int, partition: int, *rest: Any) -> Any:
        if (number, partition) in kept.versions:
            kept.versions[number - 1, partition] = kept.versions[number, partition]
        return whole(self, kept, number, partition, *rest)

    patch.setattr(simulated_spark.SimulatedSparkRun, "_attempt", attempt)


FLINK: dict[str, Break] = {
    "sets no timer again": _sets_no_timer_again,
    "calls nobody": _calls_nobody,
    "keeps its cache": _keeps_its_cache,
    "keeps its records": _keeps_its_records,
    "forgets its watermark": _forgets_its_watermark,
    "drops what it gathered": _drops_what_it_gathered,
}
SPARK: dict[str, Break] = {
    "gives a replay twice": _gives_a_replay_twice,
    "replays over its own state": _replays_over_its_own_state,
}


def _failure(given: Scenario, broken: Break) -> str | None:
    with pytest.MonkeyPatch.context() as patch:
        broken(patch)
        try:
            check(given)
        except AssertionError as error:
            return str(error)
    return None


@pytest.mark.parametrize("name", [*FLINK, *SPARK])
def test_a_past_bug_is_found_within_the_schedules_of_every_run(name: str) -> None:
    spark = name in SPARK
    broken = (SPARK if spark else FLINK)[name]
    drawn = (scenario(seed) for seed in range(EVERY_RUN))
    failures = (_failure(given, broken) for given in drawn if given.spark is spark)
    found = next(filter(None, failures), "nothing")
    assert found.startswith("seed ")
    assert "\nAssertionError: " in found, "it fails by the law, not by an accident"

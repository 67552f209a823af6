"""Output rows are never late for the watermark that the query has forwarded, however long they waited in it, and their
event times can be read."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest

from whenabouts.conformance import simulated_flink
from whenabouts.conformance.simulated_engine import Schedule
from whenabouts.conformance.simulated_flink import SimulatedFlinkRun, Task
from whenabouts.core import Point, between, within
from whenabouts.core.asof_join.query import AsofJoin
from whenabouts.core.harness import Variant
from whenabouts.core.hosting.element_watermark import LEAST_MS
from whenabouts.core.hosting.host import OUTPUT
from whenabouts.core.join_aggregate.query import JoinAggregate
from whenabouts.core.local import run_stream
from whenabouts.core.runtime.protocol import Query
from whenabouts.core.runtime.time_columns import FIRST_US, LAST_US
from whenabouts.core.state.segment_codec import decode
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.window_join.query import WindowJoin

SECOND = 1_000_000
QUERIES: dict[str, Query] = {
    "timing join": TimingJoin(
        left_time=Point("t"), right_time=Point("t"), condition=within("2 s", confidence=1), strategy="eager",
        lateness="1 s",
    ),
    "window join": WindowJoin(
        times={"left": Point("t"), "right": Point("t")}, windows={("left", "right"): "2 s"}, strategy="backward",
        lateness="1 s",
    ),
}  # fmt: skip


class WatchedTask(Task):
    """Compares the event time of output rows with the watermark that has been forwarded."""

    passed_ms = LEAST_MS
    compared = 0
    seen = 0

    def end_bundle(self) -> None:
        self._compare()
        super().end_bundle()

    def advance(self, ms: int) -> None:
        super().advance(ms)
        self._compare()
        self.passed_ms = ms

    def tick(self) -> None:
        super().tick()
        self._compare()

    def _compare(self) -> None:
        operator = self.run.hosting.operator()
        assert operator.event_time is not None
        self.compared = min(self.compared, len(self.given))  # a checkpoint commits the output
        for tag, blob in self.given[self.compared :]:
            if tag == OUTPUT:
                times = decode(blob, operator.output_schema)[operator.event_time].cast(pa.int64()).to_pylist()
                assert min(times) // 1000 > self.passed_ms, "late for whatever reads it by event time"
                type(self).seen += 1
        self.compared = len(self.given)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["timing join", pytest.param("window join", marks=pytest.mark.full)])
def test_rows_that_are_gathered_come_before_the_watermark_passes_them(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(simulated_flink, "Task", WatchedTask)
    monkeypatch.setattr(WatchedTask, "seen", 0)
    for seed in range(40):
        draw = Random(seed)
        run = SimulatedFlinkRun(QUERIES[name], Variant(streaming=True, parallelism=2), Schedule(seed, free=True))
        run.gathers, run.max_latency_ms = True, 200
        for input in QUERIES[name].inputs:
            at = [n * SECOND // 4 + draw.randrange(SECOND // 2) for n in range(60)]
            files = [pa.table({"t": at[n : n + 6]}) for n in range(0, len(at), 6)]
            run.source(input, files)
        assert run.collect().output.num_rows > 300
    assert WatchedTask.seen > 100


def test_event_times_stay_in_the_years_1_to_9999() -> None:
    """Rows without a partner are final 2 s after their time; right ones may be 5 s before it."""
    at = pa.array([FIRST_US, LAST_US], pa.int64()).cast(pa.timestamp("us", "UTC"))
    rows = pa.table({"t": at, "v": [1, 2]})
    times: dict[str, Any] = {"left_time": Point("t"), "right_time": Point("t"), "lateness": "0 s"}
    near, later = within("2 s", confidence=1), between("5 s", "10 s", confidence=1)
    after, before = [FIRST_US + 2 * SECOND + 1, LAST_US], [FIRST_US, LAST_US - 5 * SECOND + 1]
    cases: list[tuple[Query, list[int]]] = [
        (TimingJoin(condition=near, how="left_outer", **times), after),
        (TimingJoin(condition=later, how="right_outer", **times), before),
        (AsofJoin(direction="nearest", tolerance="2 s", **times), after),
        (JoinAggregate(condition=near, aggregates={"n": "count"}, **times), after),
    ]
    for query, expected in cases:
        inputs = [rows.slice(0, 0), rows] if expected is before else [rows, rows.slice(0, 0)]
        found = run_stream(query, [[table] for table in inputs]).output.column("event_time")
        assert sorted(found.cast(pa.int64()).to_pylist()) == expected
        assert len(found.to_pylist()) == 2  # Python has no times beyond these years

"""The unmodified Kafka examples, on real brokers and clusters whose parts are killed, against brute force.

All tests of an engine write to one running job, one scene after the other.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from infra.broker import Broker
from infra.events import LATENESS, PARTITIONS, POISON, SECOND, written
from infra.jars import NotFetchedError
from infra.jobs import run_alone
from infra.streams import Stream, running_stream
from whenabouts.core import Interval, Lateness, within
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.planner.state_forecast import forecast_state

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

ENGINES = ["spark", "flink"]
ROWS_A_STEP = 5000
"""The most records that the example for Spark takes from a topic."""


def _require(engine: str) -> None:
    pytest.importorskip("pyspark" if engine == "spark" else "pyflink")


@pytest.fixture(scope="module", params=ENGINES)
def stream(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stream]:
    _require(request.param)
    try:
        with running_stream(request.param, tmp_path_factory.mktemp(request.param)) as running:
            yield running
    except NotFetchedError as missing:
        pytest.skip(str(missing))


def _forecast(left: float, right: float, every: str) -> float:
    """Rows that the join of the examples holds at this rate and this interval of micro-batches."""
    timed = [Interval("t_min", "t_max", max_uncertainty=longest) for longest in ("500 ms", "2 s")]
    late = f"{LATENESS // SECOND} s"
    query = TimingJoin(
        on="region", left_time=timed[0], right_time=timed[1], condition=within("2 s", confidence=0.6),
        lateness=Lateness(left=late, right=late),
    )  # fmt: skip
    schema = pa.schema({"region": pa.string(), "t_min": pa.int64(), "t_max": pa.int64()})
    return sum(each.rows for each in forecast_state(query, [schema, schema], [left, right], every=every).values())


def test_a_skewed_backlog_is_taken_in(stream: Stream) -> None:
    """It is there when the job starts: one region has half of all rows, and one side ten times those of the other."""
    rows, seconds = {"seismic": 10_000, "acoustic": 1_000}, 400
    stream.write(written(stream.scene(rows, seconds=seconds, regions=20, hot=0.5), twice=0.02))
    stream.check()
    stream.wait_for(lambda: stream.told("rows_in")[-1:] == [len(stream.records())])
    assert stream.told("rows_rejected")[-1] == 0
    step = seconds * ROWS_A_STEP / rows["seismic"] if stream.engine == "spark" else seconds  # Flink takes all there is
    ahead = rows["acoustic"] + 2 * (20 + PARTITIONS)  # the side with few rows is read at once
    assert max(stream.told("state_rows")) <= 1.2 * _forecast(rows["seismic"] / seconds, 0.001, f"{step} s") + ahead


def test_poison_goes_to_the_dead_letters_and_the_job_goes_on(stream: Stream) -> None:
    stream.write(written(stream.scene({"seismic": 500, "acoustic": 500}, seconds=50, regions=5), poisoned=True))
    stream.check()
    poison = stream.poison()
    assert len(poison) >= 2 * len(POISON)
    stream.wait_for(lambda: stream.told("rows_rejected")[-1:] == [len(poison)])


@pytest.mark.parametrize("seconds", [0, pytest.param(60, marks=pytest.mark.full)])
def test_a_side_that_is_silent_for_a_minute_holds_rows_and_loses_none(stream: Stream, seconds: int) -> None:
    """`seconds`: its length in wall-clock time; in event time it is more than a minute."""
    rows = {"seismic": 3000, "acoustic": 300}
    records = list(written(stream.scene(rows, seconds=60, regions=50), twice=0.02))
    before = len(stream.job.metrics())
    stream.write([record for record in records if record.topic == "seismic"], seconds=seconds)
    stream.wait_for(lambda: max(stream.told("state_rows", since=before), default=0) >= rows["seismic"])
    assert max(stream.told("state_rows", since=before)) <= 1.2 * _forecast(rows["seismic"] / 60, 1, "100 s")
    stream.write(record for record in records if record.topic == "acoustic")
    stream.check()
    spoken = len(stream.job.metrics())
    stream.write(written(stream.scene({"seismic": 50, "acoustic": 50}, seconds=10, regions=5)))
    stream.check()
    stream.wait_for(lambda: min(stream.told("state_rows", since=spoken), default=rows["seismic"]) <= 750)


@pytest.mark.parametrize("rows", [2000, pytest.param(200_000, marks=pytest.mark.full)])
def test_exactly_once_while_worker_leader_and_broker_are_killed(
    stream: Stream, rows: int, request: pytest.FixtureRequest
) -> None:
    """A producer repeats records, with poison in between; each kind of process is killed once, at a time and in an
    order that WHENABOUTS_CLUSTER_SEED determines."""
    seed = int(os.environ.get("WHENABOUTS_CLUSTER_SEED", random.SystemRandom().randrange(10**6)))
    request.node.add_report_section("setup", "seed", f"WHENABOUTS_CLUSTER_SEED={seed}")
    draw = random.Random(seed)
    events = stream.scene(
        dict.fromkeys(("seismic", "acoustic"), rows), seconds=rows / 200, regions=max(rows // 100, 200)
    )
    seconds = 12 + rows / 1000
    kills: list[Callable[[], None]] = [
        lambda: stream.job.kill_worker(), lambda: stream.job.kill_leader(), lambda: _restart(stream.broker)
    ]  # fmt: skip
    draw.shuffle(kills)
    with stream.writing(written(events, twice=0.02, poisoned=True), seconds=seconds):
        for kill in kills:
            time.sleep(draw.uniform(0.3, 1) * seconds / 4)
            kill()
    stream.check()


def _restart(broker: Broker) -> None:
    broker.kill()
    broker.start()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_broker_that_is_away_is_a_clear_error(engine: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    _require(engine)
    done = run_alone(engine, "localhost:1", str(tmp_path_factory.mktemp("checkpoints")))
    assert done.returncode == 1
    assert "WA-3041: no broker answers at localhost:1" in done.stderr

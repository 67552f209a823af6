"""The Kafka examples as they stand, on real brokers and clusters whose parts die, against brute force."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.broker import Broker, running_broker
from infra.events import POISON, events, expected, written
from infra.jars import NotFetchedError
from infra.jobs import Job, running_job
from infra.topics import Written, committed, create_topics, produce

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

PAIRS, DEAD = "pairs", "dead-letters"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    try:
        with running_broker(tmp_path / "kafka") as here:
            create_topics(here.address, "seismic", "acoustic", PAIRS, DEAD)
            yield here
    except NotFetchedError as missing:
        pytest.skip(str(missing))


class Found:
    """What has come out so far."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, dict[str, Any]]] = []
        self.dead: Counter[tuple[str, str]] = Counter()

    def pairs(self) -> Counter[tuple[int, int]]:
        return Counter((row["id_left"], row["id_right"]) for _, row in self.rows)


def _read_until(address: str, pairs: int, dead: int, job: Job, *, seconds: float) -> Found:
    """Reads until all that is expected has come out, and then until nothing more comes."""
    found, deadline, quiet = Found(), time.monotonic() + seconds, 0
    with committed(address, PAIRS) as rows, committed(address, DEAD) as letters:
        while quiet < 4:
            assert time.monotonic() < deadline, f"{len(found.pairs())} of {pairs}, {found.dead}\n{job.told()}"
            more, refused = rows(1), letters(0.5)
            found.rows += more
            found.dead.update((row["input"], row["code"]) for _, row in refused)
            complete = len(found.pairs()) >= pairs and len(found.dead) >= dead
            quiet = quiet + 1 if complete and not (more or refused) else 0
    return found


def _paced(records: list[Written], seconds: float) -> Iterator[Written]:
    begun = time.monotonic()
    for number, record in enumerate(records):
        ahead = begun + seconds * number / len(records) - time.monotonic()
        if ahead > 0.01:
            time.sleep(ahead)
        yield record


@pytest.mark.parametrize("engine", ["spark", "flink"])
def test_exactly_once_while_worker_leader_and_broker_are_killed(
    engine: str, broker: Broker, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """A producer that repeats itself, poison in between: what is committed is the brute-force answer, and the poison is
    among the dead letters with its codes. Flink's sink gives each row once; of Spark's, which is at least once, the key
    tells repeats, which are equal."""
    pytest.importorskip("pyspark" if engine == "spark" else "pyflink")
    rows = int(os.environ.get("WHENABOUTS_CLUSTER_ROWS", "10000"))
    seed = int(os.environ.get("WHENABOUTS_CLUSTER_SEED", random.SystemRandom().randrange(10**6)))
    request.node.add_report_section("setup", "seed", f"WHENABOUTS_CLUSTER_SEED={seed}")
    draw = random.Random(seed)
    tables = events(rows, regions=rows // 100, per_second=200, seed=seed)
    wanted = expected(tables)
    records = list(written(tables, twice=0.02, seed=seed))
    seconds = 20 + rows / 2000
    with running_job(engine, tmp_path, broker.address) as job:
        writing = threading.Thread(target=produce, args=(broker.address, _paced(records, seconds)))
        writing.start()
        kills: list[Callable[[], None]] = [job.kill_worker, job.kill_leader, lambda: _restart(broker)]
        draw.shuffle(kills)
        for kill in kills:
            time.sleep(draw.uniform(0.5, 1) * seconds / 4)
            kill()
        writing.join()
        found = _read_until(broker.address, len(wanted), 2 * len(POISON), job, seconds=240)
    by_key: dict[str, dict[str, Any]] = {}
    for key, row in found.rows:
        assert key == {"id_left": row["id_left"], "id_right": row["id_right"]}
        assert by_key.setdefault(str(key), row) == row
    assert Counter(set(found.pairs())) == wanted
    if engine == "flink":
        assert found.pairs() == wanted
        assert found.dead == Counter((side, code) for side in ("left", "right") for code in POISON)
    assert set(found.dead) == {(side, code) for side in ("left", "right") for code in POISON}


def _restart(broker: Broker) -> None:
    broker.kill()
    broker.start()

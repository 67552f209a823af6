"""kill -9 at random points inside an uncommitted micro-batch: the file sink ends with exactly the batch answer."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra import process_tree as processes
from whenabouts.core.local import run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes in /proc"),
]

HERE = Path(__file__).parent
ROWS = 30
PATIENCE_S = 300


def _load(name: str) -> Any:
    spec = spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sides(folder: Path, files: int) -> list[pa.Table]:
    """Two sides of files, a file for each micro-batch; row ids tell file and side. Disorder within the lateness."""
    draw = np.random.default_rng(17)
    both = []
    for side, name in enumerate(("left", "right")):
        (folder / name).mkdir()
        tables = []
        for number in range(files):
            t_max = 1_600_000_000_000_000 + number * 10_000_000 + draw.integers(0, 12_000_000, ROWS)
            table = pa.table(
                {
                    "id": np.arange(ROWS) + 1000 * number + 100_000 * side,
                    "k": draw.integers(0, 5, ROWS),
                    "t_min": pa.array(t_max - draw.integers(0, 2_000_000, ROWS), pa.timestamp("us", "UTC")),
                    "t_max": pa.array(t_max, pa.timestamp("us", "UTC")),
                }
            )
            path = folder / name / f"{number}.parquet"
            pq.write_table(table, path)
            os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))
            tables.append(table)
        both.append(pa.concat_tables(tables))
    return both


class Job:
    """One start of the program."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = (folder / "log.txt").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "join_to_files.py"), str(folder)],
            stdout=self._log,
            stderr=self._log,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        below = processes.descendants(self.process.pid)
        processes.kill([self.process.pid, *below])
        self.process.wait()
        self._log.close()

    def workers(self) -> list[int]:
        """Python workers of its Spark: children of the daemon that forks them."""
        below = processes.descendants(self.process.pid)
        daemons = [pid for pid in below if "daemon pyspark.worker" in processes.command(pid)]
        return [child for pid in daemons for child in processes.children(pid)]

    def everything(self) -> list[int]:
        """The driver: Python, and the JVM below it with what it started."""
        return [self.process.pid, *processes.descendants(self.process.pid)]


def seen(folder: Path) -> Counter[int]:
    """How often each row was read, over all starts."""
    return Counter(int(line) for file in (folder / "seen").iterdir() for line in file.read_text().split())


def failures(folder: Path) -> list[str]:
    """The program's records of queries that failed and were restarted."""
    file = folder / "failures"
    return file.read_text().splitlines() if file.exists() else []


def committed(folder: Path, number: int) -> bool:
    return (folder / "checkpoint" / "commits" / str(number)).exists()


def wait_until_held(folder: Path, job: Job, batch: int) -> None:
    """Wait until a worker is in the trap, and with it an uncommitted micro-batch."""
    deadline = monotonic() + PATIENCE_S
    while not (folder / "held").exists():
        assert monotonic() < deadline, (folder / "log.txt").read_text()[-2000:]
        assert job.process.poll() is None, (folder / "log.txt").read_text()[-2000:]
        sleep(0.01)
    (folder / "held").unlink()
    assert not committed(folder, batch)


@dataclass(frozen=True)
class Kill:
    """What to kill, in which micro-batch, and where a worker is held until then."""

    victim: str
    batch: int
    place: str


def set_trap(folder: Path, kill: Kill | None) -> None:
    """Not too early: a micro-batch that is killed twice must not reach the second trap before it is replayed."""
    if kill is not None:
        (folder / "trap" / f"{kill.batch}-{kill.place}").touch()


def planned(victims: list[str], places: Sequence[str], chance: random.Random) -> list[Kill]:
    """A driver that starts again can be killed in the same micro-batch once more, workers only in a later one."""
    kills: list[Kill] = []
    batch = chance.randrange(2)
    for victim in victims:
        kills.append(Kill(victim, batch, chance.choice(places)))
        batch += chance.randrange(3) if victim == "driver" else 1 + chance.randrange(2)
    return kills


def survive(folder: Path, victims: list[str], chance: random.Random) -> None:
    program = _load("join_to_files")
    for name in ("seen", "trap"):
        (folder / name).mkdir()
    kills = planned(victims, program.PLACES, chance)
    print(kills)  # noqa: T201  # pytest shows it where the test fails
    tables = sides(folder, files=kills[-1].batch + 3)
    set_trap(folder, kills[0])
    with ExitStack() as jobs:
        job = jobs.enter_context(Job(folder))
        for kill, following in zip(kills, [*kills[1:], None], strict=True):
            wait_until_held(folder, job, kill.batch)
            sleep(chance.random() * 0.3)  # meanwhile the other tasks continue, some to their commit
            if kill.victim == "worker":
                set_trap(folder, following)  # before: the program starts the query again by itself
                processes.kill(job.workers())
            else:
                processes.kill(job.everything())
                assert not committed(folder, kill.batch)
                set_trap(folder, following)
                job = jobs.enter_context(Job(folder))
        assert job.process.wait(PATIENCE_S) == 0, (folder / "log.txt").read_text()[-2000:]
    assert len(failures(folder)) >= victims.count("worker")
    assert all(committed(folder, kill.batch) for kill in kills)
    times = seen(folder)
    assert set(times) == {row for table in tables for row in table["id"].to_pylist()}
    again = {row // 1000 % 100 for row, n in times.items() if n > 1}
    assert again >= {kill.batch for kill in kills}, "a killed micro-batch was not taken in again"
    told = pq.read_table(folder / "result.parquet").drop_columns(["event_time"])
    want = run(program.QUERY, tables).output
    assert want.num_rows > len(times)
    assert Counter(map(repr, told.cast(want.schema).to_pylist())) == Counter(map(repr, want.to_pylist()))


@pytest.mark.full
def test_three_kills(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201  # pytest shows it where the test fails
    survive(tmp_path, ["worker", "driver", "worker"], random.Random(seed))


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", range(5))
def test_twenty_kills(tmp_path: Path, number: int) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201  # as above
    survive(tmp_path, ["driver", "worker", "driver", "worker"], random.Random(seed))

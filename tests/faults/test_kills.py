"""kill -9 at random points inside an uncommitted micro-batch: the file sink ends with exactly the batch answer."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

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


processes = _load("processes")


def sides(folder: Path, files: int) -> list[pa.Table]:
    """Two sides of files, a file for each micro-batch; row ids tell file and side. Disorder inside the lateness."""
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
    """How often each row was taken in, over all starts."""
    return Counter(int(line) for file in (folder / "seen").iterdir() for line in file.read_text().split())


def bytes_seen(folder: Path) -> int:
    """Grows with every row that is taken in."""
    return sum(file.stat().st_size for file in os.scandir(folder / "seen"))


def failures(folder: Path) -> list[str]:
    """What the program said of queries that failed and were started again."""
    file = folder / "failures"
    return file.read_text().splitlines() if file.exists() else []


def committed(folder: Path, number: int) -> bool:
    return (folder / "checkpoint" / "commits" / str(number)).exists()


def begun(folder: Path, job: Job) -> Iterator[tuple[int, float]]:
    """Micro-batches as they begin to take in rows, with the seconds since the one before."""
    last, known = monotonic(), bytes_seen(folder)
    deadline = last + PATIENCE_S
    while True:
        assert monotonic() < deadline, (folder / "log.txt").read_text()[-2000:]
        assert job.process.poll() is None, (folder / "log.txt").read_text()[-2000:]
        now = bytes_seen(folder)
        if now > known:
            number = max((int(f.name) for f in (folder / "checkpoint" / "offsets").glob("[0-9]*")), default=-1)
            if not committed(folder, number):
                known = now
                yield number, monotonic() - last
                last = monotonic()
        sleep(0.01)


def kill(folder: Path, job: Job, victim: str, chance: random.Random) -> int | None:
    """Kill the program, or its workers, inside a micro-batch that is not committed; returns its number.

    None where the driver got to the commit before it was dead.
    """
    skip = chance.randrange(2)
    for number, seconds in begun(folder, job):
        if skip:
            skip -= 1
            continue
        sleep(chance.random() * min(seconds, 1.0) * 0.7)
        known = len(failures(folder))
        if committed(folder, number):
            continue  # it was too late: take the next
        if victim == "driver":
            processes.kill(job.everything())
            return None if committed(folder, number) else number
        processes.kill(job.workers())
        while len(failures(folder)) == known and not committed(folder, number):
            sleep(0.01)
        if not committed(folder, number):
            return number
        # No worker had a task just then.
    raise AssertionError("unreachable")


def survive(folder: Path, victims: list[str], chance: random.Random) -> None:
    (folder / "seen").mkdir()
    tables = sides(folder, files=3 * len(victims))
    killed, waiting = [], list(victims)
    while True:
        with Job(folder) as job:
            alive = True
            while waiting and alive:
                number = kill(folder, job, waiting[0], chance)
                alive = waiting[0] != "driver"
                if number is not None:
                    killed.append(number)
                    waiting.pop(0)
            if alive:
                assert job.process.wait(PATIENCE_S) == 0, (folder / "log.txt").read_text()[-2000:]
                break
    assert len(failures(folder)) >= victims.count("worker")
    assert all(committed(folder, number) for number in killed)
    times = seen(folder)
    assert set(times) == {row for table in tables for row in table["id"].to_pylist()}
    replayed = {row for row, n in times.items() if n > 1}
    assert len({row // 1000 % 100 for row in replayed}) >= len(set(killed)), (
        "a killed micro-batch was not taken in again"
    )
    told = pq.read_table(folder / "result.parquet").drop_columns(["event_time"])
    want = run(_load("join_to_files").QUERY, tables).output
    assert want.num_rows > len(times)
    assert Counter(map(repr, told.cast(want.schema).to_pylist())) == Counter(map(repr, want.to_pylist()))


def test_three_kills(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201  # pytest shows it where the test fails
    survive(tmp_path, ["worker", "driver", "worker"], random.Random(seed))


@pytest.mark.full
@pytest.mark.parametrize("number", range(5))
def test_twenty_kills(tmp_path: Path, number: int) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201  # as above
    survive(tmp_path, ["driver", "worker", "driver", "worker"], random.Random(seed))

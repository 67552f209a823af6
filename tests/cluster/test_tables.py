"""Streams from Iceberg into Delta and from Delta into Iceberg, the programs of docs/spark.md, while their processes are
killed: the table has the rows of the batch, each once."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import whenabouts as wa
from infra.jars import NotFetchedError, of_delta, of_iceberg
from infra.process_tree import children, command, descendants, kill
from infra.processes import YOUNG, Server, wait_for
from whenabouts.conformance import multiset

pytestmark = [
    pytest.mark.slow,
    pytest.mark.cluster,
    pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes in /proc"),
]

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "spark.md"
START_US, FILE_US, FILES, ROWS = 1_600_000_000_000_000, 10_000_000, 6, 40
PATIENCE_S = 300


class Life:
    """Starts of one program; FOLDER has all that outlives it."""

    def __init__(self, folder: Path, program: str, jars: list[Path]) -> None:
        self.folder = folder
        arguments = [str(TESTS / "infra" / "table_stream.py"), str(folder), program, *map(str, jars)]
        env = {"PYTHONPATH": os.pathsep.join(sys.path), "SPARK_SUBMIT_OPTS": YOUNG}
        self.server = Server([sys.executable, *arguments], folder, name=f"log-{Path(program).stem}", env=env)

    def start(self) -> None:
        self.server.start()

    def await_end(self) -> None:
        wait_for(lambda: not self.server.alive, seconds=PATIENCE_S, told=self.server.tail)

    def trap(self, batch: int, place: str) -> None:
        (self.folder / "trap" / f"{batch}-{place}").touch()

    def await_held(self, batch: int) -> None:
        """Wait until a worker is in the trap; its micro-batch is not committed then."""
        held = self.folder / "held"
        wait_for(lambda: held.exists() or not self.server.alive, seconds=PATIENCE_S, told=self.server.tail)
        assert held.exists(), self.server.tail()
        held.unlink()
        assert self.committed()[-1:] == [batch - 1]

    def kill_workers(self) -> None:
        below = descendants(self.server.pid)
        daemons = [pid for pid in below if "daemon pyspark.worker" in command(pid)]
        workers = [child for pid in daemons for child in children(pid)]
        assert workers, [command(pid) for pid in below]
        kill(workers)

    def kill_driver(self) -> None:
        kill([self.server.pid, *descendants(self.server.pid)])
        self.server.kill()

    def committed(self) -> list[int]:
        """The micro-batches that the checkpoint has."""
        return sorted(int(file.name) for file in self._checkpoint("commits") if file.name.isdigit())

    def forget_the_commit_of(self, batch: int) -> None:
        """As if the driver had been killed once the table had this micro-batch, and the checkpoint not yet."""
        for kind, first in (("commits", batch), ("offsets", batch + 1)):
            for file in self._checkpoint(kind):
                number = file.name.strip(".").split(".")[0]
                if number.isdigit() and int(number) >= first:
                    file.unlink()

    def _checkpoint(self, kind: str) -> Iterator[Path]:
        return self.folder.glob(f"checkpoints/*/{kind}/*")


def _program(number: int, folder: Path) -> Path:
    """A program of the page. A micro-batch takes one file, and the stream ends with its input."""
    section = PAGE.read_text(encoding="utf-8").partition("\n## Tables of Delta and Iceberg\n")[2].partition("\n## ")[0]
    code: str = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[number]
    assert code.count(", 100)") == 1
    code = code.replace(", 100)", ", 1)").replace("/data", str(folder))
    file = folder / "program.py"
    file.write_text(re.sub(r"\.(start|toTable)\(", r".trigger(availableNow=True).\1(", code), encoding="utf-8")
    return file


def _survives(folder: Path, number: int, tables: dict[str, list[pa.Table]], *, trap: str) -> pa.Table:
    """The rows of the table after three kills, the first in a trap at this place."""
    pytest.importorskip("pyspark")
    try:
        jars = [*of_delta(), *of_iceberg()]
    except NotFetchedError as missing:
        pytest.skip(str(missing))
    for name, files in tables.items():
        (folder / "tables" / name).mkdir(parents=True)
        for at, table in enumerate(files):
            pq.write_table(table, folder / "tables" / name / f"{at}.parquet")
    (folder / "trap").mkdir()
    maker = Life(folder, "", jars)
    maker.start()
    life = Life(folder, str(_program(number, folder)), jars)
    maker.await_end()
    try:
        life.trap(1, trap)
        life.start()
        life.await_held(1)
        life.trap(2, "done")
        life.kill_workers()  # the program starts the query again by itself
        life.await_held(2)
        life.trap(4, "done")
        life.kill_driver()
        life.start()
        life.await_held(4)
        life.kill_driver()
        life.forget_the_commit_of(3)
        assert life.committed() == [0, 1, 2]
        life.start()
        life.await_end()
    finally:
        if life.server.alive:
            life.kill_driver()
    assert (folder / "failures").exists(), "no query failed"
    assert (folder / "result.parquet").exists(), life.server.tail()
    return pq.read_table(folder / "result.parquet")


def _check(written: pa.Table, batch: pa.Table) -> None:
    assert batch.num_rows > 50
    rows = written.select(batch.column_names).cast(batch.schema)
    multiset.assert_same(multiset.rows(rows), multiset.rows(batch), "the table against a batch")


def _events(seed: int, longest_us: int) -> list[pa.Table]:
    draw = np.random.default_rng(seed)
    files = []
    for number in range(FILES):
        t_max = START_US + number * FILE_US + draw.integers(0, FILE_US + 2_000_000, ROWS)
        columns = {"region": draw.integers(0, 3, ROWS), "id": 1000 * number + np.arange(ROWS)}
        times = {"t_min": t_max - draw.integers(0, longest_us, ROWS), "t_max": t_max}
        files.append(pa.table(columns | {name: pa.array(t, pa.timestamp("us", "UTC")) for name, t in times.items()}))
    return files


@pytest.mark.full
def test_pairs_from_iceberg_into_delta(tmp_path: Path) -> None:
    sides = {
        f"lake.field.{name}": _events(seed, longest)
        for seed, (name, longest) in enumerate([("seismic", 500_000), ("acoustic", 2_000_000)])
    }
    written = _survives(tmp_path, 0, sides, trap="output")
    batch = wa.timing_join(
        *map(pa.concat_tables, sides.values()), on="region", left_time=wa.Interval("t_min", "t_max"),
        right_time=wa.Interval("t_min", "t_max"), condition=wa.within("2 s", confidence=0.6),
    )  # fmt: skip
    _check(written, batch)


def test_runs_from_delta_into_iceberg(tmp_path: Path) -> None:
    draw = np.random.default_rng(5)
    files = []
    for number in range(FILES):
        t = START_US + number * FILE_US + np.sort(draw.choice(FILE_US // 100_000, ROWS, replace=False)) * 100_000
        lamp = draw.choice(["on", "off"], ROWS)
        files.append(
            pa.table({"room": draw.choice(["a", "b"], ROWS), "t": pa.array(t, pa.timestamp("us", "UTC")), "lamp": lamp})
        )
    heartbeats = [
        pa.table({"room": ["clock"], "t": pa.array([at], pa.timestamp("us", "UTC")), "lamp": ["on"]})
        for at in (START_US + minutes * 60_000_000 for minutes in (5, 10))  # they move the watermark past all readings
    ]
    written = _survives(tmp_path, 1, {"readings": [*files, *heartbeats]}, trap="done")  # no run ends so early
    batch = wa.coalesce(pa.concat_tables(files), time="t", group="room", values="lamp")
    last = pa.compute.max(batch.filter(pa.compute.field("room") == "a")["valid_to"]).as_py()
    other = pa.compute.max(batch.filter(pa.compute.field("room") == "b")["valid_to"]).as_py()
    ended = ~((pa.compute.field("room") == "a") & (pa.compute.field("valid_to") == last))
    ended &= ~((pa.compute.field("room") == "b") & (pa.compute.field("valid_to") == other))
    _check(written.filter(pa.compute.field("room") != "clock"), batch.filter(ended))  # the last runs may still grow

"""A standalone cluster of the pip package, whose Python has Flink and numba, and not whenabouts: `-pyfs` brings it.

What it brings is an archive, or the wheel that WHENABOUTS_WHEEL names.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyflink
import pytest
import yaml

from whenabouts.core import Point, within
from whenabouts.core.local import timing_join
from whenabouts.core.shipping import archive

pytestmark = [pytest.mark.slow, pytest.mark.full, pytest.mark.filterwarnings("ignore")]

HOME = Path(pyflink.__path__[0])


class Cluster:
    """Where a cluster is, and how jobs get to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rest_port = free_port()
        (folder / "conf").mkdir()
        (folder / "logs").mkdir()
        for shipped in (HOME / "conf").iterdir():
            (folder / "conf" / shipped.name).write_bytes(shipped.read_bytes())
        options = yaml.safe_load((HOME / "conf" / "config.yaml").read_text(encoding="utf-8"))
        options["jobmanager"]["rpc"]["port"] = free_port()
        options["jobmanager"]["memory"]["process"]["size"] = "1024m"
        options["taskmanager"]["memory"]["process"]["size"] = "1400m"
        options["taskmanager"]["numberOfTaskSlots"] = 1
        options.setdefault("rest", {}).update({"port": self.rest_port, "bind-port": self.rest_port})
        (folder / "conf" / "config.yaml").write_text(yaml.safe_dump(options, width=10_000), encoding="utf-8")

    @property
    def environment(self) -> dict[str, str]:
        """What Flink's scripts go by; whenabouts is not on the path of anything they start."""
        plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        own = {"FLINK_CONF_DIR": str(self.folder / "conf"), "FLINK_LOG_DIR": str(self.folder / "logs")}
        return plain | own | {"HOME": str(self.folder), "TMPDIR": str(self.folder)}

    def rest(self, path: str) -> Any:
        """What Flink's REST interface answers."""
        with urllib.request.urlopen(f"http://localhost:{self.rest_port}{path}", timeout=10) as answer:
            return json.load(answer)

    def run(self, job: Path, *arguments: str, shipped: str, **conf: str) -> subprocess.CompletedProcess[str]:
        """`flink run` of a job of parallelism 2, waited for."""
        options = [f"-D{name.replace('__', '.').replace('_', '-')}={value}" for name, value in conf.items()]
        python = ["-pyexec", sys.executable, "-pyclientexec", sys.executable, "-pyfs", shipped]
        command = [str(HOME / "bin" / "flink"), "run", "-p", "2", *options, *python, "-py", str(job), *arguments]
        return subprocess.run(
            command, env=self.environment, cwd=self.folder, capture_output=True, text=True, timeout=480, check=False
        )


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[Cluster]:
    """A cluster of two task managers with a slot each, up until the block ends."""
    cluster = Cluster(folder)
    with ExitStack() as started:
        for script in ("jobmanager", "taskmanager", "taskmanager"):
            started.enter_context(_process(cluster, script))
        deadline = time.monotonic() + 120
        while _slots(cluster) < 2:
            assert time.monotonic() < deadline, [path.read_text()[-1000:] for path in folder.glob("logs/*")]
            time.sleep(0.2)
        yield cluster


def _slots(cluster: Cluster) -> int:
    try:
        return int(cluster.rest("/overview")["slots-available"])
    except OSError:
        return 0


@contextmanager
def _process(cluster: Cluster, script: str) -> Iterator[None]:
    """One of Flink's processes, in a session of its own, so that what it starts ends with it."""
    command = [str(HOME / "bin" / f"{script}.sh"), "start-foreground"]
    out = cluster.folder / "logs" / f"{script}-{time.monotonic_ns()}.out"
    with out.open("wb") as log:
        process = subprocess.Popen(
            command, env=cluster.environment, stdout=log, stderr=log, cwd=cluster.folder, start_new_session=True
        )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as asked:
        asked.bind(("localhost", 0))
        port: int = asked.getsockname()[1]
        return port


def test_two_task_managers_share_a_job_that_brings_the_package_along(tmp_path: Path) -> None:
    rows = 2000
    tables = {}
    for seed, name in enumerate(("left", "right")):
        draw = np.random.default_rng(seed)
        columns = {"id": np.arange(rows), "k": draw.integers(0, 50, rows), "t": draw.integers(0, 10**9, rows)}
        tables[name] = pa.table(columns)
        (tmp_path / name).mkdir()
        pq.write_table(tables[name], tmp_path / name / "rows.parquet", row_group_size=500)
    times: Any = {"left_time": Point("t"), "right_time": Point("t")}
    expected = timing_join(tables["left"], tables["right"], on="k", **times, condition=within("1 s", confidence=1))
    (tmp_path / "cluster").mkdir()
    shipped = os.environ.get("WHENABOUTS_WHEEL") or archive(tmp_path)
    with standalone_cluster(tmp_path / "cluster") as cluster:
        job = cluster.run(
            Path(__file__).with_name("cluster_job.py"), str(tmp_path), shipped=shipped,
            python__fn_execution__bundle__size="1", execution__checkpointing__interval="500ms",
        )  # fmt: skip
        assert job.returncode == 0, job.stdout[-2000:] + job.stderr[-2000:]
        (done,) = cluster.rest("/jobs/overview")["jobs"]
        assert (done["name"], done["state"]) == ("shipped", "FINISHED")
    lines = [line.split() for part in (tmp_path / "out").glob("*/part-*") for line in part.read_text().splitlines()]
    ids = zip(expected["id_left"].to_pylist(), expected["id_right"].to_pylist(), strict=True)
    assert Counter((int(line[0]), int(line[1])) for line in lines) == Counter(ids)
    assert len({line[2] for line in lines}) == 2, "one task manager had it all"
    assert all("python-dist-" in line[3] for line in lines), lines[0]  # where Flink unpacks what a job brings

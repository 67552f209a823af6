"""A standalone Spark cluster of the pip package: a master and workers, each a process that can be killed."""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark

from infra.processes import Server, free_port, wait_for

HOME = Path(pyspark.__path__[0])


class SparkCluster:
    """Where a cluster is, and how applications get to it. Its workers have a core each, and not whenabouts."""

    def __init__(self, folder: Path, *, workers: int = 2) -> None:
        folder.mkdir(parents=True)
        self.folder, port, self._ui = folder, free_port(), free_port()
        self.address = f"spark://localhost:{port}"
        master = ["--host", "localhost", "--port", str(port), "--webui-port", str(self._ui)]
        self.master = self._server("org.apache.spark.deploy.master.Master", *master, name="master")
        self.workers = [
            self._server(
                "org.apache.spark.deploy.worker.Worker", "--host", "localhost", "--webui-port", "0", "--cores", "1",
                "--memory", "1g", "--work-dir", str(folder / f"work-{n}"), self.address, name=f"worker-{n}",
            )
            for n in range(workers)
        ]  # fmt: skip

    def _server(self, main: str, *arguments: str, name: str) -> Server:
        return Server([str(HOME / "bin" / "spark-class"), main, *arguments], self.folder, name=name, env=self._plain())

    def _plain(self) -> dict[str, str]:
        plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return plain | {"SPARK_HOME": str(HOME), "PYSPARK_PYTHON": sys.executable, "SPARK_DAEMON_MEMORY": "256m"}

    def start(self) -> None:
        """Start what is not running, and wait until all workers are there."""
        if not self.master.alive:
            self.master.start()
        for worker in self.workers:
            if not worker.alive:
                worker.start()
        wait_for(lambda: self._alive() >= len(self.workers), seconds=120, told=self.told)

    def stop(self) -> None:
        """End all of it."""
        for server in (*self.workers, self.master):
            server.stop()

    def told(self) -> str:
        """The ends of all logs."""
        logs = [*self.folder.glob("*.log"), *self.folder.glob("work-*/*/*/stderr")]
        return "\n".join(f"== {path}\n{path.read_text(errors='replace')[-1500:]}" for path in logs)

    def application(
        self, script: Path, *arguments: str, shipped: str, jars: Sequence[Path] = (), **conf: str
    ) -> Server:
        """`spark-submit` of an application, whose Python has whenabouts from `shipped` alone; not started yet. (Python
        that Spark's driver starts by itself looks at PYTHONPATH, and not at --py-files.)

        `conf`: of Spark, `__` for a dot.
        """
        options = [each for name, value in conf.items() for each in ("--conf", f"{name.replace('__', '.')}={value}")]
        more = ["--jars", ",".join(map(str, jars))] if jars else []
        submit = [str(HOME / "bin" / "spark-submit"), "--master", self.address, "--executor-memory", "1g"]
        command = [*submit, "--driver-memory", "1g", *options, *more, "--py-files", shipped, str(script), *arguments]
        return Server(
            command, self.folder, name=f"application-{script.stem}", env=self._plain() | {"PYTHONPATH": shipped}
        )

    def _alive(self) -> int:
        try:
            with urllib.request.urlopen(f"http://localhost:{self._ui}/json/", timeout=10) as answer:
                told: dict[str, Any] = json.load(answer)
        except OSError:
            return 0
        return int(told["aliveworkers"])


@contextmanager
def running_spark(folder: Path, *, workers: int = 2) -> Iterator[SparkCluster]:
    """A cluster until the block ends."""
    cluster = SparkCluster(folder, workers=workers)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()

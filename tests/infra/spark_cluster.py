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

from infra.machines import Part, machine
from infra.processes import YOUNG, Server, free_port, installed, wait_for

HOME = Path(pyspark.__path__[0])


class SparkCluster:
    """The address of a cluster, and how applications are submitted to it. Its workers have one core each and this
    environment's packages; the driver runs in a process of this machine."""

    def __init__(self, folder: Path, *, workers: int = 2) -> None:
        folder.mkdir(parents=True)
        self.folder, port, self._ui = folder, free_port(), free_port()
        self._machine = machine("pyspark")
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

    def _server(self, main: str, *arguments: str, name: str) -> Part:
        home = self._machine.packages / "pyspark"
        own = {"SPARK_HOME": str(home), "PYSPARK_PYTHON": self._machine.python}
        command = [str(home / "bin" / "spark-class"), main, *arguments]
        return self._machine.launch(command, self.folder, name=name, env=self._environment() | own)

    def _environment(self) -> dict[str, str]:
        young = {"SPARK_DAEMON_JAVA_OPTS": YOUNG, "SPARK_SUBMIT_OPTS": YOUNG}
        return {"SPARK_DAEMON_MEMORY": "256m", "PYTHONPATH": os.pathsep.join(installed())} | young

    def start(self) -> None:
        """Start the processes that do not run, and wait until all workers are registered."""
        if not self.master.alive:
            self.master.start()
        for worker in self.workers:
            if not worker.alive:
                worker.start()
        wait_for(lambda: self._alive() >= len(self.workers), seconds=300, told=self.told)

    def stop(self) -> None:
        """End all of it."""
        for server in (*self.workers, self.master):
            server.stop()

    def told(self) -> str:
        """The ends of all logs."""
        logs = [*self.folder.glob("*.log"), *self.folder.glob("work-*/*/*/stderr")]
        return "\n".join(f"== {path}\n{path.read_text(errors='replace')[-1500:]}" for path in logs)

    def application(self, script: Path, *arguments: str, jars: Sequence[Path] = (), **conf: str) -> Server:
        """`spark-submit` of an application; not started yet. `conf`: of Spark, `__` for a dot."""
        conf = {"spark__executor__extraJavaOptions": YOUNG} | conf
        options = [each for name, value in conf.items() for each in ("--conf", f"{name.replace('__', '.')}={value}")]
        more = ["--jars", ",".join(map(str, jars))] if jars else []
        submit = [str(HOME / "bin" / "spark-submit"), "--master", self.address, "--executor-memory", "1g"]
        command = [*submit, "--driver-memory", "1g", *options, *more, str(script), *arguments]
        python = {"PYSPARK_PYTHON": self._machine.python, "PYSPARK_DRIVER_PYTHON": sys.executable}
        env = self._environment() | {"SPARK_HOME": str(HOME)} | python
        return Server(command, self.folder, name=f"application-{script.stem}", env=env)

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

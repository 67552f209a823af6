"""A standalone Flink cluster of the pip package: a job manager and task managers, each a process that can be killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyflink
import yaml

from infra.machines import Part, machine
from infra.processes import YOUNG, free_port, installed, wait_for

HOME = Path(pyflink.__path__[0])


class FlinkCluster:
    """The address of a cluster, and how jobs are submitted to it; `options`: of Flink's configuration, by group."""

    def __init__(self, folder: Path, *, task_managers: int = 2, options: dict[str, Any] | None = None) -> None:
        self.folder, self.rest_port, self._task_managers = folder, free_port(), task_managers
        self._machine = machine("pyflink")
        for name in ("conf", "logs"):
            (folder / name).mkdir(parents=True)
        for shipped in (HOME / "conf").iterdir():
            (folder / "conf" / shipped.name).write_bytes(shipped.read_bytes())
        conf = yaml.safe_load((HOME / "conf" / "config.yaml").read_text(encoding="utf-8"))
        conf["jobmanager"]["rpc"]["port"] = free_port()
        conf["jobmanager"]["memory"]["process"]["size"] = "1024m"
        conf["taskmanager"]["memory"]["process"]["size"] = "1400m"
        conf["taskmanager"]["numberOfTaskSlots"] = 1
        conf["env"]["java"]["opts"]["all"] += f" {YOUNG}"
        conf.setdefault("rest", {}).update({"port": self.rest_port, "bind-port": self.rest_port})
        for group, values in (options or {}).items():
            conf.setdefault(group, {}).update(values)
        (folder / "conf" / "config.yaml").write_text(yaml.safe_dump(conf, width=10_000), encoding="utf-8")
        self.job_manager = self._server("jobmanager", "jobmanager")
        self.task_managers = [self._server("taskmanager", f"taskmanager-{n}") for n in range(task_managers)]

    def _server(self, script: str, name: str) -> Part:
        command = [str(self._machine.packages / "pyflink" / "bin" / f"{script}.sh"), "start-foreground"]
        return self._machine.launch(command, self.folder, name=name, env=self._environment)

    def sql_gateway(self, jar: Path, port: int) -> Part:
        """Flink's SQL gateway in front of this cluster, not started yet. Its script finds the JAR in a folder that also
        has what the pip package brings."""
        folder = self.folder / "opt"
        folder.mkdir()
        for archive in (*(HOME / "opt").iterdir(), jar):
            (folder / archive.name).symlink_to(archive)
        rest = [f"-Dsql-gateway.endpoint.rest.{name}={port}" for name in ("port", "bind-port")]
        command = [str(self._machine.packages / "pyflink" / "bin" / "sql-gateway.sh"), "start-foreground"]
        environment = self._environment | {"FLINK_OPT_DIR": str(folder)}
        command += ["-Dsql-gateway.endpoint.rest.address=localhost", *rest]
        return self._machine.launch(command, self.folder, name="sql-gateway", env=environment)

    @property
    def _environment(self) -> dict[str, str]:
        """The environment of Flink's scripts. Only jobs define where whenabouts is."""
        own = {"FLINK_CONF_DIR": str(self.folder / "conf"), "FLINK_LOG_DIR": str(self.folder / "logs")}
        return own | {"HOME": str(self.folder), "TMPDIR": str(self.folder), "PYTHONPATH": ""}

    def start(self) -> None:
        """Start the processes that do not run, and wait until all slots are available."""
        for server in (self.job_manager, *self.task_managers):
            if not server.alive:
                server.start()
        wait_for(lambda: self._slots() >= self._task_managers, seconds=300, told=self.told)

    def keep_up(self) -> None:
        """Restart task managers that have ended by themselves, as a supervisor would."""
        for server in self.task_managers:
            if not server.alive:
                server.start()

    def stop(self) -> None:
        """End all of it."""
        for server in (*self.task_managers, self.job_manager):
            server.stop()

    def told(self) -> str:
        """The ends of all logs."""
        logs = [*self.folder.glob("*.log"), *(self.folder / "logs").glob("*")]
        return "\n".join(f"== {path.name}\n{path.read_text(errors='replace')[-1500:]}" for path in logs)

    def rest(self, path: str) -> Any:
        """The answer of Flink's REST interface."""
        with urllib.request.urlopen(f"http://localhost:{self.rest_port}{path}", timeout=60) as answer:
            return json.load(answer)

    def run(self, job: Path, *arguments: str, shipped: str | None = None, more: Sequence[str] = (), **conf: str) -> str:
        """`flink run` of a job of parallelism 2, whose Python has whenabouts from `shipped` alone, or (None) installed.

        `more`: of the command line; `conf`: options, `__` for a dot and `_` for a dash. Returns what it printed.
        """
        roots = os.pathsep.join(installed())
        environment = os.environ | self._environment | ({} if shipped else {"PYTHONPATH": roots})
        options = [f"-D{name.replace('__', '.').replace('_', '-')}={value}" for name, value in conf.items()]
        brings = ["-pyfs", shipped] if shipped else [f"-Dpython.pythonpath={roots}"]
        python = ["-pyexec", self._machine.python, "-pyclientexec", sys.executable, *brings]
        flink = [str(HOME / "bin" / "flink"), "run", "-p", "2", *options, *more, *python, "-py", str(job), *arguments]
        done = subprocess.run(
            flink, env=environment, cwd=self.folder, capture_output=True, text=True, timeout=480, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr[-1000:]
        return done.stdout

    def has_a_job(self) -> bool:
        """Whether a job has come; False if there is no answer yet."""
        try:
            return bool(self.rest("/jobs")["jobs"])
        except OSError:
            return False

    def _slots(self) -> int:
        try:
            return int(self.rest("/overview")["slots-total"])
        except OSError:
            return 0


@contextmanager
def running_flink(folder: Path, **options: Any) -> Iterator[FlinkCluster]:
    """A cluster until the block ends."""
    cluster = FlinkCluster(folder, **options)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()

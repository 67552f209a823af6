"""The examples as jobs on clusters whose parts can be killed: one shape for both engines."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from infra.jars import of_flink, of_spark
from infra.processes import Server, wait_for
from whenabouts.core.metrics import REJECTED, ROWS_IN, state_rows

if TYPE_CHECKING:  # either engine may be missing
    from infra.flink_cluster import FlinkCluster
    from infra.spark_cluster import SparkCluster

EXAMPLES = Path(__file__).parents[2] / "examples"
STATE = "state_rows"


class Job(Protocol):
    """A job that runs until it is stopped, on a cluster."""

    def start(self) -> None:
        """Start it, or restart it from its last checkpoint."""

    def kill_worker(self) -> None:
        """kill -9 a worker with everything that it runs, and start another in its place."""

    def kill_leader(self) -> None:
        """kill -9 the leader of the job (driver, job manager), and start the job again."""

    def keep_up(self) -> None:
        """Restart it if it has ended by itself, as a supervisor would."""

    def metrics(self) -> list[dict[str, int]]:
        """The engine's metrics of the join, the latest last: `rows_in` and `rows_rejected` so far, and `state_rows` of
        both sides. (Spark reports the buckets of each step, Flink answers each request.)"""

    def told(self) -> str:
        """The ends of its logs."""


class SparkJob:
    """The example of Spark on a standalone cluster."""

    def __init__(self, folder: Path, cluster: SparkCluster, brokers: str) -> None:
        self._cluster = cluster
        self._application: Server = cluster.application(
            EXAMPLES / "kafka_spark.py", brokers, str(folder / "checkpoints"), jars=of_spark(),
            spark__sql__shuffle__partitions="2", spark__ui__enabled="false", spark__log__level="WARN",
        )  # fmt: skip

    def start(self) -> None:
        """Submit the application."""
        self._application.start()

    def kill_worker(self) -> None:
        """A worker with its executor and the executor's Python."""
        self._cluster.workers[0].kill()
        self._cluster.start()

    def kill_leader(self) -> None:
        """The driver."""
        self._application.kill()
        self._application.start()

    def keep_up(self) -> None:
        """A driver that starts or polls while there is no broker gives up after a while."""
        if not self._application.alive:
            self._application.start()

    def stop(self) -> None:
        """End the application."""
        self._application.stop()

    def metrics(self) -> list[dict[str, int]]:
        """Those of each micro-batch, as `PrintProgress` prints them."""
        found, total = [], dict.fromkeys((ROWS_IN, REJECTED), 0)
        for line in self._application.log.read_text(errors="replace").splitlines():
            if said := _OF_A_STEP.match(line):
                rows_in, rejected, held = (int(number.replace(",", "")) for number in said.groups())
                total = {ROWS_IN: total[ROWS_IN] + rows_in, REJECTED: total[REJECTED] + rejected}
                found.append(total | {STATE: held})
        return found

    def told(self) -> str:
        """Logs of all parts."""
        return self._cluster.told()


_OF_A_STEP = re.compile(r"pairs \d+: ([\d,]+) rows in, .* out, ([\d,]+) rejected, .* state ([\d,]+) rows,")


class FlinkJob:
    """The example of Flink on a standalone cluster. Without high availability a job ends with its job manager; it is
    then submitted again, from its last checkpoint."""

    def __init__(self, folder: Path, cluster: FlinkCluster, brokers: str) -> None:
        self._cluster, self._brokers, self._checkpoints = cluster, brokers, folder / "checkpoints"
        self._told: list[dict[str, int]] = []

    def start(self) -> None:
        """Submit the job."""
        done = max(self._checkpoints.glob("*/chk-*/_metadata"), key=os.path.getmtime, default=None)
        again = [] if done is None else ["-s", done.parent.as_uri()]
        (jar,) = of_flink()
        self._cluster.run(
            EXAMPLES / "kafka_flink.py", self._brokers, more=["-d", "-C", jar.as_uri(), *again],
            execution__checkpointing__dir=self._checkpoints.as_uri(), execution__checkpointing__storage="filesystem",
            execution__checkpointing__externalized_checkpoint_retention="RETAIN_ON_CANCELLATION",
            restart_strategy__type="fixed-delay", restart_strategy__fixed_delay__attempts="1000",
            restart_strategy__fixed_delay__delay="1s",
        )  # fmt: skip

    def kill_worker(self) -> None:
        """A task manager with its Python."""
        self._cluster.task_managers[0].kill()
        self._cluster.start()

    def kill_leader(self) -> None:
        """The job manager."""
        self._cluster.job_manager.kill()
        self._cluster.start()
        self.start()

    def keep_up(self) -> None:
        """Flink does that itself: see the restart strategy. But a task manager may end itself if Python ends while it
        is being closed; it is then restarted."""
        self._cluster.keep_up()

    def stop(self) -> None:
        """It ends with its cluster."""

    def metrics(self) -> list[dict[str, int]]:
        """Those of each request; a starting job returns none."""
        found: dict[str, int] = {}
        wanted = (ROWS_IN, REJECTED, state_rows("left"), state_rows("right"))
        try:
            for job in self._cluster.rest("/jobs")["jobs"]:
                for vertex in self._cluster.rest(f"/jobs/{job['id']}")["vertices"]:
                    found |= self._counts(f"/jobs/{job['id']}/vertices/{vertex['id']}/subtasks/metrics", wanted)
        except OSError:
            return self._told
        if ROWS_IN in found:
            held = found.get(state_rows("left"), 0) + found.get(state_rows("right"), 0)  # Flink does not report zeros
            self._told.append({ROWS_IN: found[ROWS_IN], REJECTED: found.get(REJECTED, 0), STATE: held})
        return self._told

    def _counts(self, where: str, wanted: tuple[str, ...]) -> dict[str, int]:
        """Those of the join, summed over its subtasks; Flink prefixes names with the operator."""
        told = (each["id"] for each in self._cluster.rest(where))
        names = {name: name.rpartition(".")[2] for name in told if name.startswith("timing-join.")}
        ours = ",".join(name for name, plain in names.items() if plain in wanted)
        found = self._cluster.rest(f"{where}?get={ours}") if ours else []
        return {names[each["id"]]: int(each["sum"]) for each in found}

    def told(self) -> str:
        """Logs of all parts."""
        return self._cluster.told()


@contextmanager
def running_job(engine: str, folder: Path, brokers: str) -> Iterator[Job]:
    """The example of an engine, started on a cluster of its own."""
    if engine == "spark":
        from infra.spark_cluster import running_spark

        with running_spark(folder / "spark") as spark:
            spark_job = SparkJob(folder, spark, brokers)
            spark_job.start()
            try:
                yield spark_job
            finally:
                spark_job.stop()
    else:
        from infra.flink_cluster import running_flink

        with running_flink(folder / "flink", options=OFTEN) as flink:
            flink_job = FlinkJob(folder, flink, brokers)
            flink_job.start()
            wait_for(flink.has_a_job, seconds=300, told=flink.told)
            yield flink_job


OFTEN = {
    "metrics": {"fetcher": {"update-interval": "500 ms"}},
    "heartbeat": {"interval": "1 s"},
}
"""Flink checks for lost processes every ten seconds, and requests metrics as often."""


def run_alone(engine: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The example of an engine as a plain script, without a cluster."""
    script = EXAMPLES / f"kafka_{engine}.py"
    return subprocess.run(
        [sys.executable, str(script), *arguments], capture_output=True, text=True, timeout=300, check=False
    )

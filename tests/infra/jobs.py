"""The examples as jobs on clusters whose parts can be killed: one shape for both engines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from infra.jars import of_flink, of_spark
from infra.processes import Server, wait_for
from whenabouts.core.shipping import archive

if TYPE_CHECKING:  # either engine may be missing
    from infra.flink_cluster import FlinkCluster
    from infra.spark_cluster import SparkCluster

EXAMPLES = Path(__file__).parents[2] / "examples"


class Job(Protocol):
    """A job that runs until it is stopped, on a cluster."""

    def start(self) -> None:
        """Start it, or start it again from where its checkpoints say."""

    def kill_worker(self) -> None:
        """kill -9 a worker with everything that it runs, and start another in its place."""

    def kill_leader(self) -> None:
        """kill -9 what leads the job (driver, job manager), and start the job again."""

    def told(self) -> str:
        """What its logs say."""


class SparkJob:
    """The example of Spark on a standalone cluster."""

    def __init__(self, folder: Path, cluster: SparkCluster, brokers: str) -> None:
        self._cluster = cluster
        self._application: Server = cluster.application(
            EXAMPLES / "kafka_spark.py", brokers, str(folder / "checkpoints"), shipped=archive(folder),
            jars=of_spark(), spark__sql__shuffle__partitions="2",
        )  # fmt: skip

    def start(self) -> None:
        """Submit the application."""
        self._application.start()

    def kill_worker(self) -> None:
        """A worker with its executor and that one's Python."""
        self._cluster.workers[0].kill()
        self._cluster.start()

    def kill_leader(self) -> None:
        """The driver."""
        self._application.kill()
        self._application.start()

    def stop(self) -> None:
        """End the application."""
        self._application.stop()

    def told(self) -> str:
        """Logs of all parts."""
        return self._cluster.told()


class FlinkJob:
    """The example of Flink on a standalone cluster. Without high availability a job ends with its job manager: it is
    submitted again, from its last checkpoint."""

    def __init__(self, folder: Path, cluster: FlinkCluster, brokers: str) -> None:
        self._cluster, self._brokers, self._shipped = cluster, brokers, archive(folder)
        self._checkpoints = folder / "checkpoints"

    def start(self) -> None:
        """Submit the job."""
        done = max(self._checkpoints.glob("*/chk-*/_metadata"), key=os.path.getmtime, default=None)
        again = [] if done is None else ["-s", done.parent.as_uri()]
        (jar,) = of_flink()
        self._cluster.run(
            EXAMPLES / "kafka_flink.py", self._brokers, shipped=self._shipped, more=["-d", "-C", jar.as_uri(), *again],
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

    def stop(self) -> None:
        """It ends with its cluster."""

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

        with running_flink(folder / "flink") as flink:
            flink_job = FlinkJob(folder, flink, brokers)
            flink_job.start()
            wait_for(lambda: bool(flink.rest("/jobs")["jobs"]), seconds=60, told=flink.told)
            yield flink_job

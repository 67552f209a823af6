"""A Kafka broker: in a container if a Docker engine runs, otherwise a single node (KRaft) from Maven's archives."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from infra.docker import has_docker
from infra.jars import jars
from infra.processes import YOUNG, Server, free_port, listens, wait_for

CONFIG = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:{controller}
listeners=PLAINTEXT://localhost:{port},CONTROLLER://localhost:{controller}
advertised.listeners=PLAINTEXT://localhost:{port}
controller.listener.names=CONTROLLER
log.dirs={folder}/data
num.partitions=2
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
log.retention.ms=-1
"""


class Broker(Protocol):
    """The broker as tests use it."""

    address: str

    def kill(self) -> None:
        """kill -9."""

    def start(self) -> None:
        """Start it (again, over what it has written) and wait until it answers."""


class LocalBroker:
    """A node with a folder of its own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._port = free_port()
        self.address = f"localhost:{self._port}"
        config = folder / "server.properties"
        config.write_text(CONFIG.format(port=self._port, controller=free_port(), folder=folder), encoding="utf-8")
        java = ["java", "-Xmx512m", YOUNG, "-cp", f"{jars()}/*"]
        java[0] = os.path.join(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java"
        cluster = "MkU3OEVBNTcwNTJENDM2Qk"
        format_ = [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(config)]
        subprocess.run(format_, check=True, capture_output=True, cwd=folder, timeout=120)
        self._server = Server([*java, "kafka.Kafka", str(config)], folder, name="broker")

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._server.pid

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._server.start()
        wait_for(lambda: listens(self._port), seconds=300, told=self._server.tail)

    def kill(self) -> None:
        """kill -9."""
        self._server.kill()

    def stop(self) -> None:
        """End it."""
        self._server.stop()


@contextmanager
def running_broker(folder: Path) -> Iterator[Broker]:
    """A broker until the block ends. Raises NotFetchedError if none can be had."""
    if has_docker():
        from infra.containers import ContainerBroker

        with ContainerBroker() as contained:
            yield contained
        return
    broker = LocalBroker(folder)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()

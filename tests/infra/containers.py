"""A Kafka broker and the parts of clusters in containers, on the network of this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from testcontainers.community.kafka import KafkaContainer
from testcontainers.core.container import DockerContainer
from testcontainers.core.image import DockerImage

from infra.jars import jars
from infra.machines import Machine
from infra.processes import free_port, listens, wait_for

KAFKA = "confluentinc/cp-kafka:7.9.1"
"""Of Kafka 3.9."""
MAVEN = "maven:3.9-eclipse-temurin-17"
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
REPOSITORY = Path(__file__).parents[2]


class ContainerBroker:
    """A broker whose port stays the same when it is started again."""

    def __init__(self) -> None:
        self._port = free_port()
        self._container = KafkaContainer(KAFKA).with_kraft().with_bind_ports(9093, self._port)
        self.address = f"localhost:{self._port}"

    def __enter__(self) -> Self:
        self._container.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._container.stop()

    def kill(self) -> None:
        """kill -9 of all that runs in the container; its files stay."""
        self._container.get_wrapped_container().kill("SIGKILL")

    def start(self) -> None:
        """Start the container again, and wait until it answers."""
        container = self._container.get_wrapped_container()
        container.start()
        wait_for(lambda: listens(self._port), seconds=90, told=lambda: container.logs(tail=50).decode())


@cache
def image() -> str:
    """The name of an image with the engines, for this Python, built on first use."""
    tag = f"whenabouts-tests:python{PYTHON}"
    DockerImage(
        REPOSITORY, tag=tag, clean_up=False, dockerfile_path="tests/infra/Dockerfile", buildargs={"PYTHON": PYTHON}
    ).build()
    return tag


class ContainerServer:
    """A command in a container that shares network, folders and the repository with this machine, under the same
    names."""

    def __init__(self, command: Sequence[str], folder: Path, *, name: str, env: Mapping[str, str]) -> None:
        self.name = name
        self._container = (
            DockerContainer(image())
            .with_command(list(command))
            .with_envs(**env)
            .with_volume_mapping(folder.parent, str(folder.parent), "rw")
            .with_volume_mapping(jars(), str(jars()), "ro")
            .with_volume_mapping(REPOSITORY, str(REPOSITORY), "ro")
            .with_kwargs(network_mode="host", working_dir=str(folder), user=f"{os.getuid()}:{os.getgid()}")
        )
        self._started = False

    @property
    def alive(self) -> bool:
        """Whether the container runs."""
        if not self._started:
            return False
        container = self._container.get_wrapped_container()
        container.reload()
        return bool(container.status == "running")

    def start(self) -> None:
        """Start the container, or start it again."""
        if self._started:
            self._container.get_wrapped_container().start()
        else:
            self._container.start()
        self._started = True

    def kill(self) -> None:
        """kill -9 of all that runs in it."""
        self._container.get_wrapped_container().kill("SIGKILL")

    def stop(self) -> None:
        """End and remove it."""
        if self._started:
            self._container.stop()
        self._started = False


def contained() -> Machine:
    """A machine that runs the image."""
    return Machine("/usr/local/bin/python", Path(f"/usr/local/lib/python{PYTHON}/site-packages"), ContainerServer)


def fetch(pom: Path, folder: Path) -> int:
    """Run Maven in a container, which copies what a pom names into a folder. Returns its exit code."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    maven = (
        DockerContainer(MAVEN)
        .with_command(
            ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
        )
        .with_volume_mapping(pom.parent, str(pom.parent), "ro")
        .with_volume_mapping(folder.parent, str(folder.parent), "rw")
        .with_kwargs(user=f"{os.getuid()}:{os.getgid()}", working_dir="/tmp")
        .with_env("MAVEN_CONFIG", "/tmp/.m2")
    )
    with maven as running:
        return int(running.get_wrapped_container().wait()["StatusCode"])

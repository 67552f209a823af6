"""A Kafka broker in a container."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from testcontainers.community.kafka import KafkaContainer

from infra.processes import free_port

IMAGE = "confluentinc/cp-kafka:7.9.1"
"""Of Kafka 3.9."""


class ContainerBroker:
    """A broker whose port stays the same when it is started again."""

    def __init__(self) -> None:
        port = free_port()
        self._container = KafkaContainer(IMAGE).with_kraft().with_bind_ports(9093, port)
        self.address = f"localhost:{port}"

    def __enter__(self) -> Self:
        self._container.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._container.stop()

    def kill(self) -> None:
        """kill -9 of all that runs in the container; its files stay."""
        self._container.get_wrapped_container().kill("SIGKILL")

    def start(self) -> None:
        """Start the container again."""
        self._container.get_wrapped_container().start()

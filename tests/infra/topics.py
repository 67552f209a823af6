"""What goes into topics and what came out of them."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

QUIET = {"logger": logging.getLogger("kafka"), "log_level": 2}
"""A broker that is killed on purpose is no news."""


def create_topics(address: str, *names: str, partitions: int = 2) -> None:
    """Make topics, and wait until they are there."""
    admin = AdminClient({"bootstrap.servers": address, **QUIET})
    made = admin.create_topics([NewTopic(name, num_partitions=partitions, replication_factor=1) for name in names])
    for done in made.values():
        done.result(30)


class Written(NamedTuple):
    """A record as it is written: when, in milliseconds since 1970, is for the writer to say."""

    topic: str
    value: bytes
    partition: int
    at_ms: int


def produce(address: str, records: Iterable[Written], *, partitions: int = 2) -> None:
    """Write records in order, and wait until the broker has all of it, however long it is away."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 5, "message.timeout.ms": 0, **QUIET})
    for topic, value, partition, at_ms in records:
        while True:
            try:
                producer.produce(topic, value, partition=partition % partitions, timestamp=at_ms)
                break
            except BufferError:
                producer.poll(0.1)
    while producer.flush(10):
        continue


@contextmanager
def committed(address: str, topic: str) -> Iterator[Callable[[float], list[tuple[Any, dict[str, Any]]]]]:
    """Reads a topic from its beginning: each call gives what was committed since the last one, as (key, row)."""
    consumer = Consumer(
        {
            "bootstrap.servers": address, "group.id": f"reads-{topic}", "auto.offset.reset": "earliest",
            "isolation.level": "read_committed", "enable.auto.commit": False, **QUIET,
        }
    )  # fmt: skip
    consumer.subscribe([topic])

    def read(seconds: float) -> list[tuple[Any, dict[str, Any]]]:
        found = [message for message in consumer.consume(10_000, seconds) if message.error() is None]
        return [(message.key() and json.loads(message.key()), json.loads(message.value())) for message in found]

    try:
        yield read
    finally:
        consumer.close()

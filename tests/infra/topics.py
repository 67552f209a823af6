"""Writing to topics and reading from them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

QUIET = {"logger": logging.getLogger("kafka"), "log_level": 2}
"""A broker that is killed on purpose is not worth a log line."""


def create_topics(address: str, *names: str, partitions: int = 2, **config: str) -> None:
    """Create topics, and wait until they exist. `config`: their options, with `_` for the dots."""
    admin = AdminClient({"bootstrap.servers": address, **QUIET})
    chosen = {name.replace("_", "."): value for name, value in config.items()}
    topics = [NewTopic(name, num_partitions=partitions, replication_factor=1, config=chosen) for name in names]
    made = admin.create_topics(topics)
    for done in made.values():
        done.result(300)


class Written(NamedTuple):
    """A record as it is written, with its time in milliseconds since 1970, set by the writer."""

    topic: str
    value: bytes
    partition: int
    at_ms: int
    key: bytes | None = None


TOGETHER_MS = 2000
"""The greatest difference in time of records that are in flight together: with their own delay it must stay within the
lateness."""


def produce(address: str, records: Iterable[Written]) -> None:
    """Write records in order, and wait until the broker has all of them, however long it is down.

    A record is sent once all records that are two seconds older have arrived. However slow a partition is, no other one
    gets further ahead, so that neither load nor an outage makes rows late.
    """
    producer = Producer({"bootstrap.servers": address, "linger.ms": 5, "message.timeout.ms": 0, **QUIET})
    for _, together in groupby(records, key=lambda record: record.at_ms // TOGETHER_MS):
        for topic, value, partition, at_ms, key in together:
            while True:
                try:
                    producer.produce(topic, value, key, partition=partition, timestamp=at_ms)
                    break
                except BufferError:
                    producer.poll(0.1)
        while producer.flush(10):
            continue


@contextmanager
def committed(address: str, *topics: str) -> Iterator[Callable[[float], list[Message]]]:
    """Reads topics from their beginning: each call gives what was committed since the last one."""
    consumer = Consumer(
        {
            "bootstrap.servers": address, "group.id": f"reads-{'-'.join(topics)}", "auto.offset.reset": "earliest",
            "isolation.level": "read_committed", "enable.auto.commit": False, **QUIET,
        }
    )  # fmt: skip
    consumer.subscribe(list(topics))
    try:
        yield lambda seconds: [each for each in consumer.consume(10_000, seconds) if each.error() is None]
    finally:
        consumer.close()


def read_all(address: str, *topics: str) -> list[Message]:
    """All records that the topics now have; of transactions only the committed ones."""
    consumer = Consumer(
        {
            "bootstrap.servers": address, "group.id": "reads-all", "isolation.level": "read_committed",
            "enable.partition.eof": True, **QUIET,
        }
    )  # fmt: skip
    try:
        described = consumer.list_topics(timeout=60).topics
        parts = [
            TopicPartition(topic, number, OFFSET_BEGINNING)
            for topic in topics
            for number in described[topic].partitions
        ]
        consumer.assign(parts)
        found: list[Message] = []
        ended: set[tuple[str | None, int | None]] = set()
        while len(ended) < len(parts):
            for each in consumer.consume(10_000, 1.0):
                error = each.error()
                if error is None:
                    found.append(each)
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add((each.topic(), each.partition()))
        return found
    finally:
        consumer.close()

"""An example that runs while tests write to its topics; its output so far is compared with brute force."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Message

from infra.broker import Broker, running_broker
from infra.events import (
    BEGIN,
    LONGEST,
    SECOND,
    Refused,
    Scene,
    expected_levels,
    expected_pairs,
    level_of,
    refused,
    scene,
)
from infra.jobs import Job, running_job
from infra.topics import Written, committed, create_topics, produce, read_all

RESULTS = ("pairs", "levels", "dead-letters")
PATIENCE_S = 600
Key = tuple[tuple[str, Any], ...]


class Stream:
    """The example of an engine on a cluster and a broker of its own.

    Scenes follow each other in event time; each ends in such a way that all its results are emitted.
    """

    def __init__(self, engine: str, folder: Path, broker: Broker, at_end: ExitStack) -> None:
        self.engine, self.broker = engine, broker
        self._folder, self._at_end = folder, at_end
        self._job: Job | None = None
        self._scenes: list[Scene] = []
        self._pairs: dict[Key, dict[str, Any]] = {}
        self._levels: dict[Key, dict[str, Any]] = {}
        self.times: Counter[tuple[str, Key]] = Counter()
        self.dead: Refused = Counter()
        create_topics(broker.address, *LONGEST, *RESULTS)
        self._results = at_end.enter_context(committed(broker.address, *RESULTS))

    @property
    def job(self) -> Job:
        """The job, started on first use."""
        if self._job is None:
            self._job = self._at_end.enter_context(running_job(self.engine, self._folder, self.broker.address))
        return self._job

    def scene(self, rows: Mapping[str, int], **options: Any) -> Scene:
        """The next one; see `events.scene`."""
        begin = self._scenes[-1].ends_us + 60 * SECOND if self._scenes else BEGIN
        self._scenes.append(scene(rows, number=len(self._scenes), begin_us=begin, **options))
        return self._scenes[-1]

    def write(self, records: Iterable[Written], *, seconds: float = 0.0) -> None:
        """Write records within the given time."""
        produce(self.broker.address, _paced(list(records), seconds))

    @contextmanager
    def writing(self, records: Iterable[Written], *, seconds: float) -> Iterator[None]:
        """Write while the block runs."""
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(self.write, records, seconds=seconds)
            yield
            done.result()

    def look(self) -> None:
        """Read the output since the last call, and record the metrics."""
        self.job.keep_up()
        self.job.metrics()
        for message in self._results(1.0):
            topic, row = message.topic(), json.loads(message.value())
            if topic == "dead-letters":
                self.dead[row["input"], row["code"]] += 1
                continue
            rows = self._pairs if topic == "pairs" else self._levels
            key = tuple(json.loads(message.key()).items())
            assert key == tuple((name, row[name]) for name, _ in key)
            self.times[topic, key] += 1
            assert rows.setdefault(key, row) == row, "a row that is written again is the same"

    def wait_for(self, what: Callable[[], bool], *, told: Callable[[], str] = str) -> None:
        """Poll until a condition holds. `told`: the message if it takes too long."""
        deadline = time.monotonic() + PATIENCE_S
        while not what():
            assert time.monotonic() < deadline, f"{told()}\n{self._so_far()}\n{self.job.told()}"
            self.look()

    def told(self, name: str, *, since: int = 0) -> list[int]:
        """The recorded values of one metric of the join; `since`: how many of the first ones to leave out."""
        return [each[name] for each in self.job.metrics()[since:]]

    def check(self) -> None:
        """Wait until everything written so far has led to its results; these must be the brute-force answer, and the
        dead letters must be the poison in the topics. Flink's sink gives each row once, Spark's at least once."""
        pairs, levels = expected_pairs(self._scenes), expected_levels(self._scenes)
        letters = refused(self.poison())

        def missing() -> str:
            """The number of missing or surplus rows, with some of them."""
            of: dict[str, Counter[Any]]
            of = {"pairs": pairs - self._found_pairs(), "levels": levels - self._found_levels()}
            of["dead letters"] = letters - self.dead
            return ", ".join(f"{rows.total()} {name} are missing: {[*rows][:9]}" for name, rows in of.items() if rows)

        self.wait_for(
            lambda: len(self._pairs) >= len(pairs) and len(self._levels) >= len(levels) and self.dead >= letters,
            told=missing,
        )
        before = -1
        while self._came() != before:  # the surplus comes last
            before = self._came()
            for _ in range(2):
                self.look()
        assert self._found_pairs() == pairs
        assert self._found_levels() == levels
        if self.engine == "flink":
            assert set(self.times.values()) <= {1}
            assert self.dead == letters
        assert set(self.dead) == set(letters)

    def _found_pairs(self) -> Counter[tuple[int, int]]:
        return Counter((row["id_left"], row["id_right"]) for row in self._pairs.values())

    def _found_levels(self) -> Counter[tuple[Any, ...]]:
        return Counter(map(level_of, self._levels.values()))

    def _came(self) -> int:
        return self.times.total() + self.dead.total()

    def _so_far(self) -> str:
        return f"{len(self._pairs)} pairs, {len(self._levels)} levels, {self.dead}, {self.job.metrics()[-3:]}"

    def records(self) -> list[Message]:
        """The records in the topics of events: a producer that got no answer may have written some twice."""
        return read_all(self.broker.address, *LONGEST)

    def poison(self) -> list[tuple[str, str]]:
        """The poison in the topics, as (topic, code)."""
        return [(each.topic(), each.key().decode()) for each in self.records() if each.key()]


def _paced(records: list[Written], seconds: float) -> Iterator[Written]:
    begun = time.monotonic()
    for number, record in enumerate(records):
        ahead = begun + seconds * number / len(records) - time.monotonic()
        if ahead > 0.01:
            time.sleep(ahead)
        yield record


@contextmanager
def running_stream(engine: str, folder: Path) -> Iterator[Stream]:
    """A stream until the block ends. Raises NotFetchedError if no broker can be had."""
    with ExitStack() as at_end:
        broker = at_end.enter_context(running_broker(folder / "kafka"))
        yield Stream(engine, folder, broker, at_end)

"""Kafka to Kafka: our timing join against the engine's own interval join, on the same topics.

    python benchmarks/kafka_join.py [--engine spark] [--engine flink] [--rows 200000] [--more 2000000] [--rounds 3]
                                    [--no-latency]
    python benchmarks/kafka_join.py --latency [--seconds 30]

The script starts its own broker (`make test-cluster` fetches it with Maven). Two topics hold JSON records with 1,000
keys and two pairs for each row of the left one; pairs go to a third topic. Contenders alternate and read both topics
from beginning to end, in one JVM per engine, with two tasks on two cores. The first run of each is a warm-up: the pairs
in its topic are counted and hashed, and must agree with the others and with the local engine. Ours write dead letters
too, as the examples do. Spark reads 60,000 records of a topic per micro-batch. Both joins on Flink write in
transactions that end with a checkpoint each second. Reported are CPU-seconds of JVM and Python per run, including its
start, without those of the broker. Contenders also read topics of `--more` records a side in each round, a job of a
minute or so: the difference of the two runs is what each further row costs, without a job's start and most of the JVM's
compiling. In
the environment with the newest Spark, its own join also runs with state format 4; the connector is then of an earlier
Spark, for all alike. With its default format Spark's own does not take part in the longer runs, which would take it
minutes each, and without a peer ours does not.

Then latency: each topic gets 1,000 rows a second. The latency of a pair is the time from handing its later row to the
producer until the broker has the pair. Spark starts a micro-batch as soon as the previous one has ended; on Flink rows
wait at most 100 ms (`eager`, Python in the JVM's threads) or 500 ms (`lazy`, in processes). Sinks are at-least-once
there: a pair is not held back until a checkpoint. The pace begins with the first pair, and pairs count from ten seconds
later.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

import click
import numpy as np
import pyarrow as pa
from latency_plot import draw_waits
from measuring import RESULTS, SEPARATOR, DisagreementError, Suite, digest_of_columns
from process_cpu import cpu_of_tree, cpu_since

from whenabouts.core import JsonPayload, Lateness, Point, within
from whenabouts.core.local import timing_join

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from infra.broker import LocalBroker
from infra.jars import of_flink, of_newest_spark, of_spark
from infra.topics import Written, create_topics, produce, read_all

KEYS, PARTITIONS = 1_000, 2
STRIDES = {"left": 7919, "right": 104_729}
"""Row `id` of a side has key `id * stride mod KEYS` and the time of `id` milliseconds."""
BEGIN_MS = 1_700_000_000_000
PAYLOAD = JsonPayload({"id": "int64", "k": "int64", "t": "int64"})
JOIN: Any = {
    "on": "k",
    "left_time": Point("t"),
    "right_time": Point("t"),
    "condition": within("1 s", confidence=1),
    "lateness": Lateness("1 s", "1 s"),
    "probability": False,
    "payloads": PAYLOAD,
}
COLUMNS = ("id_left", "id_right", "t_left", "t_right")
A_STEP = 60_000
"""Records of a topic that Spark reads at once."""
FORMAT = "spark.sql.streaming.join.stateFormatVersion"


Topics = tuple[str, ...]
"""The topics of both sides."""


def topics_of(rows: int) -> Topics:
    """The topics with so many rows of each side."""
    return tuple(f"{side}-{rows}" for side in STRIDES)


def record(side: str, topic: str, number: int) -> Written:
    """Row `number` of a side, as stored in a topic."""
    at_ms = BEGIN_MS + number
    row = {"id": number, "k": number * STRIDES[side] % KEYS, "t": at_ms * 1000}
    return Written(topic, json.dumps(row).encode(), number % PARTITIONS, at_ms)


def expected(rows: int) -> tuple[int, int]:
    """Number and hash of the pairs."""
    number = np.arange(rows)
    sides = [
        pa.table({"id": number, "k": number * stride % KEYS, "t": (BEGIN_MS + number) * 1000})
        for stride in STRIDES.values()
    ]
    batch = {name: value for name, value in JOIN.items() if name not in ("payloads", "lateness")}
    pairs = timing_join(*sides, **batch)
    return digest_of_columns([[np.asarray(pairs[name]) for name in COLUMNS]])


def written_pairs(address: str, topic: str) -> tuple[int, int]:
    """Number and hash of the pairs in a topic."""
    rows = [json.loads(each.value()) for each in read_all(address, topic)]
    return digest_of_columns([[np.array([row[name] for row in rows], np.int64) for name in COLUMNS]])


Contender = Callable[[Topics, str], None]
"""Joins the records of two topics into another."""


class Engine(Protocol):
    """An engine with both contenders and with our join at a given pace."""

    name: str
    own: str
    further: frozenset[str]
    """The contenders of which is measured what each further row costs."""

    def __init__(self, brokers: str) -> None:
        """Start it."""

    def contenders(self) -> dict[str, Contender]:
        """Our join of the records in the topics, to a topic, and the engine's own, by name."""

    def running(self, pace: Pace, out: str) -> AbstractContextManager[None]:
        """Runs our join during the block, from topics that are written meanwhile."""

    def stop(self) -> None:
        """End it."""


@dataclass(frozen=True)
class Pace:
    """A configuration of our join for arriving rows; `bound`: its `max_latency`."""

    name: str
    engine: str
    bound: str | None = None
    mode: str = "process"
    strategy: str = "auto"


PACES = (
    Pace("Spark, one micro-batch after the other", "spark"),
    Pace("Flink, eager, 100 ms", "flink", "100 ms", "thread"),
    Pace("Flink, lazy, 500 ms", "flink", "500 ms", strategy="lazy"),
)


class Spark:
    """Two tasks on two cores, state in RocksDB, checkpoints for which Hadoop starts no process. Its own join also with
    state format 4, where Spark has it."""

    own, newest = "Spark", "Spark, state format 4"

    def __init__(self, brokers: str) -> None:
        from pyspark import __version__

        from whenabouts.spark_plugin import local_session
        from whenabouts.spark_plugin.file_session import CHECKPOINTS

        major, minor = map(int, __version__.split(".")[:2])
        self._has_format_4 = (major, minor) >= (4, 2)
        self.further = frozenset({"ours", self.newest} if self._has_format_4 else ())
        self.name = f"spark {major}.{minor}" if self._has_format_4 else "spark"
        jars = ",".join(map(str, of_newest_spark() if self._has_format_4 else of_spark()))
        self._spark = local_session("kafka", spark__jars=jars, spark__driver__memory="3g", **CHECKPOINTS)
        self._brokers = brokers

    def contenders(self) -> dict[str, Contender]:
        """Ours, and Spark's own with each state format."""
        newest = {self.newest: partial(self.native, state_format=4)} if self._has_format_4 else {}
        return {"ours": self.ours, "Spark": self.native, **newest}

    def _topics(self, names: Topics, **options: str) -> list[Any]:
        from whenabouts.spark_plugin.kafka import read_topic

        return [read_topic(self._spark, self._brokers, name, **options) for name in names]

    def _writer(self, out: str) -> Callable[..., None]:
        from whenabouts.spark_plugin.kafka import topic_writer

        write = topic_writer(self._brokers, out)
        return lambda rows, number: write(rows.select(*COLUMNS), number)

    def _start(self, sides: list[Any], out: str, folder: str, **trigger: Any) -> Any:
        from whenabouts.spark_plugin import timing_join, write_with_rejects
        from whenabouts.spark_plugin.kafka import topic_writer

        dead = topic_writer(self._brokers, DEAD)
        pairs = write_with_rejects(timing_join(*sides, **JOIN), self._writer(out), dead, checkpoint=folder)
        return (pairs.trigger(**trigger) if trigger else pairs).start()

    def ours(self, topics: Topics, out: str) -> None:
        """With dead letters."""
        with tempfile.TemporaryDirectory(prefix="whenabouts-") as folder:
            sides = self._topics(topics, maxOffsetsPerTrigger=str(A_STEP))
            self._start(sides, out, folder, availableNow=True).awaitTermination()

    def native(self, topics: Topics, out: str, state_format: int | None = None) -> None:
        """As Spark's guide says to write it."""
        from pyspark.sql.functions import col, expr, from_json, timestamp_micros, unix_micros

        self._spark.conf.unset(FORMAT)
        if state_format is not None:
            self._spark.conf.set(FORMAT, str(state_format))
        sides = []
        for side, df in zip(STRIDES, self._topics(topics, maxOffsetsPerTrigger=str(A_STEP)), strict=True):
            rows = df.select(from_json(col("value").cast("string"), "id long, k long, t long").alias("row"))
            timed = rows.select("row.id", "row.k", timestamp_micros("row.t").alias("t"))
            sides.append(
                timed.toDF(*(f"{name}_{side}" for name in timed.columns)).withWatermark(f"t_{side}", "1 second")
            )
        second = "interval 1 second"
        near = expr(f"k_left = k_right and t_right between t_left - {second} and t_left + {second}")
        pairs = sides[0].join(sides[1], near).select(
            "id_left", "id_right", unix_micros("t_left").alias("t_left"), unix_micros("t_right").alias("t_right")
        )  # fmt: skip
        with tempfile.TemporaryDirectory(prefix="whenabouts-") as folder:
            writer = pairs.writeStream.foreachBatch(self._writer(out)).option("checkpointLocation", folder)
            writer.trigger(availableNow=True).start().awaitTermination()

    @contextmanager
    def running(self, pace: Pace, out: str) -> Iterator[None]:
        """`pace` has no effect here."""
        with tempfile.TemporaryDirectory(prefix="whenabouts-") as folder:
            query = self._start(self._topics(paced_topics(pace)), out, folder)
            try:
                yield
            finally:
                query.stop()

    def stop(self) -> None:
        """The session."""
        self._spark.stop()


class Flink:
    """Two slots, a checkpoint each second.

    Checkpoints are files: in the job manager's memory a task's may have 5 MB at most. A job that fails is not started
    again, since a bounded source of Kafka that Flink restores does not end.
    """

    name, own = "flink", "Flink"
    further = frozenset({"ours", own})

    def __init__(self, brokers: str) -> None:
        self._brokers = brokers
        self._folder = tempfile.TemporaryDirectory(prefix="whenabouts-kafka-flink-", ignore_cleanup_errors=True)

    def contenders(self) -> dict[str, Contender]:
        """Both."""
        return {"ours": self.ours, self.own: self.native}

    def _tables(self, mode: str = "process", parallelism: int = 2) -> Any:
        from pyflink.table import StreamTableEnvironment

        from whenabouts.flink_plugin.mini_cluster import local_environment

        (jar,) = of_flink()
        env = local_environment(
            parallelism, mode=mode, pipeline__jars=jar.as_uri(), restart_strategy__type="disable",
            execution__checkpointing__storage="filesystem",
            execution__checkpointing__dir=Path(self._folder.name).as_uri(),
        )  # fmt: skip
        env.enable_checkpointing(1000)
        return StreamTableEnvironment.create(env)

    def _run(self, tables: Any, out: list[tuple[Any, str]], **options: str) -> Any:
        from whenabouts.flink_plugin.kafka import topic_sink

        statements = tables.create_statement_set()
        for rows, topic in out:
            own = {"sink.transactional-id-prefix": f"{topic}-{time.time_ns()}"}
            statements.add_insert(topic_sink(rows, self._brokers, topic, **own, **options), rows)
        return statements.execute()

    def _join(self, tables: Any, names: Topics, pace: Pace | None = None, **options: str) -> Any:
        from whenabouts.flink_plugin import timing_join
        from whenabouts.flink_plugin.kafka import read_topic

        sides = [read_topic(tables, self._brokers, name, lateness="1 s", **options) for name in names]
        paced = {} if pace is None else {"max_latency": pace.bound, "strategy": pace.strategy, "buckets": 1}
        return timing_join(*sides, **JOIN, **paced, watermarks="source")

    def ours(self, topics: Topics, out: str) -> None:
        """From a Table to a Table, with dead letters."""
        from whenabouts.flink_plugin import rejects

        tables = self._tables()
        pairs = self._join(tables, topics, **BOUNDED)
        chosen = pairs.select(*(col_(name) for name in COLUMNS))
        self._run(tables, [(chosen, out), (rejects(pairs), DEAD)]).wait()

    def native(self, topics: Topics, out: str) -> None:
        """SQL as in Flink's documentation."""
        tables = self._tables()
        for side, topic in zip(STRIDES, topics, strict=True):
            tables.execute_sql(NATIVE_TABLE.format(side=side, topic=topic, brokers=self._brokers))
        self._run(tables, [(tables.sql_query(NATIVE), out)]).wait()

    @contextmanager
    def running(self, pace: Pace, out: str) -> Iterator[None]:
        """One task, which suits few rows that must not wait."""
        tables = self._tables(pace.mode, 1)
        pairs = self._join(tables, paced_topics(pace), pace).select(*(col_(name) for name in COLUMNS))
        job = self._run(tables, [(pairs, out)], **{"sink.delivery-guarantee": "at-least-once"})
        try:
            yield
        finally:
            job.get_job_client().cancel().result()

    def stop(self) -> None:
        """Each job ends its own cluster."""
        self._folder.cleanup()


def col_(name: str) -> Any:
    """A column of Flink."""
    from pyflink.table.expressions import col

    return col(name)


BOUNDED = {"scan.bounded.mode": "latest-offset"}
NATIVE_TABLE = """
    CREATE TEMPORARY TABLE {side}_rows (
        id BIGINT, k BIGINT, t BIGINT, ts AS TO_TIMESTAMP_LTZ(t / 1000, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
    ) WITH ('connector' = 'kafka', 'properties.bootstrap.servers' = '{brokers}', 'topic' = '{topic}', 'format' = 'json',
            'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset')
"""
NATIVE = """
    SELECT l.id AS id_left, r.id AS id_right, l.t AS t_left, r.t AS t_right FROM left_rows AS l JOIN right_rows AS r
    ON l.k = r.k AND l.ts BETWEEN r.ts - INTERVAL '1' SECOND AND r.ts + INTERVAL '1' SECOND
"""
ENGINES: dict[str, type[Engine]] = {"spark": Spark, "flink": Flink}
DEAD = "dead-letters"


def write_topics(address: str, rows: int) -> None:
    """The topics with so many rows of each side."""
    topics = dict(zip(STRIDES, topics_of(rows), strict=True))
    create_topics(address, *topics.values(), partitions=PARTITIONS)
    produce(address, (record(*each, number) for number in range(rows) for each in topics.items()))


Cpu = dict[str, float]
"""CPU-seconds by process."""


def throughput(suite: Suite, engine: Engine, broker: LocalBroker, sizes: Sequence[int]) -> None:
    """All contenders alternately over the same topics, of each size: rows of a side."""
    spent: dict[str, list[list[Cpu]]] = {name: [] for name in engine.contenders()}
    for number in range(-1, suite.rounds):
        for name in spent:
            its_sizes = sizes if name in engine.further else sizes[:1]
            costs = [cost_of(engine, name, broker, rows, check=number < 0) for rows in its_sizes]
            click.echo(f"{engine.name}, {name}, {'warming up' if number < 0 else f'round {number + 1}'}: {costs}")
            if number >= 0:
                spent[name].append(costs)
    rows = sizes[0]
    for name, rounds in spent.items():
        report(suite, f"{engine.name}, {rows:,} rows a side{SEPARATOR}{name}", rows, [costs[0] for costs in rounds])
        for more in sizes[1:] if name in engine.further else ():
            job = f"{engine.name}, {more:,} rows a side"
            report(suite, f"{job}{SEPARATOR}{name}", more, [costs[-1] for costs in rounds])
            per_million = 1e6 / (2 * (more - rows))
            slopes = [{part: (large.get(part, 0.0) - small.get(part, 0.0)) * per_million for part in large}
                      for small, large in rounds]  # fmt: skip
            report(suite, f"{engine.name}, a million further rows{SEPARATOR}{name}", more, slopes)


def cost_of(engine: Engine, name: str, broker: LocalBroker, rows: int, *, check: bool) -> Cpu:
    """What a run of a contender costs; `check`: that its pairs are those of the local engine."""
    out = f"pairs-{engine.own}-{time.time_ns()}"
    create_topics(broker.address, out, partitions=PARTITIONS)
    before = cpu_of_tree(without=broker.pid)
    engine.contenders()[name](topics_of(rows), out)
    cost = cpu_since(before, without=broker.pid)
    if check and (found := written_pairs(broker.address, out)) != (wanted := expected(rows)):
        raise DisagreementError(f"{engine.name}, {name} gave {found}, not {wanted} (pairs, hash)")
    return cost


def report(suite: Suite, series: str, rows: int, costs: Sequence[Cpu]) -> None:
    """Record a series: the sum of each run, and the median of each process."""
    wanted = expected(rows)
    parts = {part: statistics.median(cost.get(part, 0.0) for cost in costs) for part in costs[0]}
    facts = {"rows_in": 2 * rows, "rows_out": wanted[0], "hash": f"{wanted[1]:016x}", **parts}
    suite.record(series, [sum(cost.values()) for cost in costs], **facts)
    click.echo(f"{series}: {statistics.median(sum(cost.values()) for cost in costs):.2f} ({parts})")


def paced_topics(pace: Pace) -> tuple[str, ...]:
    """The input topics of a pace."""
    return tuple(f"{side}-{PACES.index(pace)}" for side in STRIDES)


def waits(pace: Pace, engine: Engine, brokers: str, seconds: int) -> np.ndarray[Any, Any]:
    """The latency of each pair after the warm-up, in milliseconds."""
    topics, out = dict(zip(STRIDES, paced_topics(pace), strict=True)), f"waited-{PACES.index(pace)}"
    create_topics(brokers, *topics.values(), partitions=1)
    create_topics(brokers, out, partitions=1, message_timestamp_type="LogAppendTime")
    with engine.running(pace, out):
        produce(brokers, (paced_record(*each, number) for number in range(FIRST) for each in topics.items()))
        while not read_all(brokers, out):
            time.sleep(1)
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as elsewhere:  # Flink's Python may be here
            made = elsewhere.submit(given, brokers, topics, seconds).result()
        time.sleep(5)
    found = [(row["id_left"], row["id_right"], at) for row, at in _timed_pairs(brokers, out)]
    late = FIRST + 1000 * WARM_UP_S
    return np.array([at - max(made["left"][a], made["right"][b]) for a, b, at in found if min(a, b) >= late])


def _timed_pairs(brokers: str, topic: str) -> Iterator[tuple[dict[str, int], int]]:
    for each in read_all(brokers, topic):
        yield json.loads(each.value()), each.timestamp()[1]


FIRST, WARM_UP_S = 2000, 10
"""Rows in the topics before the pace begins, and how long it lasts before pairs count."""


def paced_record(side: str, topic: str, number: int) -> Written:
    """Row `number` of a side, for the topic of a pace."""
    return record(side, topic, number)._replace(partition=0)


def given(brokers: str, topics: dict[str, str], seconds: int) -> dict[str, dict[int, float]]:
    """Give the producer a row of each side every millisecond; returns the times, in milliseconds since 1970."""
    made: dict[str, dict[int, float]] = {side: {} for side in topics}

    def rows() -> Iterator[Written]:
        begun = time.time()
        for number in range(FIRST, FIRST + (WARM_UP_S + seconds) * 1000):
            if (ahead := begun + (number - FIRST) / 1000 - time.time()) > 0:
                time.sleep(ahead)
            for side, topic in topics.items():
                made[side][number] = time.time() * 1000
                yield paced_record(side, topic, number)

    produce(brokers, rows())
    return made


def latency(suite: Suite, engine: Engine, brokers: str, seconds: int) -> None:
    """The latency of all paces of an engine."""
    measured: dict[str, tuple[np.ndarray[Any, Any], float | None]] = {}
    told = []
    for pace in (pace for pace in PACES if pace.engine == engine.own.lower()):
        waited = waits(pace, engine, brokers, seconds)
        p50, p90, p99 = np.percentile(waited, [50, 90, 99])
        told.append(
            f"{pace.name}: p50 {p50:.0f} ms, p90 {p90:.0f} ms, p99 {p99:.0f} ms, greatest {max(waited):.0f} ms "
            f"of {len(waited):,} pairs"
        )
        click.echo(told[-1])
        for name, ms in (("p50", p50), ("p99", p99), ("greatest", max(waited))):
            suite.record(f"Kafka to Kafka, {pace.name}{SEPARATOR}{name}", [float(ms) / 1000], rows_out=len(waited))
        measured[pace.name] = waited, None if pace.bound is None else float(pace.bound.removesuffix(" ms"))
    plot = f"kafka_latency_{engine.own.lower()}.svg"
    draw_waits(measured, RESULTS / plot)
    title = f"Latency from Kafka to Kafka on {engine.own} at 2,000 rows a second"
    suite.finding(title, "; ".join(told) + ".", plots=[plot])


@click.command(help=__doc__)
@click.option("--engine", "engines", multiple=True, type=click.Choice(list(ENGINES)), help="Both unless given.")
@click.option("--rows", default=200_000, show_default=True, help="Of each side.")
@click.option("--more", default=2_000_000, show_default=True, help="Of each side, in the longer runs.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--latency/--no-latency", "waits_", default=None, help="Measure latencies alone, or none.")
@click.option("--seconds", default=30, show_default=True, help="How long each latency is measured.")
def main(engines: tuple[str, ...], rows: int, more: int, rounds: int, waits_: bool | None, seconds: int) -> None:
    """Both."""
    suite = Suite("kafka_join", rounds)
    with tempfile.TemporaryDirectory(prefix="whenabouts-kafka-") as folder:
        broker = LocalBroker(Path(folder))
        broker.start()
        try:
            create_topics(broker.address, DEAD, partitions=PARTITIONS)
            written: set[int] = set()
            for name in engines or tuple(ENGINES):
                engine = ENGINES[name](broker.address)
                sizes = (rows, more) if engine.further else (rows,)
                if waits_ is not True:
                    for size in set(sizes) - written:
                        write_topics(broker.address, size)
                    written |= set(sizes)
                    throughput(suite, engine, broker, sizes)
                if waits_ is not False:
                    latency(suite, engine, broker.address, seconds)
                engine.stop()
                suite.save()
        finally:
            broker.stop()


if __name__ == "__main__":
    main()

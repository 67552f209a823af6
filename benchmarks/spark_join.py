"""Our timing join on Spark against Spark's own interval join on the same rows: CPU-seconds of JVM and Python.

    python benchmarks/spark_join.py [--case NAME]... [--rounds 3] [--only ours|native] [--cores 2] [--out FILE]

Streams: one file of each side in every micro-batch, RocksDB state, two cores, both warm (the first micro-batches are
not counted) and alternating. Ours has intervals and the probability predicate; Spark's own join compares exact times
(the intervals' ends), for it has nothing else. `check` runs both on exact times: the outputs' hashes must agree. All
cases are stretches of one kind of stream, 1.2 events a second and key on each side and 2.4 matches for each: what
differs is how many keys there are and how much of it is taken in at once. In `hot` one key has half of all rows.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from process_cpu import cpu_of_tree
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import count, expr, xxhash64
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from whenabouts.core import Interval, Lateness, Point, within
from whenabouts.spark_plugin import local_session, observed, timing_join

NOW_US = 1_600_000_000_000_000
LATENESS, LONGEST = "1 second", "200 ms"
CONFIDENCE = 0.8

Sink = Callable[[DataFrame], Any]


@dataclass(frozen=True)
class Case:
    """`rows` of each side in a step; `warm` steps come before the `measured` ones. `wanted`: our rate over Spark's.

    `hot`: the share of rows that have key 0; `slots`: the width of our time slots for it.
    """

    name: str
    keys: int
    rows: int
    warm: int
    measured: int
    wanted: float
    streaming: bool = True
    within: str = "1 second"
    per_second: float = 1.2
    hot: float = 0.0
    slots: str | None = None


CASES = {
    case.name: case
    for case in (
        Case("16k", 10_000, 16_000, 5, 10, 2),
        Case("120k", 10_000, 120_000, 3, 4, 6),
        Case("400k", 10_000, 400_000, 2, 3, 12),
        Case("8keys", 8, 16_000, 3, 5, 20),
        Case("batch", 8, 40_000, 1, 1, 15, streaming=False),
        Case("hot", 1_000, 50_000, 2, 3, 1, within="1 millisecond", per_second=5, hot=0.5, slots="1 s"),
    )
}


def events(case: Case, seed: int) -> Iterator[pa.Table]:
    """The steps of one side, in order of time."""
    rng = np.random.default_rng(seed)
    span = round(case.rows / case.keys / case.per_second * 1_000_000)
    for step in range(case.warm + case.measured):
        at = NOW_US + step * span + np.sort(rng.integers(0, span, case.rows))
        instant = pa.timestamp("us", "UTC")
        yield pa.table(
            {
                "k": np.where(rng.random(case.rows) < case.hot, 0, rng.integers(0, case.keys, case.rows)),
                "id": step * case.rows + np.arange(case.rows),
                "a": pa.array(at - rng.integers(20_000, 200_000, case.rows), instant),
                "b": pa.array(at, instant),
                "v": rng.random(case.rows),
            }
        )


def ours(case: Case, left: DataFrame, right: DataFrame, *, exact: bool = False) -> DataFrame:
    """The timing join with intervals, or on exact times."""
    timed = Point("b") if exact else Interval("a", "b", max_uncertainty=LONGEST)
    return timing_join(
        left,
        right,
        on="k",
        left_time=timed,
        right_time=timed,
        condition=within(case.within, confidence=1.0 if exact else CONFIDENCE),
        lateness=Lateness(LATENESS, LATENESS),
        time_slots=case.slots,
    )


def native(case: Case, left: DataFrame, right: DataFrame, *, exact: bool = True) -> DataFrame:
    """Spark's own join with its time range, as its guide says to write it."""
    sides = [df.toDF(*(f"{name}_{side}" for name in df.columns)) for df, side in ((left, "left"), (right, "right"))]
    if left.isStreaming:
        sides = [df.withWatermark(f"b_{side}", LATENESS) for df, side in zip(sides, ("left", "right"), strict=True)]
    reach = f"interval {case.within}"
    near = expr(f"k_left = k_right and b_right >= b_left - {reach} and b_right <= b_left + {reach}")
    return sides[0].join(sides[1], near)


BUILDERS: dict[str, Callable[..., DataFrame]] = {"ours": ours, "native": native}


@dataclass
class Cost:
    """What a run cost after its warm-up."""

    rows: int
    seconds: float
    cpu: dict[str, float]
    state: float | None = None

    @property
    def cpu_seconds(self) -> float:
        """All processes."""
        return sum(self.cpu.values())

    @property
    def rate(self) -> float:
        """Input rows of both sides per CPU-second."""
        return self.rows / self.cpu_seconds


@contextmanager
def cost_of(rows: int) -> Iterator[Cost]:
    """The cost of what is done inside."""
    cost = Cost(rows, 0.0, {})
    before, started = cpu_of_tree(), time.perf_counter()
    yield cost
    cost.seconds = time.perf_counter() - started
    cost.cpu = {kind: seconds - before.get(kind, 0.0) for kind, seconds in cpu_of_tree().items()}


def write(case: Case, folder: Path) -> list[list[Path]]:
    """The files of both sides, where no stream looks for them yet."""
    sides = []
    for seed, side in enumerate(("left", "right")):
        (folder / "waiting" / side).mkdir(parents=True)
        files = []
        for step, table in enumerate(events(case, seed)):
            path = folder / "waiting" / side / f"{step:04}.parquet"
            pq.write_table(table, path)
            os.utime(path, (1_000_000_000 + step, 1_000_000_000 + step))
            files.append(path)
        sides.append(files)
    return sides


def run_stream(spark: SparkSession, case: Case, build: Callable[..., DataFrame], sink: Sink) -> Cost:
    """Warm steps, then the measured ones, of one streaming query."""
    with tempfile.TemporaryDirectory(prefix="whenabouts-") as name:
        folder = Path(name)
        sides = write(case, folder)
        frames = []
        for files in sides:
            target = folder / files[0].parent.name
            target.mkdir()
            schema = spark.read.parquet(files[0].as_uri()).schema
            stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
            frames.append(stream.parquet(target.as_uri()))

        def release(first: int, stop: int) -> None:
            for files in sides:
                for path in files[first:stop]:
                    path.rename(folder / path.parent.name / path.name)

        release(0, case.warm)
        writer = sink(build(case, *frames)).option("checkpointLocation", (folder / "checkpoint").as_uri())
        query = started(writer)
        try:
            with cost_of(2 * case.measured * case.rows) as cost:
                release(case.warm, case.warm + case.measured)
                query.processAllAvailable()
            held = [observed(progress) for progress in query.recentProgress if progress.numInputRows][-1]
            if held["state_rows_left"]:
                cost.state = held["state_bytes_left"] / held["state_rows_left"]
            return cost
        finally:
            query.stop()


def started(writer: DataStreamWriter, attempts: int = 5) -> StreamingQuery:
    """The query after its first steps. Spark gives Python workers 10 s to start, and a busy machine needs more."""
    while True:
        query = writer.start()
        try:
            query.processAllAvailable()
            return query
        except StreamingQueryException as error:
            query.stop()
            attempts -= 1
            if not attempts or "failed to connect back" not in str(error):
                raise


def run_batch(spark: SparkSession, case: Case, build: Callable[..., DataFrame], sink: Sink) -> Cost:
    """A warm run, then a measured one."""
    with tempfile.TemporaryDirectory(prefix="whenabouts-") as name:
        frames = [spark.read.parquet(files[0].as_uri()) for files in write(case, Path(name))]
        build(case, *frames).write.format("noop").mode("overwrite").save()
        with cost_of(2 * case.rows) as cost:
            sink(build(case, *frames))
        return cost


def discard(result: DataFrame):
    """Rows are computed and thrown away."""
    if result.isStreaming:
        return result.writeStream.format("noop")
    return result.write.format("noop").mode("overwrite").save()


def run(spark: SparkSession, case: Case, name: str) -> Cost:
    """One run of ours or of Spark's."""
    return (run_stream if case.streaming else run_batch)(spark, case, BUILDERS[name], discard)


def output_hash(spark: SparkSession, case: Case, name: str) -> tuple[int, int]:
    """Number and sum of hashes of the pairs on exact times."""
    found = [0, 0]

    def add(rows: DataFrame, number: int = 0) -> None:
        hashed = rows.select(xxhash64(*IDENTITY).cast("decimal(38,0)").alias("h"))
        row = hashed.agg(count("h"), expr("cast(coalesce(sum(h), 0) as string)")).collect()[0]
        found[0] += row[0]
        found[1] += int(row[1])

    build = partial(BUILDERS[name], exact=True)

    if case.streaming:
        run_stream(spark, case, build, lambda df: df.writeStream.foreachBatch(add))
    else:
        run_batch(spark, case, build, add)
    return found[0], found[1]


IDENTITY = ["id_left", "id_right", "b_left", "b_right", "v_left", "v_right"]


def check(spark: SparkSession, case: Case) -> str:
    """Both on exact times: the same pairs, or the benchmark fails."""
    found = {name: output_hash(spark, case, name) for name in BUILDERS}
    if found["ours"] != found["native"]:
        raise click.ClickException(f"{case.name}: the outputs differ: {found}")
    return f"{found['ours'][0]:,} pairs on exact times, equal"


def parts(cost: Cost) -> str:
    """CPU-seconds by what spent them; JIT is the JVM's compiler, which rests once all code is hot."""
    return ", ".join(f"{kind} {seconds:.1f}" for kind, seconds in sorted(cost.cpu.items()) if seconds >= 0.05)


def show(case: Case, name: str, cost: Cost) -> None:
    """One line for one run."""
    state = "" if cost.state is None else f"  {cost.state:.0f} state bytes a row"
    click.echo(
        f"  {case.name:6s} {name:6s} {cost.rate:9,.0f} rows/CPU-s  {cost.cpu_seconds:6.1f} CPU-s ({parts(cost)})"
        f"  {cost.seconds:5.1f} s{state}"
    )


def row(case: Case, costs: dict[str, list[Cost]]) -> str:
    """A line of the table of results: medians over the rounds."""
    middle = {name: sorted(found, key=lambda cost: cost.rate)[len(found) // 2] for name, found in costs.items()}
    mine, other = middle["ours"], middle["native"]
    return (
        f"| {case.name} | {case.keys:,} | {case.rows:,} | {mine.rate:,.0f} | {other.rate:,.0f} "
        f"| {mine.rate / other.rate:.1f} | {case.wanted} | {parts(mine)} | {parts(other)} |"
    )


HEAD = """| case | keys | rows a step | ours, rows/CPU-s | Spark's own | ratio | wanted | ours, CPU-s | Spark's, CPU-s |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |"""


@click.command()
@click.option("--case", "cases", multiple=True, type=click.Choice(list(CASES)), help="default: all")
@click.option("--rounds", default=3, show_default=True)
@click.option("--only", type=click.Choice(list(BUILDERS)), help="no comparison: one of the two")
@click.option("--cores", default=2, show_default=True, help="the processes are pinned to so many")
@click.option("--check/--no-check", "checked", default=True, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="append the table to this file")
def main(cases: tuple[str, ...], rounds: int, only: str | None, cores: int, checked: bool, out: Path | None) -> None:
    """Medians of CPU-seconds, ours and Spark's own, and their ratio."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    spark = local_session("benchmark", cores=cores)
    table = [HEAD]
    for name in cases or CASES:
        case = CASES[name]
        if checked and not only:
            click.echo(f"{name}: {check(spark, replace(case, measured=1))}")
        costs: dict[str, list[Cost]] = {which: [] for which in BUILDERS if only in (None, which)}
        for _ in range(rounds):
            for which in costs:
                costs[which].append(run(spark, case, which))
                show(case, which, costs[which][-1])
        if not only:
            table.append(row(case, costs))
            click.echo(table[-1])
    spark.stop()
    if out is not None and not only:
        with out.open("a") as file:
            print(*table, sep="\n", file=file)


if __name__ == "__main__":
    main()

"""Our timing join on Spark against Spark's own interval join on the same rows: CPU-seconds of JVM and Python.

    python benchmarks/spark_join.py [--case NAME]... [--steps N] [--out FILE]
    python benchmarks/spark_join.py --scaling NAME [--scaling NAME] [--only native] [--out FILE]

Without options: all cases, then `--scaling 400k` and `--scaling 120k`.

Streams: one file of each side in every micro-batch, RocksDB state with changelogs, checkpoints for which Hadoop starts
no process (`file_session.CHECKPOINTS`, as on the command line), two cores. All queries run in one Spark and read
the same files alternately, a step of each. The first steps are warm-up; the table has the median of the others.
Contenders are ours with intervals and the probability predicate; ours on exact times (the intervals' ends); and Spark's
own join, which has nothing but exact times, with its default state format and with format 4, its fastest, where Spark
has it (4.2 and later). The pairs of the last three are hashed, and must agree. All cases are parts of the same kind of
stream, with 1.2 events per second and key on each side and 2.4 matches for each. They differ in the number of keys and
in the size of the micro-batches. In `hot` one key has half of all rows.
`--scaling` runs one join alone, with two buckets, with all its processes pinned alternately to one core and to two. All
files exist from the start, and a step is the duration of a micro-batch as Spark reports it. Before, small micro-batches
run until the JVM's compiler is nearly idle, as in a stream that has run for some minutes.
"""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from importlib.metadata import version
from operator import and_
from pathlib import Path
from statistics import median

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measuring import Suite
from process_cpu import cpu_of_tree, cpu_since, pin_tree
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import coalesce, col, count, expr, lit, shiftrightunsigned, when, xxhash64
from pyspark.sql.functions import sum as sum_of
from pyspark.sql.streaming.query import StreamingQuery

from whenabouts.core import Interval, Lateness, Point, within
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.planner.state_forecast import forecast_state
from whenabouts.spark_plugin import java_version, local_session, metrics_of, run
from whenabouts.spark_plugin.file_session import CHECKPOINTS

NOW_US = 1_600_000_000_000_000
LATENESS, LONGEST = "1 second", "200 ms"
SETTLING, SETTLING_BLOCK, SETTLING_ROWS, SETTLED = 400, 20, 8_000, 0.1
"""Before throughput is measured: the greatest number of micro-batches, how many run at a time, rows of a side in each,
and the compiler's share of the CPU below which it counts as idle."""
TURNS, SUSTAINED = 3, 5
"""How often one core and two alternate, and consecutive steps in each."""
CONFIDENCE = 0.8


@dataclass(frozen=True)
class Case:
    """`rows` of each side in a step; `wanted`: our rate over Spark's, and on exact times over its own with format 4.

    Before the `measured` steps there are `warm` steps, and for ours `more` steps before them: its steps are short, and
    the JVM compiles code that has run for long. They hold a quarter of the rows, but at least 16,000. If a step of
    Spark's own join takes so long (a minute) that Spark ends our idle workers, ours takes `again` steps before it is
    measured. `hot`: the share of rows that have key 0; `slots`: the width of our time slots for it. `lateness`: how
    long rows stay in state for rows that come late. `default`: whether Spark's own with its default state format takes
    part; it would take an hour where a key has many rows.
    """

    name: str
    keys: int
    rows: int
    more: int
    warm: int
    measured: int
    wanted: float
    wanted_v4: float = 0
    streaming: bool = True
    within: str = "1 second"
    per_second: float = 1.2
    again: int = 0
    hot: float = 0.0
    slots: str | None = None
    lateness: str = LATENESS
    default: bool = True

    @property
    def sizes(self) -> list[int]:
        """Rows of each of our steps; Spark's own leaves out the first `more`."""
        warming = min(self.rows, max(self.rows // 4, 16_000))
        return [warming] * (self.more + self.warm) + [self.rows] * (self.measured * (1 + self.again))

    def span_us(self, rows: int) -> int:
        """The event time that a step of so many rows covers."""
        return round(rows / self.keys / self.per_second * 1_000_000)

    def query(self, *, exact: bool) -> TimingJoin:
        """Ours."""
        timed = Point("b") if exact else Interval("a", "b", max_uncertainty=LONGEST)
        return TimingJoin(
            left_time=timed,
            right_time=timed,
            condition=within(self.within, confidence=1.0 if exact else CONFIDENCE),
            on="k",
            lateness=Lateness(self.lateness, self.lateness),
            time_slots=self.slots,
        )


SCALED = ("400k", "120k")
"""The cases whose throughput is measured on one core and two."""

CASES = {
    case.name: case
    for case in (
        Case("16k", 10_000, 16_000, 60, 10, 5, 2, 2.5),
        Case("120k", 10_000, 120_000, 8, 3, 5, 6, 7),
        Case("400k", 10_000, 400_000, 8, 1, 5, 12, 12, again=1),
        Case("8keys", 8, 16_000, 60, 10, 5, 20, 4),
        Case("hot", 1_000, 6_000, 10, 1, 1, 1, 0, within="1 millisecond", per_second=5, hot=0.5, slots="400 ms"),
        Case(
            "hot60k",
            1_000,
            60_000,
            10,
            2,
            5,
            0,
            3,
            within="1 millisecond",
            per_second=5,
            hot=0.5,
            slots="400 ms",
            default=False,
        ),
        Case("batch", 8, 40_000, 3, 1, 3, 15, streaming=False),
    )
}


def events(case: Case, seed: int) -> Iterator[pa.Table]:
    """The steps of one side, in order of time."""
    rng = np.random.default_rng(seed)
    now, first = NOW_US, 0
    for rows in case.sizes if case.streaming else [case.rows]:
        span = case.span_us(rows)
        at = now + np.sort(rng.integers(0, span, rows))
        instant = pa.timestamp("us", "UTC")
        yield pa.table(
            {
                "k": np.where(rng.random(rows) < case.hot, 0, rng.integers(0, case.keys, rows)),
                "id": first + np.arange(rows),
                "a": pa.array(at - rng.integers(20_000, 200_000, rows), instant),
                "b": pa.array(at, instant),
                "v": rng.random(rows),
            }
        )
        now, first = now + span, first + rows


def write(case: Case, folder: Path) -> list[list[Path]]:
    """Write the files of both sides where no stream reads them yet."""
    sides = []
    for seed, side in enumerate(("left", "right")):
        (folder / side).mkdir(parents=True)
        files = []
        for step, table in enumerate(events(case, seed)):
            path = folder / side / f"{step:04}.parquet"
            pq.write_table(table, path)
            files.append(path)
        sides.append(files)
    return sides


def ours(case: Case, left: DataFrame, right: DataFrame) -> DataFrame:
    """The timing join."""
    return run(case.query(exact=False), [left, right])


def ours_exact(case: Case, left: DataFrame, right: DataFrame) -> DataFrame:
    """The timing join of exact times."""
    return run(case.query(exact=True), [left, right])


def native(case: Case, left: DataFrame, right: DataFrame) -> DataFrame:
    """Spark's own join with a time range, as in its guide."""
    sides = [df.toDF(*(f"{name}_{side}" for name in df.columns)) for df, side in ((left, "left"), (right, "right"))]
    if left.isStreaming:
        sides = [
            df.withWatermark(f"b_{side}", case.lateness) for df, side in zip(sides, ("left", "right"), strict=True)
        ]
    reach = f"interval {case.within}"
    near = expr(f"k_left = k_right and b_right >= b_left - {reach} and b_right <= b_left + {reach}")
    return sides[0].join(sides[1], near)


FIXED = "-XX:-UseDynamicNumberOfCompilerThreads"
"""The CPU time of a compiler thread that ended would count as the JVM's."""


def session(**options: object) -> SparkSession:
    """Spark on two cores, with the checkpoints that cost all contenders least on a disk of this machine."""
    pin_tree(set(sorted(os.sched_getaffinity(0))[:2]))
    own = {"spark__driver__memory": "3g", "spark__driver__extraJavaOptions": FIXED}
    return local_session("benchmark", **CHECKPOINTS | own | options)


OURS, EXACT, NATIVE, V4 = "ours", "ours, exact", "native", "native V4"
BUILDERS: dict[str, Callable[..., DataFrame]] = {OURS: ours, EXACT: ours_exact, NATIVE: native, V4: native}
FORMAT = "spark.sql.streaming.join.stateFormatVersion"


def contenders(*, streaming: bool = True) -> tuple[str, ...]:
    """Those of a case that this Spark has."""
    if not streaming:
        return OURS, NATIVE
    return (OURS, EXACT, NATIVE, V4) if newest_format() == 4 else (OURS, EXACT, NATIVE)


def newest_format() -> int:
    """The newest state format of stream-stream joins that this Spark has."""
    return 4 if tuple(map(int, version("pyspark").split(".")[:2])) >= (4, 2) else 3


@dataclass
class Cost:
    """The cost of a step."""

    rows: int
    seconds: float
    cpu: dict[str, float]

    @property
    def cpu_seconds(self) -> float:
        """All processes."""
        return sum(self.cpu.values())

    @property
    def hot_seconds(self) -> float:
        """CPU-seconds without the JVM's compiler, which is idle once all code is hot."""
        return self.cpu_seconds - self.cpu.get("JIT", 0.0)

    @property
    def compiling(self) -> float:
        """The share of the JVM's compiler."""
        return self.cpu.get("JIT", 0.0) / self.cpu_seconds

    @property
    def rate(self) -> float:
        """Input rows of both sides per CPU-second."""
        return self.rows / self.cpu_seconds


@contextmanager
def cost_of(rows: int) -> Iterator[Cost]:
    """The cost of the work in the block."""
    cost = Cost(rows, 0.0, {})
    before, started = cpu_of_tree(), time.perf_counter()
    yield cost
    cost.seconds = time.perf_counter() - started
    cost.cpu = cpu_since(before)


HASHED = ("id_left", "id_right", "b_left", "b_right", "v_left", "v_right")
HASH, ANSWER = "hash", "answer"


def observe_pairs(case: Case, rows: DataFrame) -> DataFrame:
    """The rows with a hash each; the number of rows and the sum of the hashes are among the observed metrics.

    Only pairs of files that all contenders read: ours takes more steps before and, in some cases, between. A hash has
    40 bits, so that those of eight million pairs of a micro-batch can be added up. It is a column, since within the
    sum it would be computed in a slower way.
    """
    least, end = sum(case.sizes[: case.more]), sum(case.sizes[: case.more + case.warm + case.measured])
    read_by_all = reduce(and_, (col(name).between(least, end - 1) for name in HASHED[:2]))
    hashed = rows.withColumn(HASH, when(read_by_all, shiftrightunsigned(xxhash64(*HASHED), 24)))
    total = coalesce(sum_of(HASH), lit(0))
    return hashed.observe(ANSWER, count(HASH).alias("pairs"), total.alias("sum"))


def folder_for_streams() -> tempfile.TemporaryDirectory[str]:
    """A folder that is removed in the end; Spark may still write snapshots of state into it, in the background."""
    return tempfile.TemporaryDirectory(prefix="whenabouts-", ignore_cleanup_errors=True)


class Stream:
    """One streaming query; a step is a file of each side."""

    def __init__(self, spark: SparkSession, case: Case, name: str, sides: list[list[Path]], folder: Path) -> None:
        self._spark, self._case, self._name, self._sides = spark, case, name, sides
        self._taken = 0 if name in (OURS, EXACT) else case.more
        work = folder / name.replace(", ", "-").replace(" ", "-")
        self._folders, frames = [], []
        for files in sides:
            target = work / files[0].parent.name
            target.mkdir(parents=True)
            self._folders.append(target)
            schema = spark.read.parquet(files[0].as_uri()).schema
            frames.append(spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(target.as_uri()))
        rows = self.build(*frames)
        writer = (rows if name == OURS else observe_pairs(case, rows)).writeStream.format("noop")
        self._writer = writer.option("checkpointLocation", (work / "checkpoint").as_uri())
        self.query: StreamingQuery | None = None
        self._seen, self.answer = -1, (0, 0)

    def build(self, *sides: DataFrame) -> DataFrame:
        """The rows that the query writes."""
        return BUILDERS[self._name](self._case, *sides)

    def step(self) -> Cost:
        """Process the next file of each side, and the micro-batches that follow from it."""
        with cost_of(2 * self._case.sizes[self._taken]) as cost:
            self._offer()
            self._work()
        self._add_answers()
        return cost

    def _add_answers(self) -> None:
        """Pairs of the micro-batches since the last look."""
        assert self.query is not None
        if self._name == OURS:
            return
        for progress in self.query.recentProgress:
            if progress.batchId > self._seen and ANSWER in progress.observedMetrics:  # a trigger may find nothing to do
                self._seen = progress.batchId
                pairs, total = self.answer
                more = progress.observedMetrics[ANSWER]
                self.answer = pairs + more[0], total + more[1]

    def sustained(self, steps: int) -> list[dict[str, int]]:
        """The duration of the parts of each micro-batch in milliseconds, when the next one's files are always
        present."""
        for _ in range(steps):
            self._offer()
        self._work()
        assert self.query is not None
        for target in self._folders:  # listing them would cost more from step to step
            for taken in target.iterdir():
                taken.unlink()
        rows = 2 * self._case.sizes[self._taken - 1]  # the first may begin before the other side's file exists
        return [each.durationMs for each in self.query.recentProgress if each.numInputRows == rows][-steps:]

    def _offer(self) -> None:
        for files, target in zip(self._sides, self._folders, strict=True):
            os.link(files[self._taken], target / files[self._taken].name)
        self._taken += 1

    def _work(self, attempts: int = 5) -> None:
        """Run. Spark gives Python workers 10 s to start, and a busy machine needs more."""
        while True:
            if self.query is None:
                self.query = self._started()
            try:
                self.query.processAllAvailable()
                return
            except StreamingQueryException as error:
                attempts -= 1
                if not attempts or "failed to connect back" not in str(error):
                    raise
                self.query = None

    def _started(self) -> StreamingQuery:
        """A query keeps the settings that its session has when it starts."""
        default = self._spark.conf.get(FORMAT) or ""
        self._spark.conf.set(FORMAT, "4" if self._name == V4 else default)
        try:
            return self._writer.start()
        finally:
            self._spark.conf.set(FORMAT, default)

    def stop(self) -> None:
        """The end."""
        if self.query is not None:
            self.query.stop()


@contextmanager
def streaming(spark: SparkSession, case: Case, name: str) -> Iterator[Stream]:
    """One contender alone, over its own files."""
    with folder_for_streams() as folder:
        stream = Stream(spark, case, name, write(case, Path(folder) / "waiting"), Path(folder))
        try:
            yield stream
        finally:
            stream.stop()


class Batch:
    """One batch query, repeatedly."""

    def __init__(self, spark: SparkSession, case: Case, name: str, sides: list[list[Path]], folder: Path) -> None:
        self._case = case
        frames = [spark.read.parquet(files[0].as_uri()) for files in sides]
        self._rows = BUILDERS[name](case, *frames)
        self.query, self.answer = None, (0, 0)

    def step(self) -> Cost:
        """One run."""
        with cost_of(2 * self._case.rows) as cost:
            self._rows.write.format("noop").mode("overwrite").save()
        return cost

    def found(self) -> tuple[int, int]:
        """Number of pairs, and the sum of their hashes."""
        hashed = self._rows.select(shiftrightunsigned(xxhash64(*HASHED), 24).alias(HASH))
        pairs, total = hashed.agg(count(HASH), coalesce(sum_of(HASH), lit(0))).collect()[0]
        return pairs, total

    def stop(self) -> None:
        """Nothing runs."""


@dataclass(frozen=True)
class State:
    """Bytes of our state, of the columns of its rows, and the forecast."""

    taken: int
    raw: int
    forecast: int

    def record(self, suite: Suite, name: str) -> None:
        """One series each."""
        for what, taken in (("state", self.taken), ("raw", self.raw), ("forecast", self.forecast)):
            suite.record(f"{name}, bytes / {what}", [taken], unit="byte")


@dataclass(frozen=True)
class Found:
    """Results besides times: the pairs of exact times, which all contenders agreed on, and our state."""

    pairs: int
    state: State | None

    def __str__(self) -> str:
        state = self.state
        if state is None:
            return ""
        return f"{state.taken / state.raw:.2f} raw, {state.taken / state.forecast:.2f} forecast"


def alternate(spark: SparkSession, case: Case, names: Sequence[str]) -> tuple[dict[str, list[Cost]], Found]:
    """The measured steps of each contender, and the results."""
    with folder_for_streams() as folder:
        sides = write(case, Path(folder) / "waiting")
        kind = Stream if case.streaming else Batch
        runs = {name: kind(spark, case, name, sides, Path(folder)) for name in names}
        costs: dict[str, list[Cost]] = {name: [] for name in names}
        try:
            for number in range(-case.more - case.warm, case.measured):
                for name, contender in runs.items():
                    mine = name in (OURS, EXACT)
                    if number < -case.warm and not mine:
                        continue
                    for _ in range(case.again if number >= 0 and mine else 0):
                        show(case, name, contender.step(), "again")
                    cost = contender.step()
                    show(case, name, cost, "warm" if number < 0 else "")
                    if number >= 0:
                        costs[name].append(cost)
            pairs = agreed(case, {name: contender.answer for name, contender in runs.items() if name != OURS})
            first = runs[names[0]]
            schema = pq.read_schema(sides[0][0])
            state = state_of(case, first.query, schema, exact=names[0] == EXACT) if names[0] in (OURS, EXACT) else None
            return costs, Found(pairs, state)
        finally:
            for contender in runs.values():
                contender.stop()


def agreed(case: Case, answers: dict[str, tuple[int, int]]) -> int:
    """The number of pairs. Raises ClickException unless all answers are the same."""
    if len(set(answers.values())) > 1:
        raise click.ClickException(f"{case.name}: the outputs differ: {answers}")
    return next(iter(answers.values()))[0] if answers else 0


RAW_BYTES = 5 * 8
"""Of a row: five columns of eight bytes."""


def state_of(case: Case, query: StreamingQuery | None, schema: pa.Schema, *, exact: bool) -> State | None:
    """After the last step with rows."""
    if query is None or case.slots:
        return None
    held = [metrics_of(progress) for progress in query.recentProgress if progress.numInputRows][-1]
    rows, taken = (sum(held[f"state_{what}_{side}"] for side in ("left", "right")) for what in ("rows", "bytes"))
    span_us = case.span_us(case.rows)
    rate, every = case.rows / span_us * 1_000_000, f"{span_us} us"
    forecast = forecast_state(case.query(exact=exact), [schema] * 2, [rate] * 2, every=every)
    return State(taken, rows * RAW_BYTES, round(sum(each.bytes for each in forecast.values())))


def parts(costs: list[Cost]) -> str:
    """CPU-seconds of the middle step by process kind; JIT is the JVM's compiler, which is idle once code is hot."""
    cost = middle(costs)
    return ", ".join(f"{kind} {seconds:.2f}" for kind, seconds in sorted(cost.cpu.items()) if seconds >= 0.01)


def middle(costs: list[Cost]) -> Cost:
    """The median step."""
    return sorted(costs, key=lambda cost: cost.cpu_seconds)[len(costs) // 2]


def show(case: Case, name: str, cost: Cost, note: str = "") -> None:
    """One line for one step."""
    click.echo(
        f"  {case.name:6s} {name:11s} {cost.rate:9,.0f} rows/CPU-s  {cost.cpu_seconds:6.2f} CPU-s ({parts([cost])})"
        f"  {cost.seconds:5.1f} s {note}"
    )


HEADS = {
    "case": f"| case | keys | rows a step and side | {' | '.join(BUILDERS)} | ours over native | without JIT | wanted "
    "| ours, exact over native V4 | without JIT | wanted | CPU-s a step | steps | state over | CPU |\n"
    + "| --- " * (13 + len(BUILDERS))
    + "|",
    "scaling": "| scaling | one core, rows/s | two cores, rows/s | ratio | wanted | compiler's share | CPU |\n"
    + "| --- " * 7
    + "|",
}


COLUMNS = """\
Medians of the measured steps, a step of each contender in turn: ours with intervals, ours on exact times, Spark's own
join with its default state format and with format 4 (`V4`). Rows of both sides per CPU-second of the JVM (its compiler
threads apart, as JIT: they rest once a stream has run for long), the Python workers and the driver. `without JIT`: the
ratio without the compiler. `state over`: bytes of our state over the raw bytes of the columns of the rows that it
holds, and over the forecast. `CPU`: of the machine; speeds of two differ, ratios less so. What has no line has not
been measured.

`scaling`: one join alone with two buckets, all its processes pinned to one core and to two in turn, once the JVM's
compiler is nearly at rest; micro-batches one after the other, each with the next one's files ready, and the median of
how long Spark says that they took."""


def table_row(case: Case, costs: dict[str, list[Cost]], found: Found) -> str:
    """A line of the table of results."""
    cells: list[object] = [case.name, f"{case.keys:,}", f"{case.rows:,}"]
    cells += [f"{middle(costs[name]).rate:,.0f}" if name in costs else "" for name in BUILDERS]
    for one, other, wanted in ((OURS, NATIVE, case.wanted), (EXACT, V4, case.wanted_v4)):
        if one in costs and other in costs:
            mine, theirs = middle(costs[one]), middle(costs[other])
            cells += [f"{mine.rate / theirs.rate:.1f}", f"{theirs.hot_seconds / mine.hot_seconds:.1f}", wanted]
        else:
            cells += ["", "", ""]
    spent = "; ".join(f"{name}: {parts(each)}" for name, each in costs.items())
    return f"| {' | '.join(map(str, [*cells, spent, case.measured, found, cpu_model()]))} |"


def record(out: Path, line: str) -> None:
    """Write a line into one of the file's tables, replacing an earlier one of the same case."""
    text = out.read_text() if out.exists() else ""
    rows = {row.split("|")[1].strip(): row for row in text.splitlines() if row.startswith("| ")}
    rows[line.split("|")[1].strip()] = line
    lines = ["# `benchmarks/spark_join.py`", "", machine(), "", *COLUMNS.splitlines(), ""]
    for kind, head in HEADS.items():
        names = (
            list(CASES) if kind == "case" else [f"{name}, {who}" for name in CASES for who in ("alone", "native alone")]
        )
        body = [rows[name] for name in names if name in rows]
        lines += [head, *body, ""] if body else []
    out.write_text("\n".join(lines))


def machine() -> str:
    """What the measurements ran on."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("pyspark", "pyarrow", "numpy", "numba"))
    return (
        f"{os.cpu_count()} cores; Python {platform.python_version()}, {packages}, Java {java_version()}; RocksDB state "
        "with changelogs; checkpoints for which Hadoop starts no process."
    )


def cpu_model() -> str:
    """As the machine names it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return (model or platform.machine()).replace("(R)", "")


def settle(spark: SparkSession, who: str) -> None:
    """Run small micro-batches until the JVM's compiler is nearly idle, as in a stream that has run for minutes."""
    case = replace(CASES["16k"], rows=SETTLING_ROWS, more=0, warm=0, measured=SETTLING)
    with streaming(spark, case, who) as stream:
        for _ in range(0, SETTLING, SETTLING_BLOCK):
            with cost_of(0) as cost:
                stream.sustained(SETTLING_BLOCK)
            seconds = cost.seconds / SETTLING_BLOCK
            click.echo(f"  settling {who}: {seconds:.2f} s a step, {cost.compiling:.0%} of the CPU compiles")
            if cost.compiling < SETTLED:
                return


def throughput(spark: SparkSession, case: Case, who: str) -> tuple[dict[int, list[float]], float]:
    """Seconds of each micro-batch by number of cores, which alternate, and the compiler's share of the CPU."""
    cores = sorted(os.sched_getaffinity(0))
    seconds: dict[int, list[float]] = {1: [], 2: []}
    compiling = []
    with streaming(spark, replace(case, more=0, measured=2 * TURNS * SUSTAINED, again=0), who) as stream:
        stream.sustained(case.warm)
        for turn in range(2 * TURNS):
            used = 1 + turn % 2
            pin_tree(set(cores[:used]))
            with cost_of(2 * case.rows * SUSTAINED) as cost:
                steps = stream.sustained(SUSTAINED)
            show(case, who, cost, f"in {SUSTAINED} steps, cores: {used}")
            click.echo(f"  milliseconds: { {part: median(step[part] for step in steps) for part in steps[0]} }")
            seconds[used] += [step["triggerExecution"] / 1000 for step in steps]
            compiling.append(cost.compiling)
    return seconds, median(compiling)


def scaling(names: Sequence[str], who: str, out: Path | None, suite: Suite) -> None:
    """Throughput of one of the two joins on one core and on two, in one Spark."""
    spark = session(spark__sql__shuffle__partitions=2)
    settle(spark, who)
    for name in names:
        seconds, compiling = throughput(spark, CASES[name], who)
        told = f"{name}, alone" if who == OURS else f"{name}, {who} alone"
        for used, words in ((1, "one core"), (2, "two cores")):
            suite.record(f"{told} / {words}", seconds[used], clock="wall", rows_in=2 * CASES[name].rows)
        rates = [2 * CASES[name].rows / median(each) for each in seconds.values()]
        cells = [f"{rates[0]:,.0f}", f"{rates[1]:,.0f}", f"{rates[1] / rates[0]:.2f}", "1.7", f"{compiling:.0%}"]
        cells.append(cpu_model())
        line = f"| {told} | {' | '.join(cells)} |"
        click.echo(line)
        if out is not None:
            record(out, line)
        suite.save()
    spark.stop()


def compare(
    names: Sequence[str], suite: Suite, steps: int | None, only: str | None, skipped: Sequence[str], out: Path | None
) -> None:
    """Cases one after the other in one Spark; with `only` the steps of one contender are printed and not recorded."""
    # a waiting query must not cost the other one
    spark = session(spark__sql__streaming__pollingDelay="500ms")
    for name in names:
        case = replace(CASES[name], measured=steps) if steps else CASES[name]
        left_out = set(skipped) | (set() if case.default else {NATIVE})
        run_now = [each for each in contenders(streaming=case.streaming) if each not in left_out]
        costs, found = alternate(spark, case, [only] if only else run_now)
        if only:
            continue
        for contender in costs:
            facts = {"rows_in": 2 * case.rows, "rows_out": found.pairs}
            suite.record(f"{name} / {contender}", [cost.cpu_seconds for cost in costs[contender]], **facts)
            hot = [cost.hot_seconds for cost in costs[contender]]
            suite.record(f"{name}, without JIT / {contender}", hot, **facts)
        if found.state is not None:
            found.state.record(suite, name)
        line = table_row(case, costs, found)
        click.echo(line)
        if out is not None:
            record(out, line)
        suite.save()
    spark.stop()


@click.command()
@click.option("--case", "cases", multiple=True, type=click.Choice(list(CASES)), help="default: all")
@click.option("--steps", type=int, help="measured steps, instead of the case's own")
@click.option("--only", type=click.Choice(list(BUILDERS)), help="one contender without comparison: prints its steps")
@click.option("--skip", "skipped", multiple=True, type=click.Choice(list(BUILDERS)), help="leave a contender out")
@click.option("--scaling", "scaled", multiple=True, type=click.Choice(list(CASES)), help="only this: one core and two")
@click.option("--out", type=click.Path(path_type=Path), help="keep the results in this file")
def main(
    cases: tuple[str, ...], steps: int | None, only: str | None, skipped: tuple[str, ...], scaled: tuple[str, ...],
    out: Path | None,
) -> None:  # fmt: skip
    """Medians of CPU-seconds, ours and Spark's own, and their ratio; all cases, and one core against two."""
    suite = Suite("spark_join")
    if scaled:
        scaling(scaled, only or OURS, out, suite)
        return
    compare(cases or tuple(CASES), suite, steps, only, skipped, out)
    if not (cases or only):
        scaling(SCALED, OURS, out, suite)


if __name__ == "__main__":
    main()

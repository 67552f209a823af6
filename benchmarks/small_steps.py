"""What little work costs on Spark: steady micro-batches of few rows, and small batch jobs.

    python benchmarks/small_steps.py [--rounds 5]

Streams: 2,500 rows of each side in every micro-batch, RocksDB state with changelogs, the next micro-batch's files
always ready, so that a step is the duration of a micro-batch as Spark reports it (`triggerExecution`). Contenders are
our timing join on exact times; Spark's own join with its newest state format; and a `transformWithStateInPandas` over
the same rows that keeps no state and gives no rows: nothing in Python that keeps state in Spark can take less. Each
runs until the JVM's compiler is nearly idle, then all take turns of some micro-batches.

Batch jobs: 1,000 rows of each side, files to nothing, ours and Spark's own join in turn. All have two tasks on two
cores. The pairs of the joins are hashed, and must agree. Reported are seconds by the clock, and CPU-seconds of the JVM
and Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import click
from measuring import SEPARATOR, Suite
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from spark_join import (
    EXACT,
    LATENESS,
    NATIVE,
    SETTLED,
    V4,
    Batch,
    Case,
    Stream,
    agreed,
    cost_of,
    folder_for_streams,
    newest_format,
    session,
    show,
    write,
)

if TYPE_CHECKING:
    import pandas as pd

EMPTY = "nothing in Python"
ROWS, BATCH_ROWS, KEYS = 2_500, 1_000, 1_000
TASKS = 2
SETTLING, TURN = 25, 10
"""The greatest number of turns before the measured ones, and consecutive micro-batches in each."""
WARM_JOBS, JOBS = 20, 5
"""Batch jobs before those that are measured, and in each round."""
STREAMED = f"micro-batch of {ROWS:,} rows a side"
JOB = f"batch job of {BATCH_ROWS:,} rows a side"


class Nothing(StatefulProcessor):
    """Reads all rows."""

    def init(self, handle: Any) -> None:
        """No state."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802  # Spark's
        """No output."""
        for _ in rows:
            pass
        return iter(())

    def close(self) -> None:
        """Nothing is open."""


class EmptyStream(Stream):
    """Rows of both sides, by one of as many groups as there are tasks, to `Nothing`."""

    def build(self, *sides: DataFrame) -> DataFrame:
        """No rows, with the columns that are hashed."""
        left, right = (df.withWatermark("b", LATENESS) for df in sides)
        rows = left.union(right).withColumn("task", expr(f"k % {TASKS}"))
        columns = ", ".join(
            f"{name}_{side} {kind}"
            for name, kind in (("id", "long"), ("b", "timestamp"), ("v", "double"))
            for side in ("left", "right")
        )
        return rows.groupBy("task").transformWithStateInPandas(
            statefulProcessor=Nothing(), outputStructType=columns, outputMode="Append", timeMode="EventTime"
        )


def micro_batches(spark: SparkSession, suite: Suite) -> None:
    """All contenders, each with a query of its own."""
    turns = SETTLING + suite.rounds
    case = Case("small", KEYS, ROWS, 0, 0, turns * TURN, 0)
    newest = V4 if newest_format() == 4 else NATIVE
    with ExitStack() as open_:
        folder = Path(open_.enter_context(folder_for_streams()))
        sides = write(case, folder / "waiting")
        runs = {
            name: kind(spark, case, name, sides, folder)
            for name, kind in ((EXACT, Stream), (EMPTY, EmptyStream), (newest, Stream))
        }
        for run in runs.values():
            open_.callback(run.stop)
        settle(case, runs)
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        cpu: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(suite.rounds):
            for name, run in runs.items():
                with cost_of(2 * ROWS * TURN) as cost:
                    steps = run.sustained(TURN)
                show(case, name, cost, f"in {len(steps)} steps")
                seconds[name].append(median(step["triggerExecution"] / 1000 for step in steps))
                cpu[name].append(cost.hot_seconds / TURN)
        pairs = agreed(case, {name: run.answer for name, run in runs.items() if name != EMPTY})
    facts = {"rows_in": 2 * ROWS, "rows_out": pairs}
    record(suite, STREAMED, seconds, cpu, facts)


def settle(case: Case, runs: dict[str, Stream]) -> None:
    """Turns of all contenders, until the compiler is nearly idle in each."""
    for _ in range(SETTLING):
        compiling = []
        for name, run in runs.items():
            with cost_of(2 * ROWS * TURN) as cost:
                run.sustained(TURN)
            show(case, name, cost, f"warm, {cost.compiling:.0%} of the CPU compiles")
            compiling.append(cost.compiling)
        if max(compiling) < SETTLED:
            return


def batch_jobs(spark: SparkSession, suite: Suite) -> None:
    """Ours and Spark's own in turn."""
    case = Case("job", KEYS, BATCH_ROWS, 0, 0, 0, 0, streaming=False)
    with folder_for_streams() as folder:
        sides = write(case, Path(folder) / "waiting")
        runs = {name: Batch(spark, case, name, sides, Path(folder)) for name in (EXACT, NATIVE)}
        pairs = agreed(case, {name: run.found() for name, run in runs.items()})
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        cpu: dict[str, list[float]] = {name: [] for name in runs}
        for number in range(-WARM_JOBS, JOBS * suite.rounds):
            for name, run in runs.items():
                cost = run.step()
                if number >= 0:
                    seconds[name].append(cost.seconds)
                    cpu[name].append(cost.hot_seconds)
    record(suite, JOB, seconds, cpu, {"rows_in": 2 * BATCH_ROWS, "rows_out": pairs})


def record(
    suite: Suite, what: str, seconds: dict[str, list[float]], cpu: dict[str, list[float]], facts: dict[str, Any]
) -> None:
    """Two series of each contender."""
    for name, values in seconds.items():
        suite.record(f"{what}{SEPARATOR}{name}", values, clock="wall", **facts)
        suite.record(f"{what}, CPU{SEPARATOR}{name}", cpu[name], **facts)
        click.echo(f"{what}, {name}: {median(values):.3f} s, {median(cpu[name]):.3f} CPU-s ({_spread(values)})")


def _spread(values: Iterable[float]) -> str:
    return " ".join(f"{value:.2f}" for value in sorted(values))


@click.command(help=__doc__)
@click.option("--rounds", default=5, show_default=True)
def main(rounds: int) -> None:
    """Both."""
    suite = Suite("small_steps", rounds)
    spark = session(spark__sql__shuffle__partitions=TASKS, spark__sql__streaming__pollingDelay="500ms")
    micro_batches(spark, suite)
    batch_jobs(spark, suite)
    spark.stop()
    suite.save()


if __name__ == "__main__":
    main()

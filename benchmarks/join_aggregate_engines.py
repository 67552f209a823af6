"""Join aggregates on Spark against Spark's own join and group-by: CPU-seconds of JVM and Python.

    python benchmarks/join_aggregate_engines.py [--rows 1000000] [--rounds 3] [--width 1000]

Exact times, so that Spark can say the same: for each left row the number of right rows within 1 s, the sum and the
least of their values. With keys, each has a thousand rows of each side over 20 s, so that a left row has 100 pairs
among 1,000 candidates; without, rows are spread over as long a time as gives 100 pairs. Parquet files in, Spark's
`noop` sink out. Its own join is asked for as one writes it, on the key and the difference, which tries all candidates;
and with buckets of time made by hand (`--width`, in milliseconds), into which each left row is copied. Python gets
batches of 131,072 rows, as docs/spark-speed.md recommends for narrow rows. Two rounds warm up. A run fails unless all
answers are the same. Results are with and without the JVM's compiler (JIT), which works less from run to run.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measuring import SEPARATOR, Suite
from process_cpu import cpu_of_tree

import whenabouts as wa

ROWS_OF_KEY = 1_000
SPAN_MS = 20_000
WITHIN_MS = 1_000
START_MS = 1_600_000_000_000
STRIDES = {"l": 7919, "r": 104_729}
"""Row `id` of a side has key `id * stride mod keys`."""
VALUES = 999_983
PRIME = 1_000_003

AGGREGATES = {"n": "count", "total": "sum:v", "least": "min:v"}
CALL: dict[str, Any] = {
    "on": "k", "left_time": wa.Point("t"), "right_time": wa.Point("t"), "how": "inner", "aggregates": AGGREGATES,
    "condition": wa.within(f"{WITHIN_MS} ms", confidence=1),
}  # fmt: skip

OURS = "whenabouts"
WARM = 2
"""Rounds before those that count."""

Answer = tuple[int, int, int, int]
Contender = Callable[[bool], Answer | None]
"""Gives its answer if asked to, and otherwise discards its rows."""


def side_table(side: str, rows: int, *, keyed: bool = True) -> pa.Table:
    """The rows of a side, in order of time. Without keys they are spread over as long a time as gives 100 pairs."""
    number, keys = np.arange(rows), rows // ROWS_OF_KEY if keyed else 1
    t_us = (START_MS + number * SPAN_MS // (rows if keyed else ROWS_OF_KEY)) * 1000
    return pa.table({
        "id": number, "k": number * STRIDES[side] % keys, "t": pa.array(t_us, pa.timestamp("us", "UTC")),
        "v": number * 31 % VALUES,
    })  # fmt: skip


NUMBERS = "l.id AS id, COUNT(*) AS n, SUM(r.v) AS total, MIN(r.v) AS least"


# --- Spark


def spark_contenders(folder: Path, rows: int, width_ms: int, *, keyed: bool) -> dict[str, Contender]:
    """Ours, and Spark's own join with and without buckets; without keys and buckets it would try all pairs."""
    from pyspark.sql import DataFrame, SparkSession

    from whenabouts.spark_plugin import local_session

    spark: SparkSession = local_session("benchmark", cores=2, spark__sql__execution__arrow__maxRecordsPerBatch=1 << 17)
    sides: dict[str, DataFrame] = {}
    for side in STRIDES:
        path = folder / f"{side}-{keyed}.parquet"
        if not path.exists():
            pq.write_table(side_table(side, rows, keyed=keyed), path, row_group_size=max(rows // 4, 1))
        sides[side] = spark.read.parquet(path.as_uri())
        sides[side].createOrReplaceTempView(side)
    near = f"abs(unix_micros(r.t) - unix_micros(l.t)) <= {WITHIN_MS * 1000}"
    native = f"SELECT {NUMBERS} FROM l JOIN r ON l.k = r.k AND {near} GROUP BY l.id"
    bucket = f"unix_millis(t) div {width_ms}"
    first, last = (f"(unix_millis(t) {sign} {WITHIN_MS}) div {width_ms}" for sign in "-+")
    by_hand = f"""
        SELECT {NUMBERS} FROM (SELECT *, explode(sequence({first}, {last})) AS b FROM l) l
        JOIN (SELECT *, {bucket} AS b FROM r) r ON l.k = r.k AND l.b = r.b AND {near} GROUP BY l.id"""

    def contender(frame: Callable[[], DataFrame]) -> Contender:
        def run(check: bool) -> Answer | None:
            if not check:
                frame().write.format("noop").mode("overwrite").save()
                return None
            mixed = f"(id * 31 + n * 17 + total * 13 + least * 7) % {PRIME}"
            (row,) = frame().selectExpr("count(*)", "sum(n)", "sum(total)", f"sum({mixed})").collect()
            return int(row[0]), int(row[1]), int(row[2]), int(row[3])

        return run

    call = CALL | ({} if keyed else {"on": None})
    contenders = {
        OURS: contender(lambda: wa.join_aggregate(sides["l"], sides["r"], **call)),
        "Spark's join, buckets by hand": contender(lambda: spark.sql(by_hand)),
    }
    return contenders | ({"Spark's join": contender(lambda: spark.sql(native))} if keyed else {})


# --- Measuring


def measure(suite: Suite, what: str, contenders: dict[str, Contender], rows: int) -> None:
    """All contenders alternately, after one run each that compares the answers. Raises ClickException."""
    answers = {name: run(True) for name, run in contenders.items()}
    for name, answer in answers.items():
        click.echo(f"{what}, {name}: {answer}")
    if len(set(answers.values())) > 1:
        raise click.ClickException(f"{what}: the contenders disagree: {answers}")
    spent: dict[str, list[float]] = {name: [] for name in contenders}
    hot: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(-WARM, suite.rounds):
        for name, run in contenders.items():
            if name == OURS:
                run(False)  # Spark has ended the workers that were idle for the others' minute
            before = cpu_of_tree()
            run(False)
            now = cpu_of_tree()
            parts = {kind: round(seconds - before.get(kind, 0.0), 2) for kind, seconds in now.items()}
            whole = sum(max(seconds, 0.0) for seconds in parts.values())
            click.echo(f"  {name:32s} {whole:8.2f} CPU-s  {parts}")
            if number >= 0:
                spent[name].append(whole)
                hot[name].append(whole - max(parts.get("JIT", 0.0), 0.0))
    answer = next(iter(answers.values()))
    assert answer is not None, "it was asked for"
    workload, facts = f"{what}, {rows:,} x {rows:,} rows, 100 pairs a row", {"hash": f"{answer[3]:x}"}
    for name, seconds in spent.items():
        suite.record(f"{workload}{SEPARATOR}{name}", seconds, rows_in=2 * rows, rows_out=answer[0], **facts)
        suite.record(
            f"{workload}, without JIT{SEPARATOR}{name}", hot[name], rows_in=2 * rows, rows_out=answer[0], **facts
        )


@click.command()
@click.option("--rows", default=1_000_000, show_default=True, help="Rows of each side.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--width", default=1_000, show_default=True, help="Milliseconds of a bucket made by hand.")
def main(rows: int, rounds: int, width: int) -> None:
    """Measure both workloads and save the results."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    suite = Suite("join_aggregate_engines", rounds)
    with tempfile.TemporaryDirectory(prefix="whenabouts-") as folder:
        for keyed in (True, False):
            contenders = spark_contenders(Path(folder), rows, width, keyed=keyed)
            measure(suite, "Spark, keys" if keyed else "Spark, no key", contenders, rows)
    suite.save()


if __name__ == "__main__":
    main()

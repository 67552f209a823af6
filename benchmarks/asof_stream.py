"""The as-of join of streams beside our timing join on the same rows, in process, on Spark and on Flink: CPU-seconds.

    python benchmarks/asof_stream.py [--engine NAME]... [--rows 400000] [--rounds 3]

Both sides have 1.2 events per second and key, 1,000 keys, in order of time, in files of 20,000 rows; a step reads one
file of each side. The timing join pairs rows within 0.4 s, which gives about as many rows as the as-of join: one for
each left row. `points` have exact times, `intervals` lengths of 20 to 200 ms and a confidence of 0.8. On Spark and
Flink all jobs run alternately in one JVM, and the first run of each, which compares its rows with those of finite input
in process, is not counted. DuckDB's own as-of join of the whole tables, which is no stream, is beside them.

Reported are CPU-seconds for a million rows of input, with the start of each job.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import click
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from measuring import SEPARATOR, DisagreementError, Suite, digest_of_table
from process_cpu import cpu_of_tree, cpu_since

import whenabouts as wa
from whenabouts.core.local import run, run_stream

START_US = 1_700_000_000_000_000
KEYS, PER_SECOND, FILE = 1_000, 1.2, 20_000
LATENESS = wa.Lateness(left="1 s", right="1 s")
SIDES = ("left", "right")

Job = Callable[[Path | None], pa.Table | None]
"""Runs a query over the files; its rows if it gets a folder, otherwise they are discarded."""


def queries(kind: str) -> dict[str, Any]:
    """Both joins of a workload."""
    time = wa.Point("b") if kind == "points" else wa.Interval("a", "b", max_uncertainty="200 ms")
    confidence = 1.0 if kind == "points" else 0.8
    common: dict[str, Any] = {"left_time": time, "right_time": time, "on": "k", "lateness": LATENESS}
    near = wa.within("400 ms", confidence=confidence)
    return {
        "timing join": wa.TimingJoin(**common, condition=near),
        "as-of join": wa.AsofJoin(**common, confidence=confidence),
    }


def side(seed: int, rows: int) -> pa.Table:
    """Rows in order of time, then two of a key of their own, long after them: they make the answers of all others
    final where a stream has no end."""
    random = np.random.default_rng(seed)
    end = np.sort(random.integers(0, int(rows / KEYS / PER_SECOND * 1e6), rows))
    end = START_US + np.concatenate([end, end[-1] + 3_600_000_000 * np.array([1, 2])])
    key = np.concatenate([random.integers(0, KEYS, rows), [-1, -1]])
    number = np.arange(rows + 2)
    begin = end - random.integers(20_000, 200_000, rows + 2)
    instant = pa.timestamp("us", "UTC")
    return pa.table({"k": key, "id": number, "a": pa.array(begin, instant), "b": pa.array(end, instant)})


def files_of(table: pa.Table) -> list[pa.Table]:
    """The files of a side; each of the last rows is in one of its own."""
    rows = table.num_rows - 2
    cuts = [*range(0, rows, FILE), rows, rows + 1, rows + 2]
    return [table.slice(a, b - a) for a, b in pairwise(cuts)]


def write(folder: Path, tables: Sequence[pa.Table]) -> None:
    """The files of both sides, named in their order."""
    for name, table in zip(SIDES, tables, strict=True):
        (folder / name).mkdir()
        for number, rows in enumerate(files_of(table)):
            pq.write_table(rows, folder / name / f"{number:04}.parquet")


def digest(found: pa.Table) -> tuple[int, int]:
    """Rows and hash, without the last rows."""
    kept = found.filter(pc.greater_equal(found["k"], 0)).select(["k", "id_left", "id_right", "probability"])
    return digest_of_table(kept.set_column(2, "id_right", pc.fill_null(kept["id_right"].cast(pa.int64()), -1)))


@contextmanager
def local_jobs(folder: Path, asked: dict[str, Any]) -> Iterator[dict[str, Job]]:
    """In this process."""
    read = [[pq.read_table(file) for file in sorted((folder / name).iterdir())] for name in SIDES]

    def job(query: Any, out: Path | None) -> pa.Table | None:
        found = run_stream(query, read).output
        return None if out is None else found

    yield {name: partial(job, query) for name, query in asked.items()}


@contextmanager
def spark_jobs(folder: Path, asked: dict[str, Any]) -> Iterator[dict[str, Job]]:
    """In one Spark, a micro-batch for a file of each side."""
    from whenabouts.spark_plugin import local_session
    from whenabouts.spark_plugin import run as run_on_spark

    spark = local_session("benchmark", cores=2, spark__driver__memory="3g", spark__sql__shuffle__partitions=2)

    def job(query: Any, out: Path | None) -> pa.Table | None:
        schema = "k bigint, id bigint, a timestamp, b timestamp"
        source = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        found = run_on_spark(query, [source.parquet(str(folder / name)) for name in SIDES])
        with tempfile.TemporaryDirectory(prefix="whenabouts-") as checkpoint:
            writer = found.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
            writer = writer.format("noop") if out is None else writer.format("parquet").option("path", str(out))
            writer.start().awaitTermination()
        return None if out is None else pq.read_table(out)

    yield {name: partial(job, query) for name, query in asked.items()}
    spark.stop()


@contextmanager
def flink_jobs(folder: Path, asked: dict[str, Any]) -> Iterator[dict[str, Job]]:
    """In one JVM, with blocks of files, one slot."""
    from flink_join import discard

    from whenabouts.flink_plugin import collect, local_environment, read_files
    from whenabouts.flink_plugin import run as run_on_flink

    def job(query: Any, out: Path | None) -> pa.Table | None:
        env = local_environment(1)
        found = run_on_flink(query, [read_files(env, folder / name, name=name) for name in SIDES])
        if out is not None:
            return collect(found)
        discard(found.stream)
        env.execute("benchmark")
        return None

    yield {name: partial(job, query) for name, query in asked.items()}


ENGINES = {"local": local_jobs, "Spark": spark_jobs, "Flink": flink_jobs}


def duckdb_job(tables: Sequence[pa.Table]) -> Job:
    """DuckDB's as-of join of the whole tables."""
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    for name, table in zip(SIDES, tables, strict=True):
        connection.register(f"{name}_arrow", table)
        connection.execute(f"CREATE TABLE {name}_rows AS FROM {name}_arrow")
    sql = """
        SELECT l.k, l.id AS id_left, r.id AS id_right, CASE WHEN r.id IS NOT NULL THEN 1.0 END::DOUBLE AS probability
        FROM left_rows l ASOF LEFT JOIN right_rows r ON l.k = r.k AND l.b >= r.b
    """
    return lambda out: connection.sql(sql).to_arrow_table()


@contextmanager
def written(rows: int) -> Iterator[tuple[Path, list[pa.Table]]]:
    """A folder with the files of both sides."""
    tables = [side(seed, rows) for seed in (1, 2)]
    with tempfile.TemporaryDirectory(prefix="whenabouts-") as folder:
        write(Path(folder), tables)
        yield Path(folder), tables


def measure(suite: Suite, engine: str, kind: str, rows: int) -> dict[str, float]:
    """Both joins alternately, after one run each whose rows are compared; the median CPU-microseconds of a row."""
    asked = queries(kind)
    with written(rows) as (folder, tables), ENGINES[engine](folder, asked) as jobs:
        if kind == "points":
            jobs["DuckDB, no stream"] = duckdb_job(tables)
        answers = {name: _answer(job) for name, job in jobs.items()}
        for name, answer in answers.items():
            query = asked.get(name, asked["as-of join"])
            if answer != digest(run(query, tables).output):
                raise DisagreementError(f"{name} of {kind} on {engine} gave other rows than in a batch: {answer}")
        spent: dict[str, list[float]] = {name: [] for name in jobs}
        for _ in range(suite.rounds):
            for name, job in jobs.items():
                before = cpu_of_tree()
                job(None)
                spent[name].append(sum(cpu_since(before).values()) / (2 * rows) * 1e6)
    found = {name: median(costs) for name, costs in spent.items()}
    for name, costs in spent.items():
        number, hashed = answers[name]
        series = f"a million rows of {kind} on {engine}{SEPARATOR}{name}"
        suite.record(series, costs, rows_in=2 * rows, rows_out=number, hash=f"{hashed:x}")
        click.echo(f"{kind} on {engine}, {name}: {found[name]:.2f} us of CPU a row, {number:,} rows")
    return found


def _answer(job: Job) -> tuple[int, int]:
    with tempfile.TemporaryDirectory(prefix="whenabouts-") as folder:
        found = job(Path(folder) / "out")
        assert found is not None
        answer = digest(found)
        shutil.rmtree(Path(folder) / "out", ignore_errors=True)
    return answer


@click.command(help=__doc__)
@click.option("--engine", "engines", multiple=True, type=click.Choice(list(ENGINES)), help="All of them unless given.")
@click.option("--kind", "kinds", multiple=True, type=click.Choice(["points", "intervals"]), help="Both unless given.")
@click.option("--rows", default=400_000, show_default=True, help="Rows of a side.")
@click.option("--rounds", default=3, show_default=True)
def main(engines: tuple[str, ...], kinds: tuple[str, ...], rows: int, rounds: int) -> None:
    """Measure all of them."""
    suite = Suite("asof_stream", rounds)
    told = []
    for engine in engines or ENGINES:
        for kind in kinds or ("points", "intervals"):
            costs = measure(suite, engine, kind, rows)
            told.append(f"{kind} on {engine}: " + ", ".join(f"{name} {us:.2g} us" for name, us in costs.items()))
    if not engines:
        suite.finding("As-of joins: a row of a stream", "; ".join(told) + ". CPU of all processes.")
    suite.save()


if __name__ == "__main__":
    main()

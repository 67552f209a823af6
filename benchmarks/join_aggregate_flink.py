"""Join aggregates on Flink against Flink's own join and group-by: CPU-seconds of JVM and Python.

    python benchmarks/join_aggregate_flink.py [--form NAME]... [--rounds 4]

The rows and the question of `join_aggregate_engines.py`: for each left row the number of right rows within 1 s, the sum
and the least of their values; each key has a thousand rows of each side over 20 s, so that a left row has 100 pairs
among 1,000 candidates. Flink's own forms: the batch join as one writes it, on the key and the difference; the batch
join with buckets of time made by hand, into which each left row is copied; and the interval join of a stream with an
aggregate in mini-batches. Ours: Tables and blocks, in batch and as a stream. Flink's forms and our Tables have the same
source, which gives the sides in turn, and the same sink, both in the JVM; blocks are read from Parquet files, which
Flink's pip package cannot read. All reuse objects (`pipeline.object-reuse`): Flink's own forms gain most by it. Its
choices of hash joins and of aggregates in two phases are the fastest it has.

Each form runs with two numbers of rows, once to warm up and then in each round. Reported are CPU-seconds per million
rows of both sides: of the larger run with the start of its job, and of each further row. A run fails unless all
answers are the same.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from flink_join import discard
from join_aggregate_engines import CALL, PRIME, ROWS_OF_KEY, SPAN_MS, START_MS, STRIDES, VALUES, side_table
from measuring import SEPARATOR, Suite
from process_cpu import cpu_of_tree, cpu_since
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.table import StreamTableEnvironment

from whenabouts.flink_plugin import collect, join_aggregate, local_environment
from whenabouts.flink_plugin.file_source import read_files

WIDTH_MS = 1_000
"""A bucket made by hand: half of what it looks for on each side of a row, the fastest of those tried."""

TABLE = """
    CREATE TEMPORARY TABLE rows_of_both (
        id BIGINT, t AS TO_TIMESTAMP_LTZ({start} + id / 2 * {span} / {rows}, 3){watermark}
    ) WITH ('connector' = 'datagen', 'rows-per-second' = '1000000000', 'fields.id.kind' = 'sequence',
            'fields.id.start' = '0', 'fields.id.end' = '{last}', 'number-of-rows' = '{both}')
"""
WATERMARK = ", WATERMARK FOR t AS t - INTERVAL '1' SECOND"
"""In a stream only: with it, Flink's planner fails on the batch join."""
VIEW = """
    CREATE TEMPORARY VIEW {side} AS
    SELECT id / 2 AS id, MOD(id / 2 * {stride}, {keys}) AS k, t, MOD(id / 2 * 31, CAST({values} AS BIGINT)) AS v
    FROM rows_of_both WHERE MOD(id, 2) = {parity}
"""
NUMBERS = "l.id AS id, COUNT(*) AS n, SUM(r.v) AS total, MIN(r.v) AS least"
NEAR = "l.t BETWEEN r.t - INTERVAL '1' SECOND AND r.t + INTERVAL '1' SECOND"
NATIVE = f"SELECT {NUMBERS} FROM l JOIN r ON l.k = r.k AND {NEAR} GROUP BY l.id"
MS = f"({START_MS} + id * {SPAN_MS} / {{rows}})"
BY_HAND = f"""
    SELECT {NUMBERS} FROM (
        SELECT id, k, t, {MS} / {WIDTH_MS} + step AS b FROM l CROSS JOIN (VALUES (-1), (0), (1)) AS steps(step)
    ) AS l JOIN (SELECT k, t, v, {MS} / {WIDTH_MS} AS b FROM r) AS r
    ON l.k = r.k AND l.b = r.b AND {NEAR} GROUP BY l.id"""

Answer = tuple[int, int, int, int]


@dataclass(frozen=True)
class Form:
    """A way to say it; `rows` of a side, and how many they are in the larger run: fewer where each costs more."""

    name: str
    run: Callable[..., Answer | None]
    streaming: bool = False
    rows: int = 100_000
    more: int = 1_000_000


def environment(form: Form) -> StreamExecutionEnvironment:
    """One slot that reuses objects."""
    return local_environment(1, streaming=form.streaming, pipeline__object_reuse="true")


def tables_of(form: Form, rows: int) -> StreamTableEnvironment:
    """Both sides in a job of one slot."""
    tables = StreamTableEnvironment.create(environment(form))
    watermark = WATERMARK if form.streaming else ""
    tables.execute_sql(
        TABLE.format(start=START_MS, span=SPAN_MS, rows=rows, both=2 * rows, last=2 * rows - 1, watermark=watermark)
    )
    for parity, (side, stride) in enumerate(STRIDES.items()):
        keys = rows // ROWS_OF_KEY
        tables.execute_sql(VIEW.format(side=side, stride=stride, keys=keys, values=VALUES, parity=parity))
    return tables


def run_sql(form: Form, rows: int, folder: Path, *, check: bool, query: str = NATIVE) -> Answer | None:
    """Flink's own."""
    tables = tables_of(form, rows)
    if form.streaming:
        options = {"enabled": "true", "allow-latency": "1 s", "size": "100000"}
        for name, value in options.items():
            tables.get_config().set(f"table.exec.mini-batch.{name}", value)
    return _sql(tables, query.format(rows=rows), check=check)


def _sql(tables: StreamTableEnvironment, query: str, *, check: bool) -> Answer | None:
    if check:
        mixed = f"CAST(MOD(id * 31 + n * 17 + total * 13 + least * 7, {PRIME}) AS BIGINT)"
        whole = f"SELECT COUNT(*), SUM(n), SUM(total), SUM({mixed}) FROM ({query})"
        with tables.execute_sql(whole).collect() as found:
            last = [tuple(row) for row in found][-1]
        return int(last[0]), int(last[1]), int(last[2]), int(last[3])
    columns = "id BIGINT, n BIGINT, total BIGINT, least BIGINT"
    tables.execute_sql(f"CREATE TEMPORARY TABLE gone ({columns}) WITH ('connector' = 'blackhole')")
    tables.execute_sql(f"INSERT INTO gone {query}").wait()
    return None


def _call(form: Form) -> dict[str, Any]:
    return CALL | ({"lateness": "1 s"} if form.streaming else {})


def run_tables(form: Form, rows: int, folder: Path, *, check: bool) -> Answer | None:
    """Ours from Tables to a Table."""
    tables = tables_of(form, rows)
    sides = [tables.sql_query(f"SELECT id, k, t, v FROM {side}") for side in STRIDES]
    found = join_aggregate(*sides, **_call(form))
    if check:
        return answer_of(collect(found))
    tables.create_temporary_view("found", found)
    return _sql(tables, "SELECT id, n, total, least FROM found", check=False)


def run_blocks(form: Form, rows: int, folder: Path, *, check: bool) -> Answer | None:
    """Ours from Parquet files."""
    env = environment(form)
    paths = {side: folder / f"{side}-{rows}" / "rows.parquet" for side in STRIDES}
    for side, path in paths.items():
        if not path.exists():
            path.parent.mkdir()
            pq.write_table(side_table(side, rows), path)
    found = join_aggregate(*(read_files(env, path, name=side) for side, path in paths.items()), **_call(form))
    if check:
        return answer_of(collect(found))
    discard(found.stream)
    env.execute("ours")
    return None


def answer_of(rows: pa.Table) -> Answer:
    """What `_sql` asks for."""
    n, total, least = (rows.column(name) for name in ("n", "total", "least"))
    parts = zip((rows.column("id"), n, total, least), (31, 17, 13, 7), strict=True)
    mixed = sum(np.asarray(column) * factor for column, factor in parts) % PRIME
    return rows.num_rows, pc.sum(n).as_py(), pc.sum(total).as_py(), int(mixed.sum())


FORMS = {
    form.name: form
    for form in (
        Form("Flink's batch join, buckets by hand", partial(run_sql, query=BY_HAND), rows=50_000, more=250_000),
        Form("Flink's batch join", run_sql, rows=50_000, more=200_000),
        Form("Flink's interval join", run_sql, streaming=True, rows=10_000, more=50_000),
        Form("Tables, batch", run_tables),
        Form("blocks, batch", run_blocks),
        Form("Tables, stream", run_tables, streaming=True),
        Form("blocks, stream", run_blocks, streaming=True),
    )
}
CHECKED = 20_000
"""Rows of a side whose answers are compared."""

WORKLOAD = "100 pairs a row, keys"
FURTHER = "100 pairs a row, keys, each further row"


def measure(suite: Suite, names: tuple[str, ...]) -> None:
    """All forms alternately, after one run each that compares the answers, and one that warms up."""
    answers: set[Answer | None] = set()
    spent: dict[str, list[list[float]]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory(prefix="whenabouts-") as name_of_folder:
        folder = Path(name_of_folder)
        for form in map(FORMS.__getitem__, names):
            answers.add(form.run(form, CHECKED, folder, check=True))
            click.echo(f"{form.name}: (rows, pairs, sum, hash) {answers}")
            form.run(form, form.more, folder, check=False)
        if len(answers) > 1:
            raise click.ClickException(f"the contenders disagree: {answers}")
        for number in range(suite.rounds):
            for form in map(FORMS.__getitem__, names):
                costs = []
                for rows in (form.rows, form.more):
                    before = cpu_of_tree()
                    form.run(form, rows, folder, check=False)
                    costs.append(sum(cpu_since(before).values()))
                spent[form.name].append(costs)
                click.echo(f"round {number}, {form.name}: {costs[0]:.2f} and {costs[1]:.2f} CPU-s")
    for name, costs_of_rounds in spent.items():
        form = FORMS[name]
        whole = [many / (2 * form.more) * 1e6 for _, many in costs_of_rounds]
        slope = [(many - few) / (2 * (form.more - form.rows)) * 1e6 for few, many in costs_of_rounds]
        suite.record(WORKLOAD + SEPARATOR + name, whole, rows_in=2 * form.more)
        suite.record(FURTHER + SEPARATOR + name, slope, rows_in=2 * (form.more - form.rows))
        click.echo(f"{name}: us a row: {statistics.median(whole):.2f}, each further {statistics.median(slope):.2f}")


@click.command(help=__doc__)
@click.option("--form", "forms", multiple=True, type=click.Choice(list(FORMS)), help="All of them unless given.")
@click.option("--rounds", default=4, show_default=True)
def main(forms: tuple[str, ...], rounds: int) -> None:
    """Measure and save the results."""
    suite = Suite("join_aggregate_flink", rounds)
    measure(suite, forms or tuple(FORMS))
    suite.save()


if __name__ == "__main__":
    main()

"""Coalescing of readings, from Arrow tables to Arrow tables, against Polars and DuckDB with the same columns.

    python benchmarks/coalesce.py [--rows 10000000] [--groups 1000] [--rounds 3] [--order sorted|shuffled]

Readings in order of time and shuffled, with a coalescing probability of 0.5 and 0.9. Polars gets two forms: `rle_id`
over groups, then a group-by; and, two to three times as fast, a sort by group and comparisons of neighbours. DuckDB
gets gaps-and-islands with window functions, and runs once, being an order of magnitude slower. One thread each, in one
process; it fails unless all give the same rows.
"""

from __future__ import annotations

import os

os.environ["POLARS_MAX_THREADS"] = "1"

from functools import partial

import click
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
from measuring import Suite, digest_of_table

from whenabouts.core.local import coalesce

ISLANDS = """
WITH marked AS (
    SELECT g, t, v, CASE WHEN v = lag(v) OVER w THEN 0 ELSE 1 END AS begins, lead(t, 1, t) OVER w AS until
    FROM readings WINDOW w AS (PARTITION BY g ORDER BY t)),
numbered AS (SELECT *, sum(begins) OVER (PARTITION BY g ORDER BY t ROWS UNBOUNDED PRECEDING) AS run FROM marked)
SELECT g, first(v) AS v, min(t) AS valid_from, max(until) AS valid_to, count(*) AS n FROM numbered GROUP BY g, run
"""


def readings(rows: int, groups: int, cp: float, shuffled: bool) -> pa.Table:
    """One reading of a random group each millisecond; a value changes with probability 1 - cp."""
    rng = np.random.default_rng(7)
    group = rng.integers(0, groups, rows)
    by_group = np.argsort(group, kind="stable")
    value = np.empty(rows)
    value[by_group] = np.cumsum(rng.random(rows) >= cp) % 1000
    t = 1_700_000_000_000_000 + 1000 * np.arange(rows)
    order = rng.permutation(rows) if shuffled else np.arange(rows)
    return pa.table({"g": group[order], "t": t[order], "v": value[order]})


def ours(table: pa.Table) -> pa.Table:
    """The call under test."""
    return coalesce(table, time="t", group="g", values="v")


def in_polars(table: pa.Table, shuffled: bool) -> pa.Table:
    """Polars, which sorts only if necessary."""
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    if shuffled:
        frame = frame.sort("t")
    runs = (
        frame.lazy()
        .with_columns(run=pl.col("v").rle_id().over("g"), until=pl.col("t").shift(-1).over("g").fill_null(pl.col("t")))
        .group_by("g", "run")
        .agg(pl.col("v").first(), valid_from=pl.col("t").first(), valid_to=pl.col("until").last(), n=pl.len())
        .select("g", "v", "valid_from", "valid_to", pl.col("n").cast(pl.Int64))
    )
    return runs.collect().to_arrow()


def in_polars_by_sorting(table: pa.Table, shuffled: bool) -> pa.Table:
    """Polars without hashing: rows by group, neighbours compared, then the first and the last row of each run.

    Rows in order of time are sorted by group, stably; others by one integer that holds group and time, since a sort by
    two columns takes it two to three times as long.
    """
    group, time, value = pl.col("g"), pl.col("t"), pl.col("v")
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    by = group * 2**40 + (time - time.min()) if shuffled else group
    marked = (
        frame.sort(by, maintain_order=not shuffled)
        .lazy()
        .with_columns(
            begins=((group != group.shift()) | (value != value.shift())).fill_null(True),
            until=pl.when(group == group.shift(-1)).then(time.shift(-1)).otherwise(time),
        )
        .with_row_index("row")
        .with_columns(pl.col("row").cast(pl.Int64), ends=pl.col("begins").shift(-1).fill_null(True))
        .collect()
    )
    first = marked.filter(pl.col("begins")).select("g", "v", "row", valid_from="t")
    last = marked.filter(pl.col("ends")).select(valid_to="until", last="row")
    count = pl.col("last") - pl.col("row") + 1
    return first.with_columns(last).select("g", "v", "valid_from", "valid_to", n=count).to_arrow()


def in_duckdb(table: pa.Table) -> pa.Table:
    """DuckDB on the same table."""
    connection = duckdb.connect(config={"threads": 1})
    connection.register("readings", table)
    return connection.sql(ISLANDS).to_arrow_table()


@click.command()
@click.option("--rows", default=10_000_000, show_default=True)
@click.option("--groups", default=1_000, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--order", type=click.Choice(["sorted", "shuffled"]), multiple=True, default=["sorted", "shuffled"])
def main(rows: int, groups: int, rounds: int, order: tuple[str, ...]) -> None:
    """Time all alternately, and print medians and ratios."""
    pa.set_cpu_count(1)
    suite = Suite("coalesce", rounds)
    for name in order:
        for cp in (0.5, 0.9):
            table = readings(rows, groups, cp, name == "shuffled")
            contenders = {
                "whenabouts": partial(ours, table),
                "Polars": partial(in_polars, table, name == "shuffled"),
                "Polars by sorting": partial(in_polars_by_sorting, table, name == "shuffled"),
                "DuckDB": partial(in_duckdb, table),
            }
            suite.compare(f"{rows:,} readings {name}, cp {cp}", contenders, digest, once=["DuckDB"], rows_in=rows)
    suite.save()


def digest(runs: pa.Table) -> tuple[int, int]:
    """Digest of the columns in one order and with one type each."""
    names = ["g", "v", "valid_from", "valid_to", "n"]
    types = [pa.int64(), pa.float64(), pa.int64(), pa.int64(), pa.int64()]
    return digest_of_table(runs.select(names).cast(pa.schema(list(zip(names, types, strict=True)))))


if __name__ == "__main__":
    main()

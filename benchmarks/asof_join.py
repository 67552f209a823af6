"""The as-of join of exact times against Polars, pandas and DuckDB: whole calls, from frames in memory to a frame.

    python benchmarks/asof_join.py                         # 10M x 10M rows: 1,000 keys and no key, sorted and shuffled
    python benchmarks/asof_join.py --rows 1000000 --rounds 1

Each side has a key, a time and a payload column; each left row gets the last right row at or before it, and left rows
without one stay. Instants are unique, so that all contenders have one answer, and a run fails unless their rows have
the same hash. Shuffled input is sorted by us and by DuckDB in the call; Polars and pandas get a sort before theirs,
which is part of their time. One thread each. CPU-seconds of the process, wall seconds beside them.
"""

from __future__ import annotations

import os

os.environ["POLARS_MAX_THREADS"] = "1"  # read when polars is imported

from collections.abc import Callable
from typing import Any

import click
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from measuring import Suite, digest_of_columns

import whenabouts as wa

START_US = 1_700_000_000_000_000
KEYS = 1_000
TIMES: dict[str, Any] = {"left_time": wa.Point("t"), "right_time": wa.Point("t")}

Contender = Callable[[], Any]


def side(seed: int, rows: int, *, keyed: bool, shuffled: bool) -> pa.Table:
    """Rows at unique instants, 100 us apart on average."""
    random = np.random.default_rng(seed)
    columns = {
        "k": random.integers(0, KEYS, rows),
        "t": START_US + np.cumsum(random.integers(1, 200, rows)),
        "price" if seed else "size": random.random(rows),
    }
    if not keyed:
        del columns["k"]
    order = random.permutation(rows) if shuffled else slice(None)
    return pa.table({name: values[order] for name, values in columns.items()})


def contenders(left: pa.Table, right: pa.Table, *, shuffled: bool) -> dict[str, Contender]:
    """Each library's call. Frames are made before, in the form that it likes best."""
    by = "k" if "k" in left.column_names else None
    frames = [pl.DataFrame(left), pl.DataFrame(right)]
    pandas = [left.to_pandas(), right.to_pandas()]
    connection = duckdb.connect()
    connection.execute("SET threads = 1; SET preserve_insertion_order = false")
    for name, table in (("l", left), ("r", right)):
        connection.register(f"{name}_arrow", table)
        connection.execute(f"CREATE TABLE {name} AS FROM {name}_arrow")
    same = "l.k = r.k AND " if by else ""
    sql = f"SELECT l.t, l.size, r.price FROM l ASOF LEFT JOIN r ON {same}l.t >= r.t"

    def of_polars() -> pl.DataFrame:
        sides = [frame.sort("t") for frame in frames] if shuffled else frames
        return sides[0].join_asof(sides[1], on="t", by=by, check_sortedness=False)

    def of_pandas() -> pd.DataFrame:
        sides = [frame.sort_values("t") for frame in pandas] if shuffled else pandas
        return pd.merge_asof(*sides, on="t", by=by)

    return {
        "whenabouts": lambda: wa.asof_join(left, right, on=by, probability=False, **TIMES),
        "whenabouts with probabilities": lambda: wa.asof_join(left, right, on=by, **TIMES),
        "Polars": of_polars,
        "pandas": of_pandas,
        "DuckDB": lambda: connection.sql(sql).to_arrow_table(),
    }


def digest(found: Any) -> tuple[int, int]:
    """Rows and hash of what all contenders have: the left time and payload, and the price, NaN if there is none."""
    t = "t_left" if isinstance(found, pa.Table) and "t_left" in found.column_names else "t"
    columns = []
    for name in (t, "size", "price"):
        if isinstance(found, pl.DataFrame):
            columns.append(found[name].to_numpy())
        elif isinstance(found, pa.Table):
            columns.append(found.column(name).to_numpy())
        else:
            columns.append(found[name].to_numpy())
    columns[2] = np.nan_to_num(columns[2].astype(np.float64), nan=-1.0)
    return digest_of_columns([columns])


@click.command()
@click.option("--rows", default=10_000_000, show_default=True, help="Rows of each side.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--only", default="", help="Workloads whose name contains this.")
def main(rows: int, rounds: int, only: str) -> None:
    """Measure each workload and save the results."""
    suite = Suite("asof_join", rounds)
    for keyed in (True, False):
        for shuffled in (False, True):
            keys, order = f"{KEYS:,} keys" if keyed else "no key", "shuffled" if shuffled else "sorted"
            name = f"{rows:,} x {rows:,}, {keys}, {order}"
            if only in name:
                tables = [side(seed, rows, keyed=keyed, shuffled=shuffled) for seed in (0, 1)]
                suite.compare(name, contenders(*tables, shuffled=shuffled), digest)
    suite.save()


if __name__ == "__main__":
    main()

"""Window joins against peers: cliques in batch, and real catalogues. The paper's curves: window_join_curves.py.

    python benchmarks/window_join.py [cliques|real ...]

CPU seconds of this process (all its threads), medians of `ROUNDS`; the script checks that every peer gives the same
combinations. Real data is in the folder that WHENABOUTS_DATA names; without it this part is left out.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from measuring import Suite, digest_of_table

from whenabouts.core import Interval, Point, within
from whenabouts.core.local import run, window_join
from whenabouts.core.window_join.query import WindowJoin

ROUNDS = 5
SECOND = 1_000_000
FIRST = 1_700_000_000 * SECOND
"""The first instant: integers near zero would be taken for seconds."""


def cpu(work: Callable[[], Any], rounds: int = ROUNDS) -> tuple[float, Any]:
    """Median CPU seconds, and the result of the last round."""
    spent, result = [], work()  # once to warm up
    for _ in range(rounds):
        begun = time.process_time()
        result = work()
        spent.append(time.process_time() - begun)
    return median(spent), result


def streams(k: int, rows: int, keys: int, per_key_and_second: float, seed: int = 1) -> dict[str, pa.Table]:
    """`k` streams of `rows` rows in time order, Poisson arrivals."""
    random = np.random.default_rng(seed)
    seconds = rows / (keys * per_key_and_second)
    return {
        f"s{place}": pa.table(
            {
                "k": random.integers(0, keys, rows),
                "t": FIRST + np.sort(random.integers(0, int(seconds * SECOND), rows)),
                "id": np.arange(rows),
            }
        )
        for place in range(k)
    }


def uniform_clique(tables: Mapping[str, pa.Table], width: int, **options: Any) -> WindowJoin:
    """All pairs, one window."""
    pairs = dict.fromkeys(itertools.combinations(tables, 2), width)
    return WindowJoin(times=dict.fromkeys(tables, Point("t")), windows=pairs, on="k", **options)


def columns_of(names: Iterable[str]) -> list[str]:
    """The columns of every contender: the key, every stream's time and row number, and the first and last instant."""
    return ["k", *(f"{column}_{name}" for name in names for column in ("t", "id")), "t_first", "t_last"]


def duckdb_as_written(tables: Mapping[str, pa.Table], width: int) -> pa.Table:
    """The band join as a user would write it."""
    import duckdb

    with duckdb.connect() as base:
        return base.sql(_sql(base, tables, width, lambda one, other: f"{one}.k = {other}.k")).to_arrow_table()


def duckdb_by_slots(tables: Mapping[str, pa.Table], width: int) -> pa.Table:
    """The same, with the first stream's rows copied to three time slots, so that every join is a narrow hash join."""
    import duckdb

    with duckdb.connect() as base:
        slot = f"t // {width}"
        for name, table in tables.items():
            base.register(f"raw_{name}", table)
            base.sql(f"CREATE TABLE {name} AS SELECT *, {slot} AS slot FROM raw_{name}")
        first, *others = tables
        joins = " ".join(
            f"JOIN {o} ON a.k = {o}.k AND {o}.slot = a.near AND abs({o}.t - a.t) <= {width}" if at == 0
            else f"JOIN {o} ON a.k = {o}.k AND {o}.slot BETWEEN a.slot - 1 AND a.slot + 1 AND " + " AND ".join(
                f"abs({o}.t - {p}.t) <= {width}" for p in ("a", *others[:at]))
            for at, o in enumerate(others)
        )  # fmt: skip
        columns = _columns({name: "a" if name == first else name for name in tables})
        near = f"(SELECT *, unnest([slot - 1, slot, slot + 1]) AS near FROM {first}) a"
        return base.sql(f"SELECT {columns} FROM {near} {joins}").to_arrow_table()


def _sql(base: Any, tables: Mapping[str, pa.Table], width: int, same: Callable[[str, str], str]) -> str:
    names = list(tables)
    for name, table in tables.items():
        base.register(name, table)
    joins = [
        f"JOIN {name} ON {same(names[0], name)} AND "
        + " AND ".join(f"abs({name}.t - {other}.t) <= {width}" for other in names[:place])
        for place, name in enumerate(names)
        if place
    ]
    return f"SELECT {_columns({name: name for name in names})} FROM {names[0]} {' '.join(joins)}"


def _columns(aliases: Mapping[str, str]) -> str:
    """The columns of `columns_of` in SQL, by stream the alias of its table."""
    own = ", ".join(f"{alias}.t AS t_{name}, {alias}.id AS id_{name}" for name, alias in aliases.items())
    times = ", ".join(f"{alias}.t" for alias in aliases.values())
    first = next(iter(aliases.values()))
    return f"{first}.k AS k, {own}, least({times}) AS t_first, greatest({times}) AS t_last"


def polars_by_slots(tables: Mapping[str, pa.Table], width: int) -> pa.Table:
    """Hash joins on (key, slot of the first row's time), the others copied to three slots, then a filter."""
    import polars as pl

    frames = [
        pl.from_arrow(table).select("k", pl.col("t").alias(f"t_{name}"), pl.col("id").alias(f"id_{name}")).lazy()
        for name, table in tables.items()
    ]
    names = list(tables)
    found = frames[0].with_columns(slot=pl.col(f"t_{names[0]}") // width)
    for place, name in enumerate(names[1:], start=1):
        slot = pl.col(f"t_{name}") // width
        near = frames[place].with_columns(slot=pl.concat_list(slot - 1, slot, slot + 1)).explode("slot")
        found = found.join(near, on=["k", "slot"])
        for other in names[:place]:
            found = found.filter((pl.col(f"t_{name}") - pl.col(f"t_{other}")).abs() <= width)
    times = [f"t_{name}" for name in names]
    spans = found.with_columns(t_first=pl.min_horizontal(times), t_last=pl.max_horizontal(times))
    return spans.select(columns_of(names)).collect().to_arrow()


def _ours(query: WindowJoin, tables: list[pa.Table]) -> pa.Table:
    return run(query, tables).output


def cliques() -> None:
    """3- and 5-way uniform cliques, hash, against DuckDB and Polars.

    A row has two neighbours in each other stream, if sparse 0.4, if dense 4.
    """
    suite = Suite("window_join", ROUNDS)
    for name, k, rows, per_key in (
        ("3-way clique", 3, 100_000, 0.05),
        ("5-way clique", 5, 100_000, 0.05),
        ("5-way clique, sparse", 5, 100_000, 0.01),
        ("5-way clique, dense", 5, 30_000, 0.1),
    ):
        tables, width = streams(k, rows, 1_000, per_key), 20 * SECOND
        rows_of = list(tables.values())
        works: dict[str, Callable[[], pa.Table]] = {
            f"whenabouts {label}": partial(_ours, uniform_clique(tables, width, strategy=strategy), rows_of)
            for label, strategy in (("auto", "auto"), ("bew", "backward"), ("few", "forward"))
        }
        works["DuckDB as written"] = partial(duckdb_as_written, tables, width)
        works["DuckDB by slots"] = partial(duckdb_by_slots, tables, width)
        works["Polars by slots"] = partial(polars_by_slots, tables, width)
        suite.compare(name, works, partial(digest, names=list(tables)), rows_in=k * rows)
    suite.save()


def digest(combinations: pa.Table, names: Sequence[str]) -> tuple[int, int]:
    """Digest of the combinations as integers."""
    columns = columns_of(names)
    return digest_of_table(combinations.select(columns).cast(pa.schema([(name, pa.int64()) for name in columns])))


def real() -> None:
    """Real catalogues, against the same query in SQL."""
    import duckdb

    folder = Path(os.environ.get("WHENABOUTS_DATA", ""))
    if not (folder / "ridgecrest_catalogs.parquet").is_file():
        print("real data: WHENABOUTS_DATA names no folder with it")
        return
    base = duckdb.connect()
    possible = 5e-324
    ask = f"""SELECT catalog AS name, epoch_us(t) AS t,
      epoch_us(t) - (1000000 * coalesce(2*sigma_s, 2*rms_s, 0.005)::DOUBLE)::BIGINT AS lo,
      epoch_us(t) + (1000000 * coalesce(2*sigma_s, 2*rms_s, 0.005)::DOUBLE)::BIGINT AS hi
      FROM '{folder}/ridgecrest_catalogs.parquet' WHERE t BETWEEN '2019-07-04 17:02:50' AND '2019-07-04 23:59:50'"""
    _real("Ridgecrest, 3 catalogues within 3 s", base, ask, ("SCSN", "GaMMA", "PAL_HYPOINVERSE"), 3 * SECOND, possible)
    ask = f"""SELECT device AS name, epoch_us(server_recv) AS t, epoch_us(server_recv) AS hi,
      epoch_us(server_recv) - 1000 * (epoch_ms(ack)-epoch_ms(send)-epoch_ms(server_done)+epoch_ms(server_recv)) AS lo
      FROM '{folder}/s9_d1_ooo_events.parquet'"""
    _real("S-9, 3 devices within 250 ms", base, ask, ("dev_12", "dev_5", "dev_7"), SECOND // 4, possible)
    ask = f"""SELECT mote::VARCHAR AS name, epoch_us(recv_ts) AS t, epoch_us(recv_ts) - 15000000 AS lo,
      epoch_us(recv_ts) AS hi, floor(temperature)::INT AS k
      FROM '{folder}/intel_lab_20040304_20040308.parquet' WHERE temperature IS NOT NULL"""
    _real("Intel motes 21-22-23 within 30 s", base, ask, ("21", "22", "23"), 30 * SECOND, possible, on="k")


def _real(
    title: str, base: Any, ask: str, names: tuple[str, ...], width: int, confidence: float, on: str | None = None
) -> None:
    tables = {
        name: base.sql(f"SELECT * FROM ({ask}) WHERE name = '{name}' AND lo <= hi ORDER BY t").to_arrow_table()
        for name in names
    }
    pairs = list(itertools.combinations(names, 2))
    interval = Interval("lo", "hi")
    key = f" AND b.{on} = a.{on}" if on else ""
    spent, found = cpu(
        lambda: window_join(
            tables, on=on, time=interval, joint=True,
            windows={pair: within(width, confidence=confidence) for pair in pairs},
        ), 1,
    )  # fmt: skip
    points = window_join(tables, on=on, time=Point("t"), windows=dict.fromkeys(pairs, width))
    for name, table in tables.items():
        base.register(f"r_{name}", table)
    a, b, c = (f"r_{name}" for name in names)
    joined = f'FROM "{a}" a JOIN "{b}" b ON true{key} JOIN "{c}" c ON true{key.replace("b.", "c.")} WHERE '
    near = " AND ".join(f"{x}.lo - {y}.hi < {width} AND {y}.lo - {x}.hi < {width}" for x, y in ("ab", "bc", "ac"))
    exact = " AND ".join(f"abs({x}.t - {y}.t) <= {width}" for x, y in ("ab", "bc", "ac"))
    counts = [base.sql(f"SELECT count(*) {joined} {where}").fetchall()[0][0] for where in (near, exact)]
    assert counts == [found.num_rows, points.num_rows], (counts, found.num_rows, points.num_rows)
    joint = found.column("probability").to_numpy()
    print(
        f"  {title}: {found.num_rows:,} possible, {points.num_rows:,} by point times, as in SQL; "
        f"{np.count_nonzero(joint >= 0.5):,} with a joint probability of a half or more ({spent:.2f} s)"
    )


SECTIONS: dict[str, Callable[[], None]] = {section.__name__: section for section in (cliques, real)}

if __name__ == "__main__":
    for section in sys.argv[1:] or SECTIONS:
        SECTIONS[section]()

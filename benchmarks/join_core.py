"""The timing join of the core against DuckDB, Polars and the cost of merely writing the pairs, with one thread each.

    python benchmarks/join_core.py            # both workloads, several alternating rounds
    python benchmarks/join_core.py --rounds 1 --workload A

Workload A: 100,000 x 100,000 events, no key, 200 events/s a side, uncertain by 20-200 ms, within 500 ms at
confidence 0.8. Workload B: 1,000,000 x 1,000,000 events over 1,000 keys, within 1 s: about 2.4 partners per
event.

Every contender starts from unsorted columns in memory and ends with all pairs (two int32 columns) in memory; sorting is
included. Each evaluates the same predicate: a range on the times, then the probability, in
the arithmetic of the canonical kernel. A run fails unless all contenders found the same number of pairs with
the same order-independent hash. Figures are medians; the ratios are of CPU seconds in the same process, so
that a busy machine spoils them less.
"""

from __future__ import annotations

import os

os.environ["POLARS_MAX_THREADS"] = "1"  # read when polars is imported

from collections.abc import Callable
from dataclasses import dataclass

import click
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
from measuring import Suite, digest_of_columns
from numpy.typing import NDArray

from whenabouts.core.timing_join.strategies import CorrelationCounters, Times, correlate

LENGTHS_US = (20_000, 200_000)
CONFIDENCE = 0.8

Chunk = tuple[NDArray[np.int32], NDArray[np.int32]]
Contender = Callable[[], list[Chunk]]


@dataclass(frozen=True)
class Workload:
    base: Times
    target: Times
    within_us: int


def events(seed: int, rows: int, rate: float, keys: int | None) -> Times:
    """Events in the order in which their times end."""
    random = np.random.default_rng(seed)
    t_max = np.sort(random.integers(0, int(rows / rate * 1e6), rows))
    t_min = t_max - random.integers(*LENGTHS_US, rows, endpoint=True)
    return Times(t_min, t_max, None if keys is None else random.integers(0, keys, rows))


def workload(name: str) -> Workload:
    if name == "A":
        return Workload(events(1, 100_000, 200.0, None), events(2, 100_000, 200.0, None), 500_000)
    return Workload(events(1, 1_000_000, 1_257.0, 1_000), events(2, 1_000_000, 1_257.0, 1_000), 1_000_000)


# --- Contenders
# -----------------------------------------------------------------------------------------------------


def ours(work: Workload, strategy: str) -> Contender:
    def run() -> list[Chunk]:
        return list(
            correlate(
                work.base, work.target, -work.within_us, work.within_us, CONFIDENCE, strategy=strategy,
                base_lengths=LENGTHS_US, target_lengths=LENGTHS_US, counters=CorrelationCounters(),
            )
        )  # fmt: skip

    return run


def writing(pairs: int) -> Contender:
    """Writes the same number of pairs to fresh memory, as fast as numpy can: no join can be faster."""

    def run() -> list[Chunk]:
        base, target = np.empty(pairs, np.int32), np.empty(pairs, np.int32)
        base.fill(1)
        target.fill(2)
        return [(base, target)]

    return run


def arrow_table(times: Times) -> pa.Table:
    columns = {"id": np.arange(len(times), dtype=np.int32), "t_min": times.t_min, "t_max": times.t_max}
    return pa.table(columns | ({} if times.key is None else {"key": times.key}))


# The canonical kernel for two intervals (neither side has points here), on offsets from the start of D's
# support.
PROBABILITY_SQL = """
    CASE WHEN u = 0 AND v = l1 + l2 THEN 1.0::DOUBLE WHEN v <= u THEN 0.0::DOUBLE ELSE
      ( (least(v, m) - least(u, m))::DOUBLE * (least(v, m) + least(u, m))::DOUBLE
      + (greatest(v, g) - greatest(u, g))::DOUBLE * (2 * (l1 + l2) - greatest(u, g) - greatest(v, g))::DOUBLE
      + 2.0::DOUBLE * m::DOUBLE * (greatest(least(v, g), m) - greatest(least(u, g), m))::DOUBLE
      ) / (2.0::DOUBLE * l1::DOUBLE * l2::DOUBLE) END"""


def duckdb_connection(work: Workload) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET threads = 1; SET preserve_insertion_order = false")
    for name, times in (("base_arrow", work.base), ("target_arrow", work.target)):
        connection.register(name, arrow_table(times))
        connection.execute(f"CREATE TABLE {name.removesuffix('_arrow')} AS FROM {name}")
    return connection


def duckdb_query(work: Workload, candidates: str) -> Contender:
    """``candidates`` is a FROM clause that yields b and t, already within range; the probability is decided
    on top."""
    connection, d = duckdb_connection(work), work.within_us
    sql = f"""
        SELECT base_id, target_id FROM (
          SELECT *, least(l1, l2) AS m, greatest(l1, l2) AS g,
                 greatest(-{d} - start, 0) AS u, least({d} - start, l1 + l2) AS v
          FROM (SELECT b.id AS base_id, t.id AS target_id, t.t_min - b.t_max AS start,
                       b.t_max - b.t_min AS l1, t.t_max - t.t_min AS l2 FROM {candidates}))
        WHERE {PROBABILITY_SQL} >= {CONFIDENCE}::DOUBLE"""

    def run() -> list[Chunk]:
        table = connection.sql(sql).to_arrow_table()
        return [(batch.column(0).to_numpy(), batch.column(1).to_numpy()) for batch in table.to_batches()]

    return run


def duckdb_plain(work: Workload) -> Contender:
    d = work.within_us
    same_key = "" if work.base.key is None else "b.key = t.key AND"
    return duckdb_query(
        work, f"base b JOIN target t ON {same_key} t.t_min <= b.t_max + {d} AND t.t_max >= b.t_min - {d}"
    )


def duckdb_bucketed(work: Workload, reaches: int = 2) -> Contender:
    """By hand: base rows are copied to each time bucket that they reach, then joined by equality of key and bucket."""
    d = work.within_us
    reach = 2 * d + 2 * LENGTHS_US[1]
    bucket = reaches * reach  # tried 1/4 to 8 reaches: 2 is the fastest
    copies = f"""
        (SELECT *, unnest(range((t_min - {d}) // {bucket}, (t_max + {d} + {LENGTHS_US[1]}) // {bucket} + 1))
        AS bucket FROM base) b"""
    slots = f"(SELECT *, t_max // {bucket} AS bucket FROM target) t"
    return duckdb_query(
        work,
        f"""{copies} JOIN {slots} ON b.key = t.key AND b.bucket = t.bucket
            AND t.t_min <= b.t_max + {d} AND t.t_max >= b.t_min - {d}""",
    )


def polars_plain(work: Workload) -> Contender:
    d = work.within_us
    frames = [pl.DataFrame(arrow_table(times)) for times in (work.base, work.target)]
    base, target = (
        frame.rename({c: f"{side}_{c}" for c in frame.columns}).lazy()
        for side, frame in zip(("base", "target"), frames, strict=True)
    )

    def least(x: pl.Expr, y: pl.Expr) -> pl.Expr:
        return pl.when(x < y).then(x).otherwise(y)

    def greatest(x: pl.Expr, y: pl.Expr) -> pl.Expr:
        return pl.when(x > y).then(x).otherwise(y)

    def real(x: pl.Expr) -> pl.Expr:
        return x.cast(pl.Float64)

    col = pl.col
    l1, l2, m, g, u, v = (col(c) for c in ("l1", "l2", "m", "g", "u", "v"))
    start = col("target_t_min") - col("base_t_max")
    ramp1 = real(least(v, m) - least(u, m)) * real(least(v, m) + least(u, m))
    ramp3 = real(greatest(v, g) - greatest(u, g)) * real(2 * (l1 + l2) - greatest(u, g) - greatest(v, g))
    flat = 2.0 * real(m) * real(greatest(least(v, g), m) - greatest(least(u, g), m))
    interior = (ramp1 + ramp3 + flat) / (2.0 * real(l1) * real(l2))
    probability = pl.when((u == 0) & (v == l1 + l2)).then(1.0).when(v <= u).then(0.0).otherwise(interior)
    query = (
        base.with_columns(reach_hi=col("base_t_max") + d, reach_lo=col("base_t_min") - d)
        .join_where(target, col("target_t_min") <= col("reach_hi"), col("target_t_max") >= col("reach_lo"))
        .with_columns(
            l1=col("base_t_max") - col("base_t_min"), l2=col("target_t_max") - col("target_t_min"), start=start
        )
        .with_columns(
            m=least(l1, l2), g=greatest(l1, l2),
            u=greatest(-d - col("start"), pl.lit(0)), v=least(d - col("start"), l1 + l2),
        )
        .filter(probability >= CONFIDENCE)
        .select("base_id", "target_id")
    )  # fmt: skip

    def run() -> list[Chunk]:
        pairs = query.collect()
        return [(pairs["base_id"].to_numpy(), pairs["target_id"].to_numpy())]

    return run


# --- Measuring
# ------------------------------------------------------------------------------------------------------

WORKLOADS = {"A": "A: no key, 18 million pairs", "B": "B: 1,000 keys, 2.4 million pairs"}


@click.command()
@click.option("--rounds", default=5, show_default=True, help="alternating rounds; medians are printed")
@click.option("--workload", "chosen", type=click.Choice(list(WORKLOADS)), multiple=True, default=list(WORKLOADS))
@click.option("--strategies", is_flag=True, help="also time eager, lazy and lazy_lookup")
def main(rounds: int, chosen: tuple[str, ...], strategies: bool) -> None:
    """Time all contenders alternately."""
    suite = Suite("join_core", rounds)
    for name in chosen:
        work = workload(name)
        pairs, _ = digest_of_columns(ours(work, "auto")())
        # Right after `auto`, so that both find the allocator in the same state.
        contenders = {"auto": ours(work, "auto"), "writing the pairs": writing(pairs)}
        contenders |= {s: ours(work, s) for s in ("eager", "lazy", "lazy_lookup") if strategies}
        if name == "A":
            contenders |= {"DuckDB": duckdb_plain(work), "Polars": polars_plain(work)}
        else:
            contenders |= {"DuckDB by hand": duckdb_bucketed(work), "DuckDB": duckdb_plain(work)}
        suite.compare(
            WORKLOADS[name], contenders, digest_of_columns, incomparable=["writing the pairs"],
            once=["DuckDB"] if name == "B" else [], rows_in=len(work.base) + len(work.target),
        )  # fmt: skip
    suite.save()


if __name__ == "__main__":
    main()

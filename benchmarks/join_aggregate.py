"""Join aggregates against a join and a group-by: our own timing join with Arrow, DuckDB and Polars.

    python benchmarks/join_aggregate.py                       # 1 to 1,000 pairs a left row, points and intervals
    python benchmarks/join_aggregate.py --most 10 --rounds 1

Whole calls over Arrow tables of 100,000 x 100,000 rows in order of time, without key: for each left row the number of
right rows that match, the sum and the minimum of their values. Points match within 1 s. Intervals are uncertain by up
to a tenth of that and match at confidence 0.8; DuckDB computes their probability in SQL. A run fails unless counts and
minima are the same and sums agree to 1e-12 (ours are exact, those of others depend on the order of rows).

Beside these the expected count, P(nobody) and P(at least three) of the same intervals; a stream of the same rows in
this process, beside `left_anti`; and the cost of ten partners of which none is certain. One thread each; CPU-seconds of
the process.
"""

from __future__ import annotations

import os

os.environ["POLARS_MAX_THREADS"] = "1"  # read when polars is imported

import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

import click
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from join_core import PROBABILITY_SQL
from measuring import SEPARATOR, Suite, digest_of_columns

import whenabouts as wa
from whenabouts.core.local import run, run_stream

WITHIN_US, LONGEST_US, CONFIDENCE = 1_000_000, 100_000, 0.8
START_US = 1_700_000_000_000_000
FILE = 5_000
"""Rows of a file of a stream."""

AT_ONCE = 10_000_000
"""How many pairs a join makes at a time before they are grouped."""

DECIDED = {"n": "count", "total": "sum:v", "least": "min:v"}
CHANCE = {"expected": "expected_count", "nobody": "p_none", "three": "p_at_least:3"}

Contender = Callable[[], pa.Table]


class Workload(NamedTuple):
    """Left and right rows; `pairs`: how many a left row has on average."""

    left: pa.Table
    right: pa.Table
    points: bool
    pairs: int

    @property
    def name(self) -> str:
        """As promises name it."""
        kind = "points" if self.points else "intervals"
        pairs = "1 pair" if self.pairs == 1 else f"{self.pairs:,} pairs"
        return f"{self.left.num_rows:,} x {self.right.num_rows:,} {kind}, {pairs} a row"

    def call(self, confidence: float = CONFIDENCE) -> dict[str, Any]:
        """Times and condition of our calls."""
        time = wa.Point("b") if self.points else wa.Interval("a", "b", max_uncertainty=LONGEST_US)
        condition = wa.within(WITHIN_US, confidence=confidence)
        return {"left_time": time, "right_time": time, "condition": condition}


def workload(rows: int, pairs: int, *, points: bool) -> Workload:
    """Rows in order of the ends of their times, which are uniform over as long a time as gives these pairs."""
    sides = []
    for seed in (1, 2):
        random = np.random.default_rng(seed)
        end = START_US + np.sort(random.integers(0, 2 * WITHIN_US * rows // pairs, rows))
        begin = end - (0 if points else random.integers(1, LONGEST_US, rows, endpoint=True))
        sides.append({"id": np.arange(rows), "a": begin, "b": end})
    sides[1]["v"] = random.random(rows) * 1000
    return Workload(pa.table(sides[0]), pa.table(sides[1]).drop_columns(["id"]), points, pairs)


# --- Contenders


def ours(work: Workload) -> Contender:
    """One call."""
    return lambda: wa.join_aggregate(work.left, work.right, aggregates=DECIDED, **work.call())


def pairs_of(work: Workload) -> Contender:
    """The timing join alone: the pairs, not grouped."""
    return lambda: wa.timing_join(work.left, work.right, probability=False, **work.call())


def grouped(work: Workload) -> Contender:
    """The timing join, and Arrow's group-by; so many left rows at a time that their pairs fit into memory."""
    at_once = max(AT_ONCE // work.pairs, 1)

    def call() -> pa.Table:
        parts = []
        for first in range(0, work.left.num_rows, at_once):
            left = work.left.slice(first, at_once)
            pairs = wa.timing_join(left, work.right, probability=False, **work.call())
            parts.append(pairs.group_by("id").aggregate([("v", "count"), ("v", "sum"), ("v", "min")]))
        return pa.concat_tables(parts).rename_columns(["id", "n", "total", "least"])

    return call


def duckdb_join(work: Workload) -> Contender:
    """A range join, for intervals with the probability of each candidate, and a group-by."""
    connection = tables_in_duckdb(work)
    if work.points:
        pairs = f"SELECT l.id, r.v AS value FROM l JOIN r ON r.b BETWEEN l.b - {WITHIN_US} AND l.b + {WITHIN_US}"
    else:
        pairs = f"""
            SELECT id, value FROM (
              SELECT *, least(l1, l2) AS m, greatest(l1, l2) AS g,
                     greatest(-{WITHIN_US} - start, 0) AS u, least({WITHIN_US} - start, l1 + l2) AS v
              FROM (SELECT l.id, r.v AS value, r.a - l.b AS start, l.b - l.a AS l1, r.b - r.a AS l2
                    FROM l JOIN r ON r.a <= l.b + {WITHIN_US} AND r.b >= l.a - {WITHIN_US}))
            WHERE {PROBABILITY_SQL} >= {CONFIDENCE}::DOUBLE"""
    sql = f"SELECT id, count(*) AS n, sum(value) AS total, min(value) AS least FROM ({pairs}) GROUP BY id"
    return lambda: connection.sql(sql).to_arrow_table()


def duckdb_frames(work: Workload) -> Contender:
    """Both sides in one table, and a window frame around each of its rows: its cost does not depend on the pairs."""
    connection = tables_in_duckdb(work)
    frame = f"(ORDER BY b RANGE BETWEEN {WITHIN_US} PRECEDING AND {WITHIN_US} FOLLOWING)"
    sql = f"""
        SELECT id, n, total, least FROM (
          SELECT id, count(v) OVER w AS n, sum(v) OVER w AS total, min(v) OVER w AS least
          FROM (SELECT id, b, NULL::DOUBLE AS v FROM l UNION ALL SELECT NULL, b, v FROM r) WINDOW w AS {frame})
        WHERE id IS NOT NULL AND n > 0"""
    return lambda: connection.sql(sql).to_arrow_table()


def tables_in_duckdb(work: Workload) -> duckdb.DuckDBPyConnection:
    """A connection of one thread that has both tables."""
    connection = duckdb.connect()
    connection.execute("SET threads = 1; SET preserve_insertion_order = false")
    for name, table in (("l", work.left), ("r", work.right)):
        connection.register(f"{name}_arrow", table)
        connection.execute(f"CREATE TABLE {name} AS FROM {name}_arrow")
    return connection


def polars_join(work: Workload) -> Contender:
    """`join_where` and a group-by, for points."""
    left, right = pl.DataFrame(work.left).lazy(), pl.DataFrame(work.right).lazy().rename({"b": "t"}).drop("a")
    col, within = pl.col, WITHIN_US
    query = (
        left.with_columns(first=col("b") - within, last=col("b") + within)
        .join_where(right, col("t") >= col("first"), col("t") <= col("last"))
        .group_by("id")
        .agg(n=pl.len(), total=col("v").sum(), least=col("v").min())
    )
    return lambda: query.collect().to_arrow()


# --- Comparing


def digest(found: pa.Table) -> tuple[int, int]:
    """Left rows with a partner, and a hash of their numbers but for the sums."""
    if "total" not in found.column_names:  # the pairs
        return digest_of_columns([[found.column("id").to_numpy()]])
    kept = found.filter(pc.greater(found["n"], 0))
    columns = [kept.column(name).to_numpy() for name in ("id", "n", "least")]
    return digest_of_columns([[columns[0], columns[1].astype(np.int64), columns[2]]])


def require_same_sums(answers: list[pa.Table]) -> None:
    """Raises ClickException unless all sums agree to 1e-12."""
    sums = []
    for found in answers:
        kept = found.filter(pc.greater(found["n"], 0)).sort_by("id")
        sums.append(kept.column("total").to_numpy())
    gap = max(float(np.abs(other / sums[0] - 1).max(initial=0.0)) for other in sums)
    if gap > 1e-12:
        raise click.ClickException(f"sums differ by {gap:.1e}, relative")


def compare_decided(suite: Suite, work: Workload) -> None:
    """Count, sum and minimum."""
    contenders = {"whenabouts": ours(work)}
    if work.pairs <= 100:
        contenders["timing join alone"] = pairs_of(work)
    contenders |= {"timing join + group": grouped(work), "DuckDB join + group": duckdb_join(work)}
    if work.points:
        contenders["DuckDB window frames"] = duckdb_frames(work)
        if work.pairs <= 100:  # more pairs do not fit into memory
            contenders["Polars join + group"] = polars_join(work)
    slow = {name for name in contenders if name != "whenabouts"} if work.pairs > 100 else set()
    require_same_sums([contenders[name]() for name in contenders if name != "timing join alone" and name not in slow])
    suite.compare(
        work.name, contenders, digest, once=slow, incomparable=["timing join alone"],
        rows_in=work.left.num_rows + work.right.num_rows,
    )  # fmt: skip


def compare_chance(suite: Suite, work: Workload) -> None:
    """The chance functions; beside them the expected count as the sum of all pairs' probabilities."""
    possible = work.call(confidence=5e-324)

    def chances() -> pa.Table:
        return wa.join_aggregate(work.left, work.right, aggregates=CHANCE, **possible)

    def summed() -> pa.Table:
        pairs = wa.timing_join(work.left, work.right, **possible)
        return pairs.group_by("id").aggregate([("probability", "sum")]).rename_columns(["id", "expected"])

    contenders: dict[str, Contender] = {"whenabouts": chances}
    if work.pairs <= 100:
        contenders["timing join + group, expected count alone"] = summed
        expected = np.zeros(work.left.num_rows)
        other = summed()
        expected[other.column("id").to_numpy()] = other.column("expected").to_numpy()
        gap = float(np.abs(chances().column("expected").to_numpy() - expected).max())
        if gap > 1e-11 * max(work.pairs, 1):
            raise click.ClickException(f"expected counts differ by {gap:.1e}")
    suite.compare(
        f"{work.name}, chances", contenders, lambda found: (found.num_rows, 0), incomparable=list(contenders)[1:],
        rows_in=work.left.num_rows + work.right.num_rows,
    )  # fmt: skip


def compare_stream(suite: Suite, work: Workload) -> None:
    """Streams of files in this process: the aggregates, and the left rows without a partner."""
    asked = {name: value for name, value in work.call().items() if name != "condition"}
    asked |= {"condition": wa.within(WITHIN_US, confidence=CONFIDENCE), "lateness": "100 ms"}
    files = [[side.slice(at, FILE) for at in range(0, side.num_rows, FILE)] for side in (work.left, work.right)]
    aggregate = wa.JoinAggregate(**asked, aggregates=DECIDED)
    anti = wa.TimingJoin(**asked, how="left_anti", probability=False)
    whole = run(aggregate, [work.left, work.right]).output

    def stream(query: Any) -> pa.Table:
        return run_stream(query, files).output

    if digest(stream(aggregate)) != digest(whole):
        raise click.ClickException("the stream gives other rows than a batch")
    suite.compare(
        f"a stream, {work.name}",
        {"whenabouts": lambda: stream(aggregate), "left_anti": lambda: stream(anti)},
        lambda found: (found.num_rows, 0), incomparable=["left_anti"], rows_in=2 * work.left.num_rows,
    )  # fmt: skip


def measure_uncertain(suite: Suite, partners: int = 10) -> None:
    """P(nobody) where no partner is certain: polls of 20 s, a window of 10 s."""
    rows, poll_us = 20_000, 20_000_000
    random = np.random.default_rng(partners)
    end = START_US + np.arange(rows) * 100 * poll_us
    of_right = (end[:, None] + random.integers(-poll_us // 2, poll_us // 2, (rows, partners))).reshape(-1)
    left, right = (pa.table({"a": ends - poll_us, "b": ends}) for ends in (end, of_right))
    time = wa.Interval("a", "b", max_uncertainty=poll_us)

    def call() -> pa.Table:
        return wa.join_aggregate(
            left, right, left_time=time, right_time=time, condition="5 s", aggregates={"p": "p_none"}
        )

    call()
    costs = []
    for _ in range(suite.rounds):
        begun = suite.clock()
        call()
        costs.append((suite.clock() - begun) / rows)
    suite.record(f"P(nobody), a left row{SEPARATOR}{partners} uncertain partners", costs)
    us = statistics.median(costs) * 1e6
    suite.finding(
        "Join aggregates: P(nobody) of a left row",
        f"{partners} uncertain partners take {us:.2g} us of CPU (wanted: under 5), the whole call.",
    )


@click.command()
@click.option("--rows", default=100_000, show_default=True, help="Rows of each side.")
@click.option("--rounds", default=5, show_default=True)
@click.option("--most", default=1_000, show_default=True, help="Leave out workloads with more pairs a row.")
def main(rows: int, rounds: int, most: int) -> None:
    """Measure each workload and save the results."""
    pa.set_cpu_count(1)
    suite = Suite("join_aggregate", rounds)
    for points in (True, False):
        for pairs in (1, 10, 100, 1_000):
            if pairs <= most:
                compare_decided(suite, workload(rows, pairs, points=points))
    for pairs in (1, 10, 100, 1_000):
        if pairs <= most:
            compare_chance(suite, workload(rows, pairs, points=False))
    for points in (True, False):
        compare_stream(suite, workload(rows, 10, points=points))
    measure_uncertain(suite)
    suite.save()


if __name__ == "__main__":
    main()

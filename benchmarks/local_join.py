"""The whole `local.timing_join` call on Arrow tables with payload columns, against DuckDB with the same columns.

    python benchmarks/local_join.py [--rows 1000000] [--rounds 5]

1,000 keys, about 2.4 matches per event, intervals of 20 to 200 ms. DuckDB gets its best hand-written form: both sides
bucketed by time so that the range predicate becomes an equality, and the probability as a SQL expression. One thread
each, alternately in one process; it fails unless both give the same pairs with the same probabilities. Beside them
Arrow's `take` of the same rows, whose positions are known: less no join can cost. Then the same call with one thread
and with two, by the clock; and what this machine allows two threads: writing the bytes of the output in order, and
arithmetic in registers, as much as a core can do at once: what a system calls two cores are often two threads of one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import median

import click
import duckdb
import numba
import numpy as np
import pyarrow as pa
from measuring import SEPARATOR, Suite, digest_of_table

from whenabouts.core import Interval, within
from whenabouts.core.local import timing_join

WORKLOAD = "the whole call, 1,000 keys"
BY_THREADS = "the whole call by threads, wall clock"
WRITING = "writing as many bytes by threads, wall clock"
COUNTING = "arithmetic in registers by threads, wall clock"
WITHIN_US, CONFIDENCE, KEYS = 500_000, 0.8, 1_000
BUCKET_US = WITHIN_US + 200_000
FIRST_US = 1_700_000_000_000_000
"""The first instant: integers near zero would be taken for seconds, and counted."""

# |X2 - X1| <= d for d >= both lengths: only one end of the trapezoid can stick out, so P is one piece of its tail.
BUCKETED = f"""
WITH l AS (SELECT *, b // {BUCKET_US} AS slot FROM left_rows),
     r AS (SELECT *, UNNEST([b // {BUCKET_US} - 1, b // {BUCKET_US}, b // {BUCKET_US} + 1]) AS slot FROM right_rows),
     near AS (
        SELECT l.k, l.a AS a_left, l.b AS b_left, l.v AS v_left, l.id AS id_left,
               r.a AS a_right, r.b AS b_right, r.v AS v_right, r.id AS id_right,
               greatest(r.b - l.a, l.b - r.a) - {WITHIN_US} AS over, l.b - l.a AS ll, r.b - r.a AS lr
        FROM l JOIN r ON l.k = r.k AND l.slot = r.slot
        WHERE r.a - l.b <= {WITHIN_US} AND l.a - r.b <= {WITHIN_US}),
     scored AS (
        SELECT *, CASE
            WHEN over <= 0 THEN 1.0
            WHEN over <= least(ll, lr) THEN 1.0 - over::DOUBLE * over / (2.0 * ll * lr)
            WHEN over <= greatest(ll, lr) THEN 1.0 - (over - least(ll, lr) / 2.0) / greatest(ll, lr)
            ELSE (ll + lr - over)::DOUBLE * (ll + lr - over) / (2.0 * ll * lr) END AS probability
        FROM near)
SELECT k, a_left, b_left, v_left, id_left, a_right, b_right, v_right, id_right, probability
FROM scored WHERE probability >= {CONFIDENCE}
"""


def events(rows: int, seed: int) -> pa.Table:
    """`rows` events in random order: as many seconds per key as give about 2.4 matches per event."""
    rng = np.random.default_rng(seed)
    start = FIRST_US + rng.integers(0, rows // KEYS * 400_000, rows)
    return pa.table(
        {
            "k": rng.integers(0, KEYS, rows),
            "a": start,
            "b": start + rng.integers(20_000, 200_000, rows),
            "v": rng.random(rows),
            "id": np.arange(rows),
        }
    )


def ours(left: pa.Table, right: pa.Table, threads: int = 1) -> pa.Table:
    """The call under test."""
    time_of = Interval("a", "b", max_uncertainty="200ms")
    condition = within(WITHIN_US, confidence=CONFIDENCE)
    return timing_join(left, right, on="k", left_time=time_of, right_time=time_of, condition=condition, threads=threads)


def taking(left: pa.Table, right: pa.Table, pairs: pa.Table) -> pa.Table:
    """Arrow's `take` of the rows of all pairs, columns as in the output; `id` is a row's position."""
    at = pairs.column("id_left"), pairs.column("id_right")
    taken = [*left.take(at[0]).columns, *right.select(["a", "b", "v", "id"]).take(at[1]).columns]
    return pa.table([*taken, pairs.column("probability").combine_chunks()], names=pairs.column_names)


def peer(left_rows: pa.Table, right_rows: pa.Table) -> pa.Table:
    """DuckDB on the same tables."""
    connection = duckdb.connect(config={"threads": 1})
    connection.register("left_rows", left_rows)
    connection.register("right_rows", right_rows)
    return connection.sql(BUCKETED).to_arrow_table()


def check_close(one: pa.Table, other: pa.Table) -> None:
    """Fail unless the probabilities agree to the precision of SQL arithmetic."""
    rows = [table.sort_by([("id_left", "ascending"), ("id_right", "ascending")]) for table in (one, other)]
    gap = np.abs(rows[0].column("probability").to_numpy() - rows[1].column("probability").to_numpy()).max()
    if gap > 1e-12:
        raise click.ClickException(f"the probabilities differ by {gap:.1e}")


def by_threads(work: Callable[[int], object], parts: int, threads: int) -> None:
    """Do all parts."""
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(parts)))


@numba.njit(nogil=True)
def mixed(word: int, times: int) -> int:
    """Arithmetic in registers that seldom waits for a result before."""
    a, b, c, d, e, f, g, h = word, word + 1, word + 2, word + 3, word + 4, word + 5, word + 6, word + 7
    for number in range(times):
        a, b, c, d = (a ^ number) + b, (b + number) ^ c, (c ^ number) + d, (d + number) ^ e
        e, f, g, h = (e ^ number) + f, (f + number) ^ g, (g ^ number) + h, (h + number) ^ number
    return a ^ b ^ c ^ d ^ e ^ f ^ g ^ h


def limits(suite: Suite, size: int) -> dict[str, float]:
    """Record, and return by series, how many times as fast two threads are as one where memory, and where nothing but
    the cores, is the limit; `size`: bytes of the output."""
    memory = np.ones((2, size // 16), np.int64)
    mixed(1, 1)  # compiles

    def write(part: int) -> None:
        memory[part].fill(part)

    def count(part: int) -> None:
        mixed(part, 100_000_000)

    ratios = {}
    for series, work in ((WRITING, write), (COUNTING, count)):
        seconds: dict[int, list[float]] = {1: [], 2: []}
        for turn in range(2 * suite.rounds):
            begun = time.perf_counter()
            by_threads(work, 2, 1 + turn % 2)
            seconds[1 + turn % 2].append(time.perf_counter() - begun)
        for threads, taken in seconds.items():
            suite.record(f"{series}{SEPARATOR}{threads} thread{'s'[: threads - 1]}", taken, clock="wall")
        ratios[series] = median(seconds[1]) / median(seconds[2])
    return ratios


def digest(pairs: pa.Table) -> tuple[int, int]:
    """Digest of all columns except the probability."""
    return digest_of_table(pairs.drop_columns(["probability"]))


@click.command()
@click.option("--rows", default=1_000_000, show_default=True)
@click.option("--rounds", default=5, show_default=True)
def main(rows: int, rounds: int) -> None:
    """Time both alternately, and print medians and the ratio."""
    pa.set_cpu_count(1)
    left, right = events(rows, 1), events(rows, 2)
    check_close(ours(left, right), peer(left, right))
    suite = Suite("local_join", rounds)
    contenders = {
        "whenabouts": partial(ours, left, right),
        "DuckDB by hand": partial(peer, left, right),
        "taking the rows": partial(taking, left, right, ours(left, right)),
    }
    suite.compare(WORKLOAD, contenders, digest, rows_in=2 * rows)
    suite.save()
    by_clock = Suite("local_join", 2 * rounds, clock=time.perf_counter)
    numbers = {f"{n} thread{'s'[: n - 1]}": partial(ours, left, right, n) for n in (1, 2)}
    one, two = by_clock.compare(BY_THREADS, numbers, digest, rows_in=2 * rows).values()
    size = ours(left, right).nbytes
    allowed = limits(by_clock, size)
    by_clock.finding(
        "Two threads, and what the machine allows",
        f"The whole local call is {one / two:.2f} times as fast by two threads as by one. Here two threads write the "
        f"{size / 2**20:,.0f} MiB of its output {allowed[WRITING]:.2f} times as fast as one, in order and without "
        f"reading anything, and do arithmetic in registers {allowed[COUNTING]:.2f} times as fast.",
    )
    by_clock.save()


if __name__ == "__main__":
    main()

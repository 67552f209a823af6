"""The whole `local.timing_join` call, Arrow tables in and out with payload, against DuckDB giving the same columns.

    python benchmarks/local_join.py [--rows 1000000] [--repeat 5]

1,000 keys, about 2.4 matches per event, intervals of 20 to 200 ms. DuckDB gets its best hand-written form: both sides
bucketed by time so that the range predicate becomes an equality, and the probability as a SQL expression. One thread
each, alternating in one run; the run fails unless both give the same pairs with the same probabilities.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import click
import duckdb
import numpy as np
import pyarrow as pa

from whenabouts.core import Interval, within
from whenabouts.core.local import timing_join

WITHIN_US, CONFIDENCE, KEYS = 500_000, 0.8, 1_000
BUCKET_US = WITHIN_US + 200_000

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
    start = rng.integers(0, rows // KEYS * 400_000, rows)
    return pa.table(
        {
            "k": rng.integers(0, KEYS, rows),
            "a": start,
            "b": start + rng.integers(20_000, 200_000, rows),
            "v": rng.random(rows),
            "id": np.arange(rows),
        }
    )


def ours(left: pa.Table, right: pa.Table) -> pa.Table:
    """The call under test."""
    time_of = Interval("a", "b", max_uncertainty="200ms")
    condition = within(WITHIN_US, confidence=CONFIDENCE)
    return timing_join(left, right, on="k", left_time=time_of, right_time=time_of, condition=condition)


def peer(left_rows: pa.Table, right_rows: pa.Table) -> pa.Table:
    """DuckDB on the same tables."""
    connection = duckdb.connect(config={"threads": 1})
    connection.register("left_rows", left_rows)
    connection.register("right_rows", right_rows)
    return connection.sql(BUCKETED).to_arrow_table()


def check_equal(one: pa.Table, other: pa.Table) -> None:
    """Fail unless both hold the same pairs, and the probabilities agree to what SQL arithmetic can give."""
    rows = [table.sort_by([("id_left", "ascending"), ("id_right", "ascending")]) for table in (one, other)]
    for name in one.column_names[:-1]:
        if not rows[0].column(name).equals(rows[1].column(name)):
            raise click.ClickException(f"the outputs differ in column {name}")
    gap = np.abs(rows[0].column("probability").to_numpy() - rows[1].column("probability").to_numpy()).max()
    click.echo(f"{one.num_rows:,} pairs, equal; probabilities differ by at most {gap:.1e} (SQL arithmetic)")


def cpu_seconds(call: Callable[[], pa.Table]) -> tuple[float, pa.Table]:
    """CPU-seconds of a call and its result."""
    start = time.process_time()
    result = call()
    return time.process_time() - start, result


@click.command()
@click.option("--rows", default=1_000_000, show_default=True)
@click.option("--repeat", default=5, show_default=True)
def main(rows: int, repeat: int) -> None:
    """Time both, alternating, and print medians and the ratio."""
    pa.set_cpu_count(1)
    left, right = events(rows, 1), events(rows, 2)
    check_equal(ours(left, right), peer(left, right))
    seconds: dict[str, list[float]] = {"whenabouts": [], "DuckDB hand-bucketed": []}
    for _ in range(repeat):
        seconds["whenabouts"].append(cpu_seconds(lambda: ours(left, right))[0])
        seconds["DuckDB hand-bucketed"].append(cpu_seconds(lambda: peer(left, right))[0])
    medians = {name: float(np.median(values)) for name, values in seconds.items()}
    for name, values in seconds.items():
        click.echo(f"{name:22s} median {medians[name]:.3f} CPU-s  (of {', '.join(f'{v:.3f}' for v in sorted(values))})")
    click.echo(f"ratio {medians['DuckDB hand-bucketed'] / medians['whenabouts']:.1f}")


if __name__ == "__main__":
    main()

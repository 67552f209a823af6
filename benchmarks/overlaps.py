"""Overlaps of 1.2 million intervals a side with 24 keys, against polars-bio's `overlap` and DuckDB's IEJoin.

    python benchmarks/overlaps.py [--rows 1200000] [--rounds 5] [--peers .venv-peers/bin/python]

Two densities: 4 and 30 overlaps a row. All columns of both sides come out, keys are texts, intervals include both ends.
The keys are names of chromosomes, and the intervals lie in random order, as in files of genomes. Each has one thread.
polars-bio runs in a process of its own (`make .venv-peers/ready` makes its environment) and reports its CPU-seconds
without start-up. DuckDB joins by hashes where a key must be equal, and then compares all pairs of a key; for its IEJoin
each key's intervals are moved to a range of their own, which leaves two inequalities.
"""

from __future__ import annotations

import os

os.environ["POLARS_MAX_THREADS"] = "1"  # read when polars is imported

import subprocess
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measuring import DisagreementError, Suite, digest_of_table

from whenabouts.core import Interval, overlaps
from whenabouts.core.local import timing_join

HERE = Path(__file__).parent
KEYS, SPAN_US = 24, 100_000_000
LENGTHS_US = {"4 overlaps a row": (50, 7_900), "30 overlaps a row": (500, 59_500)}


def intervals(seed: int, rows: int, lengths: tuple[int, int]) -> pa.Table:
    """Intervals in random order."""
    random = np.random.default_rng(seed)
    start = random.integers(0, SPAN_US, rows)
    names = np.array([f"chr{number}" for number in range(KEYS)])
    return pa.table(
        {
            "chrom": pa.array(names[random.integers(0, KEYS, rows)]),
            "a": start,
            "b": start + random.integers(*lengths, rows),
            "id": np.arange(rows),
        }
    )


def ours(left: pa.Table, right: pa.Table) -> pa.Table:
    """All columns of the pairs that can have happened at the same instant."""
    time_of = Interval("a", "b")
    return timing_join(
        left, right, on="chrom", left_time=time_of, right_time=time_of, condition=overlaps(), probability=False,
        threads=1,
    )  # fmt: skip


def in_duckdb(left_rows: pa.Table, right_rows: pa.Table) -> pa.Table:
    """The IEJoin of two inequalities; it fails if DuckDB plans another join."""
    connection = duckdb.connect(config={"threads": 1, "preserve_insertion_order": False})
    connection.register("left_rows", left_rows)
    connection.register("right_rows", right_rows)
    apart = 4 * SPAN_US
    moved = """SELECT *, a + key * {0} AS first, b + key * {0} AS last
               FROM (SELECT *, substr(chrom, 4)::BIGINT AS key FROM {1}_rows)"""
    sql = f"""
        SELECT l.chrom, l.a AS a_left, l.b AS b_left, l.id AS id_left, r.a AS a_right, r.b AS b_right, r.id AS id_right
        FROM ({moved.format(apart, "left")}) l JOIN ({moved.format(apart, "right")}) r
        ON l.first <= r.last AND r.first <= l.last"""
    plan = connection.sql(f"EXPLAIN {sql}").fetchall()[0][1]
    if "IE Join" not in plan:
        raise click.ClickException(f"DuckDB plans no IEJoin:\n{plan}")
    return connection.sql(sql).to_arrow_table()


def digest(pairs: pa.Table) -> tuple[int, int]:
    """By the numbers of the rows."""
    return digest_of_table(pairs.select(["id_left", "id_right"]))


def elsewhere(python: Path, sides: tuple[pa.Table, pa.Table], rounds: int) -> tuple[list[float], tuple[int, int]]:
    """CPU-seconds of polars-bio's rounds, and the digest of its pairs."""
    with TemporaryDirectory() as folder:
        files = [str(Path(folder) / f"{name}.parquet") for name in ("left", "right", "pairs")]
        for file, table in zip(files, sides, strict=False):
            pq.write_table(table, file)
        command = [str(python), str(HERE / "peers" / "polars_bio_overlap.py"), *files[:2], str(rounds), files[2]]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found = digest_of_table(pq.read_table(files[2], columns=["left", "right"]))
    return [float(line) for line in told.split()[-rounds:]], found


@click.command()
@click.option("--rows", default=1_200_000, show_default=True)
@click.option("--rounds", default=5, show_default=True)
@click.option("--peers", type=click.Path(path_type=Path), default=HERE.parent / ".venv-peers" / "bin" / "python")
def main(rows: int, rounds: int, peers: Path) -> None:
    """Both densities."""
    suite = Suite("overlaps", rounds)
    for workload, lengths in LENGTHS_US.items():
        sides = intervals(1, rows, lengths), intervals(2, rows, lengths)
        here = {"whenabouts": partial(ours, *sides), "DuckDB's IEJoin": partial(in_duckdb, *sides)}
        suite.compare(workload, here, digest, rows_in=2 * rows)
        if not peers.exists():
            click.echo(f"polars-bio is left out: no {peers}")
            continue
        spent, found = elsewhere(peers, sides, rounds)
        wanted = digest(ours(*sides))
        if found != wanted:
            raise DisagreementError(f"polars-bio found {found}, not {wanted}")
        suite.record(f"{workload} / polars-bio", spent, rows_out=found[0], hash=f"{found[1]:016x}")
        click.echo(f"  {'polars-bio':28s} {sorted(spent)[rounds // 2]:9.4f} CPU-s, {found[0]:,} rows")
    suite.save()


if __name__ == "__main__":
    main()

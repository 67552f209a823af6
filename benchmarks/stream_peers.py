"""The join on exact times against every peer that can express it: DuckDB, Polars, Pathway's `interval_join`; and
Bytewax.

    python benchmarks/stream_peers.py [--rows 100000] [--peers .venv-peers/bin/python]

1,000 keys, about 2.5 partners an event within a second; a finite stream, from tables in memory to pairs in memory.
Pathway and Bytewax run in separate processes (`make .venv-peers/ready` makes their environment) and report their own
CPU-seconds, without start-up. Bytewax cannot express "within a second": its windowed join is measured for speed only,
since its answer differs. None of them can give the probability of a pair with uncertain times.
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
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from measuring import DisagreementError, Suite, digest_of_table

from whenabouts.core import Point, within
from whenabouts.core.local import timing_join

HERE = Path(__file__).parent
WITHIN_US, KEYS, PER_KEY_AND_SECOND = 1_000_000, 1_000, 1.25
WORKLOAD = "exact times, 1,000 keys"


def events(seed: int, rows: int) -> pa.Table:
    """Events in order of time."""
    random = np.random.default_rng(seed)
    at = np.sort(random.integers(0, int(rows / KEYS / PER_KEY_AND_SECOND * 1e6), rows)) + 1_700_000_000_000_000
    return pa.table({"k": random.integers(0, KEYS, rows), "t": at, "id_": np.arange(rows)})


def ours(left: pa.Table, right: pa.Table) -> pa.Table:
    """The timing join with point times, certainly within."""
    condition = within(WITHIN_US, confidence=1)
    found = timing_join(
        left, right, on="k", left_time=Point("t"), right_time=Point("t"), condition=condition, probability=False
    )
    return found.select(["id__left", "id__right"]).rename_columns(["left", "right"])


def in_duckdb(left_rows: pa.Table, right_rows: pa.Table) -> pa.Table:
    """Bucketed by hand: a hash join of twice the rows instead of a range join."""
    connection = duckdb.connect(config={"threads": 1})
    connection.register("left_rows", left_rows)
    connection.register("right_rows", right_rows)
    return connection.sql(f"""
        SELECT l.id_ AS left, r.id_ AS right
        FROM (SELECT *, t // {WITHIN_US} AS slot FROM left_rows) l
        JOIN (SELECT *, unnest(range(t // {WITHIN_US} - 1, t // {WITHIN_US} + 2)) AS slot FROM right_rows) r
        ON l.k = r.k AND l.slot = r.slot AND abs(r.t - l.t) <= {WITHIN_US}""").to_arrow_table()


def in_polars(left: pa.Table, right: pa.Table) -> pa.Table:
    """Also bucketed by hand: `join_where` uses one inequality at a time."""
    frames = [pl.DataFrame(table).lazy().with_columns(slot=pl.col("t") // WITHIN_US) for table in (left, right)]
    copies = frames[1].with_columns(slot=pl.concat_list(pl.col("slot") - 1, pl.col("slot"), pl.col("slot") + 1))
    pairs = frames[0].join(copies.explode("slot"), on=["k", "slot"], suffix="_r")
    near = pairs.filter((pl.col("t_r") - pl.col("t")).abs() <= WITHIN_US)
    return near.select(left="id_", right="id__r").collect().to_arrow()


def elsewhere(python: Path, script: str, folder: Path) -> tuple[float, pa.Table]:
    """CPU-seconds and pairs of a peer in its own process."""
    out = folder / "out.parquet"
    files = [str(folder / f"{side}.parquet") for side in ("left", "right")]
    command = [str(python), str(HERE / "peers" / script), *files, str(WITHIN_US), str(out)]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(told.strip().splitlines()[-1]), pq.read_table(out, columns=["left", "right"])


@click.command()
@click.option("--rows", default=100_000, show_default=True)
@click.option("--rounds", default=5, show_default=True)
@click.option("--peers", type=click.Path(path_type=Path), default=HERE.parent / ".venv-peers" / "bin" / "python")
def main(rows: int, rounds: int, peers: Path) -> None:
    """All of them."""
    pa.set_cpu_count(1)
    suite, left, right = Suite("stream_peers", rounds), events(1, rows), events(2, rows)
    here = {"whenabouts": ours, "DuckDB by hand": in_duckdb, "Polars by hand": in_polars}
    suite.compare(WORKLOAD, {name: partial(run, left, right) for name, run in here.items()}, digest_of_table)
    wanted = digest_of_table(ours(left, right))
    if not peers.exists():
        click.echo(f"Pathway and Bytewax are left out: no {peers}")
        return suite.save()
    with TemporaryDirectory() as folder:
        for side, table in (("left", left), ("right", right)):
            pq.write_table(table, Path(folder) / f"{side}.parquet")
        for name, script in (("Pathway", "pathway_join.py"), ("Bytewax (tumbling windows)", "bytewax_join.py")):
            runs = [elsewhere(peers, script, Path(folder)) for _ in range(rounds)]
            found = digest_of_table(runs[0][1])
            if name == "Pathway" and found != wanted:
                raise DisagreementError(f"Pathway found {found}, not {wanted}")
            suite.record(f"{WORKLOAD} / {name}", [cpu for cpu, _ in runs], rows_out=found[0], hash=f"{found[1]:016x}")
            click.echo(f"  {name:28s} {sorted(cpu for cpu, _ in runs)[rounds // 2]:9.4f} CPU-s, {found[0]:,} rows")
    return suite.save()


if __name__ == "__main__":
    main()

"""A 3-way path on Spark streams: our window join against a cascade of two of Spark's own stream-stream joins.

    python benchmarks/spark_window_join.py [--rows 20000] [--warm 2] [--measured 2] [--rounds 3] [--few]

CPU-seconds of JVM and Python, RocksDB state, two cores, one file of each stream in every micro-batch; both are warm and
alternate, and their outputs' hashes must agree. Windows: |b - a| <= 1 s and 0 s <= c - b <= 2 s; 1.2 events a second
and
key.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measuring import Suite
from process_cpu import cpu_of_tree
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import count, expr, xxhash64

from whenabouts.core import Point
from whenabouts.spark_plugin import local_session, window_join

NOW_US, PER_SECOND = 1_600_000_000_000_000, 1.2
LATENESS = "1 second"
IDENTITY = [f"{column}_{name}" for name in "abc" for column in ("id", "t", "v")]


def ours(frames: dict[str, DataFrame], strategy: str = "backward") -> DataFrame:
    """The window join."""
    windows = {("a", "b"): "1 s", ("b", "c"): ("0 s", "2 s")}
    return window_join(frames, on="k", time=Point("t"), windows=windows, lateness="1 s", strategy=strategy)


def few(frames: dict[str, DataFrame]) -> DataFrame:
    """The same with the strategy `forward`."""
    return ours(frames, "forward")


def cascade(frames: dict[str, DataFrame]) -> DataFrame:
    """Two interval joins, one on the other's output, as in Spark's guide.

    A join uses one event time column of each side: that of `a` continues as a plain column.
    """
    a, b, c = (
        df.toDF(*(f"{column}_{name}" for column in df.columns)).withWatermark(f"t_{name}", LATENESS)
        for name, df in frames.items()
    )
    near = expr("k_a = k_b and t_b >= t_a - interval 1 second and t_b <= t_a + interval 1 second")
    after = expr("k_b = k_c and t_c >= t_b and t_c <= t_b + interval 2 seconds")
    pairs = a.join(b, near).withColumn("t_a", expr("timestamp_micros(unix_micros(t_a))"))
    return pairs.join(c, after)


BUILDERS: dict[str, Callable[[dict[str, DataFrame]], DataFrame]] = {"bew": ours, "few": few, "cascade": cascade}


def write(folder: Path, rows: int, keys: int, steps: int) -> dict[str, list[Path]]:
    """Write the files of all streams where no stream reads them yet."""
    span, files = round(rows / keys / PER_SECOND * 1_000_000), {}
    for seed, name in enumerate("abc"):
        rng = np.random.default_rng(seed)
        (folder / "waiting" / name).mkdir(parents=True)
        files[name] = []
        for step in range(steps):
            at = NOW_US + step * span + np.sort(rng.integers(0, span, rows))
            table = pa.table(
                {
                    "k": rng.integers(0, keys, rows),
                    "id": step * rows + np.arange(rows),
                    "t": pa.array(at, pa.timestamp("us", "UTC")),
                    "v": rng.random(rows),
                }
            )
            path = folder / "waiting" / name / f"{step:04}.parquet"
            pq.write_table(table, path)
            os.utime(path, (1_000_000_000 + step, 1_000_000_000 + step))
            files[name].append(path)
    return files


def run(
    spark: SparkSession, rows: int, keys: int, warm: int, measured: int, name: str, *, check: bool
) -> tuple[float, tuple[int, int]]:
    """CPU-seconds of the measured steps, and (in a check) number and hash of the combinations."""
    found = [0, 0]

    def add(batch: DataFrame, number: int) -> None:
        hashed = batch.select(xxhash64(*IDENTITY).cast("decimal(38,0)").alias("h"))
        row = hashed.agg(count("h"), expr("cast(coalesce(sum(h), 0) as string)")).collect()[0]
        found[0] += row[0]
        found[1] += int(row[1])

    with tempfile.TemporaryDirectory(prefix="whenabouts-") as where:
        folder = Path(where)
        files = write(folder, rows, keys, warm + measured)
        frames = {}
        for stream, paths in files.items():
            (folder / stream).mkdir()
            schema = spark.read.parquet(paths[0].as_uri()).schema
            reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
            frames[stream] = reader.parquet((folder / stream).as_uri())

        def release(first: int, stop: int) -> None:
            for paths in files.values():
                for path in paths[first:stop]:
                    path.rename(folder / path.parent.name / path.name)

        release(0, warm)
        result = BUILDERS[name](frames)
        writer = result.writeStream.foreachBatch(add) if check else result.writeStream.format("noop")
        query = writer.option("checkpointLocation", (folder / "checkpoint").as_uri()).start()
        try:
            query.processAllAvailable()
            before = sum(cpu_of_tree().values())
            release(warm, warm + measured)
            query.processAllAvailable()
            return sum(cpu_of_tree().values()) - before, (found[0], found[1])
        finally:
            query.stop()


@click.command()
@click.option("--rows", default=20_000, show_default=True, help="Rows of each stream in a micro-batch.")
@click.option("--keys", default=5_000, show_default=True)
@click.option("--warm", default=2, show_default=True)
@click.option("--measured", default=2, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--cores", default=2, show_default=True)
@click.option("--few", "with_few", is_flag=True, help="Measure FEW too.")
def main(rows: int, keys: int, warm: int, measured: int, rounds: int, cores: int, *, with_few: bool) -> None:
    """Medians of CPU-seconds and their ratio."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    spark = local_session("benchmark", cores=cores)
    hashes = {name: run(spark, rows, keys, warm, 1, name, check=True)[1] for name in ("bew", "cascade")}
    if len(set(hashes.values())) > 1:
        raise click.ClickException(f"the outputs differ: {hashes}")
    click.echo(f"{hashes['bew'][0]:,} combinations, equal")
    spent: dict[str, list[float]] = {name: [] for name in BUILDERS if with_few or name != "few"}
    for _ in range(rounds):
        for name, seconds in spent.items():
            seconds.append(run(spark, rows, keys, warm, measured, name, check=False)[0])
            click.echo(f"  {name:8s} {3 * rows * measured / seconds[-1]:9,.0f} rows/CPU-s  {seconds[-1]:6.1f} CPU-s")
    suite = Suite("spark_window_join")
    for name, seconds in spent.items():
        suite.record(f"3-way path, {rows:,} rows a micro-batch / {name}", seconds, rows_in=3 * rows * measured)
    suite.save()
    rates = {name: 3 * rows * measured / median(seconds) for name, seconds in spent.items()}
    for name in rates.keys() - {"cascade"}:
        click.echo(f"{name}: {rates[name]:,.0f} rows/CPU-s, {rates[name] / rates['cascade']:.1f} times the cascade")
    spark.stop()


if __name__ == "__main__":
    main()

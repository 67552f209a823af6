"""The cost of a tuple in a `WindowExtent`, by the number of tuples in the extent.

    python benchmarks/extent_complexity.py [--most 1000000] [--repeat 3]

One group, so that all tuples are in one list; a full time window, so that every arriving tuple makes one expire. Tuples
come in blocks, in order of time, or 10 % or all of them late by up to nine tenths of the window; with probability cp a
value equals that of the previous tuple. CPU time, median of the repeats. The exponent is the slope of log(time) over
log(tuples held): 0 is constant, 1 linear. The results are in `benchmarks/results/extent_complexity.json`.
"""

from __future__ import annotations

import time

import click
import numpy as np
import pyarrow as pa
from measuring import SEPARATOR, Suite

from whenabouts.core.window_extent.extent import WindowExtent

BLOCK = 10_000


def arrivals(held: int, more: int, late: float, cp: float) -> pa.Table:
    """Tuples one microsecond apart, some of them after up to 0.9 `held` younger ones."""
    rng = np.random.default_rng(11)
    size = held + more
    value = np.cumsum(rng.random(size) >= cp) % 1000
    arrival = np.arange(size) + np.where(rng.random(size) < late, rng.integers(0, int(0.9 * held), size), 0)
    order = np.argsort(arrival, kind="stable")
    return pa.table({"t": order, "v": value[order]})


def microseconds(scheme: str, held: int, late: float, cp: float, more: int) -> tuple[float, float, int, int]:
    """CPU-microseconds per tuple of updates and of a scan, the number of stored tuples, and bytes, once the window is
    full."""
    table = arrivals(held, more, late, cp)
    extent = WindowExtent(table.schema, time="t", values="v", window=f"{held}us", scheme=scheme)
    for start in range(0, held, BLOCK):
        extent.update(table.slice(start, min(BLOCK, held - start)))
    start_s = time.process_time()
    for start in range(held, len(table), BLOCK):
        extent.update(table.slice(start, BLOCK))
    spent = time.process_time() - start_s
    start_s = time.process_time()
    extent.scan()
    scan = time.process_time() - start_s
    return spent / more * 1e6, scan / len(extent) * 1e6, extent.stored, extent.nbytes


def exponent(sizes: list[int], costs: list[float]) -> float:
    """The slope of log(cost) over log(size)."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


@click.command()
@click.option("--most", default=1_000_000, show_default=True)
@click.option("--more", default=200_000, show_default=True, help="Tuples that are timed.")
@click.option("--repeat", default=3, show_default=True)
def main(most: int, more: int, repeat: int) -> None:
    """Print a table: microseconds per tuple, and the exponents."""
    pa.set_cpu_count(1)
    suite, slopes = Suite("extent_complexity", repeat), dict[float, list[float]]()
    sizes = [10**k for k in range(3, 7) if 10**k <= most]
    click.echo(
        "| scheme | out of order | cp | "
        + " | ".join(f"{n:,}" for n in sizes)
        + " | exponent | stored | bytes a tuple |"
    )
    click.echo("| --- | --- | --- | " + "--- | " * (len(sizes) + 3))
    for scheme in ("eager", "lazy"):
        for late in (0.0, 0.1, 1.0):
            for cp in (0.0, 0.5, 0.9, 0.99):
                costs, stored, held = [], 0, 0
                workload = f"{scheme}, {late:.0%} out of order, cp {cp}"
                for n in sizes:
                    found = [microseconds(scheme, n, late, cp, more) for _ in range(repeat)]
                    costs.append(float(np.median([cost for cost, *_ in found])))
                    stored, held = found[0][2], found[0][3]
                    about = {"stored": stored, "bytes_held": held}
                    for what, each in (("update", [u for u, *_ in found]), ("scan", [s for _, s, *_ in found])):
                        suite.record(f"{workload}{SEPARATOR}{what}, {n:,} held", [us / 1e6 for us in each], **about)
                cells = " | ".join(f"{cost:.3f}" for cost in costs)
                slope, per_tuple = exponent(sizes, costs), held / sizes[-1]
                slopes.setdefault(late, []).append(slope)
                click.echo(f"| {scheme} | {late:.0%} | {cp} | {cells} | {slope:.2f} | {stored:,} | {per_tuple:.0f} |")
    suite.finding(
        "What a tuple costs while the extent grows",
        "Fitted exponents of the cost over the tuples held (0 is constant, 1 linear), least to greatest: "
        + "; ".join(f"{late:.0%} out of order {min(s):.2f} to {max(s):.2f}" for late, s in slopes.items())
        + ". Out of order two binary searches double the cost over a thousandfold extent; the rest is memory that no "
        "longer fits the caches.",
    )
    suite.save()


if __name__ == "__main__":
    main()

"""Where Spark's own stream-stream join is the cheaper one: our timing join beside it by rows, keys and state.

    python benchmarks/crossing_points.py [--rows N]... [--keys N]... [--lateness TEXT]... [--steps N]

Both join the same rows by exact times in one Spark, a micro-batch of ours and one of Spark's in turn, as in
`spark_join.py`; the hashes of their pairs must agree. Spark's own join has the newest state format that it knows.
Varied are the rows of a side in a micro-batch, the number of keys, and how late rows may come, which is how long rows
stay in state. Each point is the ratio of the medians of CPU-seconds without the JVM's compiler, which is idle in a
stream that has run for long. A line above 1 is where ours costs less; where it crosses 1, the answer changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log
from statistics import median

import click
from curves import Curve, draw
from measuring import Suite
from spark_join import EXACT, FORMAT, LATENESS, NATIVE, Case, alternate, newest_format, session

from whenabouts.core.durations import parse_duration

ROWS = (1_000, 4_000, 16_000, 64_000)
KEYS = (8, 100, 10_000)
LATE = (LATENESS, "60 seconds")
WARM = 7


@dataclass(frozen=True)
class Filled(Case):
    """A case whose first step holds as many rows as stay in state: state is full when the others are measured."""

    @property
    def sizes(self) -> list[int]:
        """Rows of a side in each step."""
        seconds = parse_duration(self.lateness) / 1e6 + 2
        filling = max(self.rows, round(self.keys * self.per_second * seconds))
        return [filling] + [self.rows] * (self.warm - 1 + self.measured)


def cases(rows: Sequence[int], keys: Sequence[int], late: Sequence[str], steps: int) -> Iterator[Case]:
    """All combinations."""
    for lateness in late:
        for count in keys:
            for size in rows:
                name = f"{count:,} keys, {lateness} late, {size:,} rows"
                yield Filled(name, count, size, 0, WARM, steps, 1, lateness=lateness)


def crossing(points: Sequence[tuple[float, float]]) -> float | None:
    """The x at which a line through the points first rises above 1, on logarithmic axes.

    >>> round(crossing([(1_000, 0.5), (4_000, 2.0)]))
    2000
    >>> crossing([(1_000, 1.5), (4_000, 2.0)]) is None
    True
    """
    for (x, low), (beyond, high) in pairwise(points):
        if low <= 1 < high:
            return exp(log(x) + (log(beyond) - log(x)) * log(1 / low) / log(high / low))
    return None


def verdict(label: str, points: Sequence[tuple[float, float]]) -> str:
    """Where a line crosses 1, in words."""
    at = crossing(points)
    if at is not None:
        return f"{label}: ours costs less from {at:,.0f} rows on"
    if points[0][1] > 1:
        return f"{label}: ours costs less at {points[0][0]:,} rows already ({points[0][1]:.1f} times)"
    return f"{label}: Spark's own costs less up to {points[-1][0]:,} rows ({1 / points[-1][1]:.1f} times)"


def curves(suite: Suite, chosen: Sequence[Case], state_format: int) -> dict[str, list[tuple[float, float]]]:
    """The ratio Spark's own over ours by rows, a line for each number of keys and lateness."""
    own = {FORMAT: state_format}
    spark = session(spark__sql__streaming__pollingDelay="500ms", **own)
    found: dict[str, list[tuple[float, float]]] = {}
    try:
        for case in chosen:
            costs, answer = alternate(spark, case, (EXACT, NATIVE))
            spent = {
                name: [cost.hot_seconds for cost in costs[who]] for name, who in (("ours", EXACT), ("native", NATIVE))
            }
            for name, seconds in spent.items():
                suite.record(f"{case.name} / {name}", seconds, rows_in=2 * case.rows, rows_out=answer.pairs)
            ratio = median(spent["native"]) / median(spent["ours"])
            found.setdefault(f"{case.keys:,} keys, {case.lateness} late", []).append((case.rows, ratio))
            click.echo(f"{case.name}: {ratio:.2f}, {answer}")
            suite.save()
    finally:
        spark.stop()
    return found


def picture(found: Curve) -> str:
    """The lines, and one where both cost the same."""
    places = [at for points in found.values() for at, _ in points]
    level = {"equal": [(min(places), 1.0), (max(places), 1.0)]}
    label, ticks = "CPU of Spark's own join over ours", (0.5, 1, 2, 5)
    marks = {"yticks": ticks, "yticklabels": list(map(str, ticks))}
    return draw("crossing_points", {**found, **level}, "rows of a side in a micro-batch", label, **marks)


@click.command()
@click.option("--rows", multiple=True, type=int, default=ROWS, show_default=True, help="of a side in a micro-batch")
@click.option("--keys", multiple=True, type=int, default=KEYS, show_default=True)
@click.option("--lateness", multiple=True, default=LATE, show_default=True)
@click.option("--steps", default=3, show_default=True, help="measured micro-batches of each")
def main(rows: tuple[int, ...], keys: tuple[int, ...], lateness: tuple[str, ...], steps: int) -> None:
    """All combinations, and the picture."""
    suite, own = Suite("crossing_points"), newest_format()
    found: Curve = curves(suite, list(cases(rows, keys, lateness, steps)), own)
    plot = picture(found)
    told = "; ".join(verdict(label, points) for label, points in found.items())
    suite.finding(
        "Spark's own join and ours",
        f"CPU-seconds of a micro-batch without the JVM's compiler, exact times, state format {own} for Spark's own: "
        f"{told}.",
        plots=[plot],
    )
    suite.save()


if __name__ == "__main__":
    main()

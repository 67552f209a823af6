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
from statistics import median

import click
from crossings import KEYS, LATE, PER_SECOND, ROWS, picture, rows_held, verdict
from curves import Curve
from measuring import Suite
from spark_join import EXACT, FORMAT, NATIVE, Case, alternate, newest_format, session

WARM = 7
OWN = "Spark's"


@dataclass(frozen=True)
class Filled(Case):
    """A case whose first step holds as many rows as stay in state: state is full when the others are measured."""

    @property
    def sizes(self) -> list[int]:
        """Rows of a side in each step."""
        filling = max(self.rows, rows_held(self.keys, self.per_second, self.lateness))
        return [filling] + [self.rows] * (self.warm - 1 + self.measured)


def cases(rows: Sequence[int], keys: Sequence[int], late: Sequence[str], steps: int) -> Iterator[Case]:
    """All combinations."""
    for lateness in late:
        for count in keys:
            for size in rows:
                name = f"{count:,} keys, {lateness} late, {size:,} rows"
                yield Filled(name, count, size, 0, WARM, steps, 1, per_second=PER_SECOND, lateness=lateness)


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


@click.command()
@click.option("--rows", multiple=True, type=int, default=ROWS, show_default=True, help="of a side in a micro-batch")
@click.option("--keys", multiple=True, type=int, default=KEYS, show_default=True)
@click.option("--lateness", multiple=True, default=LATE, show_default=True)
@click.option("--steps", default=3, show_default=True, help="measured micro-batches of each")
def main(rows: tuple[int, ...], keys: tuple[int, ...], lateness: tuple[str, ...], steps: int) -> None:
    """All combinations, and the picture."""
    suite, own = Suite("crossing_points"), newest_format()
    found: Curve = curves(suite, list(cases(rows, keys, lateness, steps)), own)
    plot = picture("crossing_points", found, OWN, "rows of a side in a micro-batch", (0.5, 1, 2, 5))
    told = "; ".join(verdict(label, points, OWN, "rows") for label, points in found.items())
    suite.finding(
        "Spark's own join and ours",
        f"CPU-seconds of a micro-batch without the JVM's compiler, exact times, state format {own} for Spark's own: "
        f"{told}.",
        plots=[plot],
    )
    suite.save()


if __name__ == "__main__":
    main()

"""The costs of a timing join's steps, rows, pairs and kernel calls: the defaults of `timing_join.cost.Prices`.

    python benchmarks/planner_prices.py [--rounds 3]

Interval streams of 1,000 rows a second and 50 keys run through the operator in steps of some rows of each side. A step
of one row gives the price of a step; large steps give those of rows, pairs and kernel calls, by least squares of
relative errors. `whenabouts calibrate` does the same runs. How well the prices explain the times is recorded with them.
"""

from __future__ import annotations

import click
import numpy as np
from measuring import Suite

from whenabouts.core.costs.prices import TimingJoinPrices
from whenabouts.planner.timing_measurements import JoinMeasurement, measure_prices

PRICES = ("step", "row", "pair", "kernel")


def modelled(prices: TimingJoinPrices, run: JoinMeasurement) -> float:
    """Nanoseconds per row according to the prices."""
    return prices.step / (2 * run.rows) + prices.row + run.pairs * prices.pair + run.probed * prices.kernel


@click.command()
@click.option("--rounds", default=3, show_default=True)
def main(rounds: int) -> None:
    """Print the measurements and the resulting prices, and record both."""
    suite = Suite("planner_prices", rounds)
    prices, runs = measure_prices(rounds)
    click.echo(
        "| strategy | window | rows a step and side | ns a row | of the model | pairs a row | kernel calls a row |"
    )
    click.echo("| --- | --- | --- | --- | --- | --- | --- |")
    for run in runs:
        ratio = run.ns / modelled(prices, run)
        click.echo(
            f"| {run.strategy} | {run.window} | {run.rows:,} | {run.ns:,.0f} | {ratio:.2f} | {run.pairs:.2f} "
            f"| {run.probed:.2f} |"
        )
        name = f"a row, {run.window}, steps of {run.rows:,} / {run.strategy}"
        suite.record(name, [run.ns / 1e9], pairs=run.pairs, kernel_calls=run.probed)
    for name in PRICES:
        suite.record(f"price of a {name} / timing join", [max(getattr(prices, name), 1e-3) / 1e9])
    off = [abs(np.log(run.ns / modelled(prices, run))) for run in runs if run.strategy != "lazy_lookup"]
    told = ", ".join(f"{name} {getattr(prices, name):,.0f} ns" for name in PRICES)
    suite.finding(
        "Prices of a timing join",
        f"{told}. The model is within a factor of {np.exp(np.median(off)):.2f} of half of the runs, and of "
        f"{np.exp(max(off)):.2f} of all. A step costs as much as {prices.step / max(prices.row, 1.0):,.0f} rows.",
    )
    suite.save()


if __name__ == "__main__":
    main()

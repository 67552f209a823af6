"""`whenabouts calibrate`: measures the costs of coalescing and of a timing join on this machine, and stores them."""

from __future__ import annotations

from pathlib import Path

import click

from whenabouts.cli.say import say

_LEAST_WINDOW = 1_000
"""Tuples are up to half a second late: all of a much shorter stream would arrive before what is measured begins."""


@click.command(short_help="Measure the costs of queries on this machine, for the planner.")
@click.option("--window", type=click.IntRange(min=_LEAST_WINDOW), default=64_000, show_default=True, metavar="N",
              help="Tuples in the measured window.")  # fmt: skip
@click.option("--repeat", type=click.IntRange(min=1), default=3, show_default=True, metavar="N",
              help="How often each point is measured; the median is used.")  # fmt: skip
@click.option("-o", "--output", metavar="PATH", help="Where to store them (default: WHENABOUTS_COSTS, "
              "else the user's configuration, where `whenabouts plan` finds them).")  # fmt: skip
@click.option("--progress", "wanted", is_flag=True, help="Show progress on stderr (on a terminal it is always shown).")
def calibrate(window: int, repeat: int, output: str | None, wanted: bool) -> None:
    """Run both coalescing schemes and a timing join over synthetic streams, and store their costs.

    Costs are CPU time in microseconds, so that other work on the machine has little effect.
    """
    from whenabouts.cli.progress import progress
    from whenabouts.planner.calibration import calibrate as measured
    from whenabouts.planner.calibration import store

    if output is not None and not output.strip():
        raise click.BadParameter("the path is empty", param_hint="--output")
    with progress(wanted) as shown:
        shown.stage("measuring", 0)
        found = measured(
            window=window, repeat=repeat, progress=lambda done, of: shown.stage(f"measured {done} of {of}")
        )
    for point in ((0.1, 0.0), (0.8, 0.0), (0.5, 0.5)):
        costs = ", ".join(f"{name} {cost:.3g}" for name, cost in found.costs.at(*point).items())
        say(f"cp {point[0]}, oop {point[1]}: {costs} us")
    prices = ", ".join(f"{name} {getattr(found.timing, name):,.0f}" for name in ("step", "row", "pair", "kernel"))
    say(f"timing join: {prices} ns")
    say(f"stored in {store(found, None if output is None else Path(output))}")

"""`whenabouts learn-delay`: how one clock runs against another, from rows whose pairs an id names."""

from __future__ import annotations

from typing import Any

import click

from whenabouts.cli.options import TIME_UNITS, key_columns


@click.command("learn-delay", short_help="Learn offset, drift and delay of two clocks from paired rows.")
@click.argument("left")
@click.argument("right")
@click.option("--on", required=True, metavar="COL[,COL]", help="The id that names pairs; L=R where the sides differ.")
@click.option("--left-time", required=True, metavar="COL", help="Time of the left rows.")
@click.option("--right-time", required=True, metavar="COL", help="Time of the right rows.")
@click.option("--kind", metavar="COL", help="A column of the right rows: each kind has its own distribution of delays.")
@click.option(
    "--drift", type=click.Choice(["auto", "fit", "none"]), default="auto", show_default=True,
    help="auto keeps a drift that chance gives in 0.3 % of cases.",
)  # fmt: skip
@click.option("--duplicates", type=click.Choice(["refuse", "first"]), default="refuse", show_default=True,
              help="What to do about ids that a side has more than once, if they are many.")  # fmt: skip
@click.option("--outliers", type=click.Choice(["keep", "drop"]), default="keep", show_default=True,
              help="drop leaves differences beyond 20 median deviations out of the distribution.")  # fmt: skip
@click.option("--shortest", metavar="D", help="Least right - left that can occur.")
@click.option("--longest", metavar="D", help="Greatest right - left that can occur.")
@click.option("--max-error", default=0.2, show_default=True, type=float,
              help="The greatest error of the delay's distribution with which it is used.")  # fmt: skip
@click.option("--time-zone", metavar="ZONE", help="Time zone of times without one (default: UTC).")
@click.option("--time-unit", type=click.Choice(TIME_UNITS), help="Unit of integer times since 1970 (default: us).")
@click.option("-o", "--output", metavar="CLOCK.json",
              help="Write the clock here, for `join` and others to use; - is stdout.")  # fmt: skip
@click.option("--html", metavar="PAGE.html", help="Write the report as a page.")
def learn_delay(
    *,
    left: str,
    right: str,
    on: str,
    time_zone: str | None,
    time_unit: str | None,
    output: str | None,
    html: str | None,
    **asked: Any,
) -> None:
    """Learn how the clock of RIGHT runs against that of LEFT: offset, drift, and the distribution of what is left.

    Pairs are rows of equal --on. Prints what was found, and how a join uses it. Exits with 1 if the data cannot tell;
    the report says why.

    \b
    whenabouts learn-delay sent.csv received.csv --on id --left-time sent --right-time received -o clock.json
    """
    from whenabouts.cli.two_clocks import tell, two_tables
    from whenabouts.core.clocks.learn_delay import learn_delay as learn
    from whenabouts.core.sources.time_parsing import ClockRules

    times = asked["left_time"], asked["right_time"]
    tables = two_tables((left, right), times, ClockRules(time_zone, time_unit), (output, html), asked["kind"])
    repeated = {"--time-zone": time_zone, "--time-unit": time_unit}
    tell(learn(*tables, on=key_columns(on), **asked), (left, right), (output, html), repeated)

"""`whenabouts learn-clock`: how one clock runs against another, from events that nothing pairs."""

from __future__ import annotations

from typing import Any

import click

from whenabouts.cli.options import TIME_UNITS, key_columns


@click.command("learn-clock", short_help="Learn offset, drift and delay of two clocks from unpaired events.")
@click.argument("left")
@click.argument("right")
@click.option("--left-time", required=True, metavar="COL", help="Time of the left rows.")
@click.option("--right-time", required=True, metavar="COL", help="Time of the right rows.")
@click.option(
    "--on", metavar="COL[,COL]", help="Columns that are equal in a pair, such as a station; L=R if they differ."
)
@click.option(
    "--max-offset", default="1h", show_default=True, metavar="D", help="The greatest offset that is searched."
)
@click.option(
    "--max-drift", default="200ppm", show_default=True, metavar="N", help="The greatest drift: 200ppm, 50ppb."
)
@click.option("--alpha", default=1e-4, show_default=True, type=float,
              help="The greatest probability that unrelated streams are given a clock.")  # fmt: skip
@click.option("--max-error", default=0.2, show_default=True, type=float,
              help="The greatest error of the delay's distribution with which it is used.")  # fmt: skip
@click.option("--tick", metavar="D", help="Granularity of the times of both sides, if it is not the one found.")
@click.option("--unchecked", is_flag=True, help="Learn from columns that `profile` calls wrong, too.")
@click.option("--time-zone", metavar="ZONE", help="Time zone of times without one (default: UTC).")
@click.option("--time-unit", type=click.Choice(TIME_UNITS), help="Unit of integer times since 1970 (default: us).")
@click.option("-o", "--output", metavar="CLOCK.json",
              help="Write the clock here, for `join` and others to use; - is stdout.")  # fmt: skip
@click.option("--html", metavar="PAGE.html", help="Write the report as a page.")
def learn_clock(
    *,
    left: str,
    right: str,
    on: str | None,
    time_zone: str | None,
    time_unit: str | None,
    output: str | None,
    html: str | None,
    **asked: Any,
) -> None:
    """Learn how the clock of RIGHT runs against that of LEFT, from events of which some unknown share is in both.

    Prints what was found, and how a join uses it. Exits with 1 if the data cannot tell; the report says why.

    \b
    whenabouts learn-clock camera1.csv camera2.csv --left-time t --right-time t --max-offset 10min -o clock.json
    """
    from whenabouts.cli.two_clocks import tell, two_tables
    from whenabouts.core.clocks.learn_clock import learn_clock as learn
    from whenabouts.core.sources.time_parsing import ClockRules

    times = asked["left_time"], asked["right_time"]
    tables = two_tables((left, right), times, ClockRules(time_zone, time_unit), (output, html))
    repeated = {"--on": on, "--time-zone": time_zone, "--time-unit": time_unit}
    tell(learn(*tables, on=None if on is None else key_columns(on), **asked), (left, right), (output, html), repeated)

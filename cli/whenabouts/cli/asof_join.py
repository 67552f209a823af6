"""`whenabouts asof-join`: for each left row the right row that prevails at its time, from files to a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from whenabouts.cli.given_files import input_path
from whenabouts.cli.options import CommonOptions, common_options, key_columns, names, row_numbers, time_slots_option
from whenabouts.cli.say import say
from whenabouts.cli.two_sides import SIDES, times_of_sides, times_options, two_values, uncertainty_options

if TYPE_CHECKING:
    from whenabouts.core.asof_join.query import AsofJoin


@click.command("asof-join", short_help="Find the right row that holds at the time of each left row.")
@click.argument("left")
@click.argument("right")
@click.option(
    "--on", metavar="COL[,COL]", help="Key columns that must be equal (default: none); L=R where the sides differ."
)
@times_options
@click.option(
    "--direction",
    type=click.Choice(["backward", "forward", "nearest"]),
    default="backward",
    show_default=True,
    help="The last right row at or before the left one, the first at or after it, or the closer of both.",
)
@click.option("--tolerance", metavar="D", help="Greatest distance of the two, inclusive (default: any).")
@click.option("--no-exact-matches", is_flag=True, help="Right rows at exactly the time of the left one do not count.")
@click.option(
    "--confidence", metavar="P", help="Least probability that the right row prevails, in (0, 1]. Exact times need none."
)
@click.option(
    "--keep",
    type=click.Choice(["best", "all"]),
    default="best",
    show_default=True,
    help="The most probable right row, or each that reaches the confidence.",
)
@click.option(
    "--how",
    default="left_outer",
    show_default=True,
    metavar="MODE",
    help="left_outer keeps left rows without a right one, inner drops them, left_anti gives those that have none with "
    "--confidence.",
)
@click.option(
    "--order-by", metavar="COL[,COL]", help="Right columns that order rows of one instant (then all columns)."
)
@click.option("--max-candidates", type=int, metavar="N", help="Reject left rows with more right rows that may prevail.")
@uncertainty_options
@click.option("--suffixes", default="_left,_right", show_default=True, metavar="L,R", help="For columns of equal name.")
@click.option(
    "--why", metavar="LEFT_ROW,RIGHT_ROW", help="Say why this right row (from 0) prevails or not. Nothing is run."
)
@click.option("--no-probability", is_flag=True, help="Leave out the columns probability and none_probability.")
@time_slots_option
@common_options
def asof_join(*, left: str, right: str, common: CommonOptions, **arguments: Any) -> None:
    """For each LEFT row the RIGHT row of its key that prevails at its time, with probability >= --confidence.

    LEFT and RIGHT are Parquet, CSV or JSON lines: a file, a folder, a glob in quotes, or - (stdin). Durations D: 500ms,
    2s, 1h30m, '0.5 s', PT1.5S. A time SPEC is t (exact), t_min,t_max (uniform in between), granularity:D:t (cut to D),
    polling:D:t (found by a poll every D), hist:TEMPLATES.json:template_column,t_max (distributed as the template that
    the row names, ending at t_max), or learned:CLOCK.json:t (readings of a clock that learn-delay or learn-clock has
    compared with the other side's).

    \b
    whenabouts asof-join trades.csv quotes.parquet --on symbol --left-time t \\
        --right-time t --tolerance 2s -o quoted.parquet
    """
    query = _query(common, arguments)
    rows = None if arguments["why"] is None else row_numbers(arguments["why"], "--why")
    from whenabouts.cli.pair_questions import why_lines
    from whenabouts.cli.run import FileRun

    paths = [input_path(path, f"the {side} input") for path, side in zip((left, right), SIDES, strict=True)]
    run = FileRun(query, paths, (query.left_time, query.right_time), common, result="rows")
    run.prepare()
    if rows is not None:
        for line in why_lines(run.query, run.inputs, rows=rows, stream=common.stream):
            say(line)
    elif common.explain:
        from whenabouts.cli.asof_state import state_lines

        run.explain(state_lines(run.query, run.inputs) if common.stream else ())
    else:
        run.execute()


def _query(common: CommonOptions, arguments: dict[str, Any]) -> AsofJoin:
    """The query that the options describe. Errors in them are reported before any file is read."""
    from whenabouts.core.asof_join.query import AsofJoin

    left_time, right_time = times_of_sides(arguments)
    return AsofJoin(
        left_time=left_time,
        right_time=right_time,
        on=key_columns(arguments["on"]),
        direction=arguments["direction"],
        tolerance=arguments["tolerance"],
        allow_exact_matches=not arguments["no_exact_matches"],
        confidence=arguments["confidence"],
        keep=arguments["keep"],
        how=arguments["how"],
        order_by=names(arguments["order_by"], "--order-by") or None,
        max_candidates=arguments["max_candidates"],
        lateness=common.lateness_by_side,
        suffixes=two_values(arguments["suffixes"], "--suffixes"),
        probability=not arguments["no_probability"],
        time_slots=arguments["time_slots"],
    )

"""`whenabouts join`: the timing join of two inputs, from files to a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from whenabouts.cli.aggregates import aggregate_options, aggregate_query, partner_lines
from whenabouts.cli.given_files import input_path
from whenabouts.cli.options import CommonOptions, common_options, key_columns, row_numbers, time_slots_option
from whenabouts.cli.say import say
from whenabouts.cli.two_sides import SIDES, times_of_sides, times_options, two_values, uncertainty_options
from whenabouts.core.times.condition_keywords import condition_of

if TYPE_CHECKING:
    from whenabouts.core.join_aggregate.query import JoinAggregate
    from whenabouts.core.timing_join.query import TimingJoin


@click.command(short_help="Join two inputs whose events' times are uncertain.")
@click.argument("left")
@click.argument("right")
@click.option(
    "--on", metavar="COL[,COL]", help="Key columns that must be equal (default: none); L=R where the sides differ."
)
@times_options
@click.option("--within", metavar="D", help="Condition: at most D apart, either way.")
@click.option("--deadline", metavar="D", help="Condition: right at most D after left ...")
@click.option("--since", metavar="D", help="... and at least this long after it (negative: before).")
@click.option("--delay", metavar="D", help="Condition: right at least D after left ...")
@click.option("--until", metavar="D", help="... and at most this long after it.")
@click.option("--between", metavar="LO,HI", help="Condition: LO <= right - left <= HI; either may be negative.")
@click.option("--overlaps", is_flag=True, help="Condition: both can have happened at one instant. No --confidence.")
@click.option("--possibly", is_flag=True, help="Keep all pairs that can meet the condition, instead of --confidence.")
@click.option(
    "--confidence", metavar="P", help="Least probability of the condition, in (0, 1].  [required but for the two above]"
)
@click.option(
    "--how",
    metavar="MODE",
    help="Which rows the result has: inner, left_outer, left_anti ...  [default: inner; with --aggregate left_outer]",
)
@click.option("--best", type=click.Choice([*SIDES, "both"]), help="Keep the most probable partner only.")
@click.option(
    "--ties", default="earliest", show_default=True, metavar="WHICH",
    help="With --best, which of equally probable partners: earliest or nearest.",
)  # fmt: skip
@click.option(
    "--where", metavar="SQL", help="A further condition on both rows, as 'left.v < right.w': without it no pair."
)
@click.option(
    "--why", metavar="LEFT_ROW,RIGHT_ROW", help="Say why these two rows (from 0) are a pair or not. Nothing is run."
)
@click.option("--picture", metavar="FILE", help="With --why, draw both times and their difference: .png, .svg or .pdf.")
@click.option(
    "--strategy", default="auto", show_default=True, metavar="NAME", help="Which algorithm; all give the same rows."
)
@aggregate_options
@uncertainty_options
@click.option("--suffixes", default="_left,_right", show_default=True, metavar="L,R", help="For columns of equal name.")
@click.option("--no-probability", is_flag=True, help="Leave out the probability column.")
@click.option("--max-pairs", type=click.IntRange(min=0), metavar="N", help="Refuse to run if there can be more pairs.")
@click.option(
    "--max-pairs-per-row",
    type=click.IntRange(min=0),
    metavar="N",
    help="Refuse to run if a row can have more partners; with --aggregate, if a left row can collect more.",
)
@time_slots_option
@common_options
def join(*, left: str, right: str, common: CommonOptions, **arguments: Any) -> None:
    """Pairs of LEFT and RIGHT rows that meet a timing condition with probability >= --confidence.

    With --aggregate LEFT rows, each with numbers about the RIGHT rows that meet the condition.

    LEFT and RIGHT are Parquet, CSV or JSON lines: a file, a folder, a glob in quotes, or - (stdin). Durations D: 500ms,
    2s, 1h30m, '0.5 s', PT1.5S. A time SPEC is t (exact), t_min,t_max (uniform in between), granularity:D:t (cut to D),
    polling:D:t (found by a poll every D), hist:TEMPLATES.json:template_column,t_max (distributed as the template that
    the row names, ending at t_max), or learned:CLOCK.json:t (readings of a clock that learn-delay or learn-clock has
    compared with the other side's).

    \b
    whenabouts join quakes.csv sounds.parquet --on region --left-time t_min,t_max \\
        --right-time t --within 2s --confidence 0.6 -o pairs.parquet --rejects bad.csv
    whenabouts join deploys.csv errors.csv --left-time t --right-time t0,t1 \\
        --deadline 5m --confidence 0.9 --aggregate errors=count --aggregate none=p_none
    """
    query = _query(common, arguments)
    rows = None if arguments["why"] is None else row_numbers(arguments["why"], "--why")
    from whenabouts.cli.expected_pairs import at_most, refuse_over
    from whenabouts.cli.outputs import check_picture
    from whenabouts.cli.pair_questions import chance_lines, why_lines
    from whenabouts.cli.run import FileRun
    from whenabouts.core.timing_join.query import TimingJoin

    check_picture(arguments["picture"], with_why=rows is not None)
    paths = [input_path(path, f"the {side} input") for path, side in zip((left, right), SIDES, strict=True)]
    specs = (query.left_time, query.right_time)
    mode = query.mode if isinstance(query, TimingJoin) else None
    outer = mode is not None and not mode.one_sided and bool(mode.preserved)
    result = "pairs" if mode is not None and mode.how == "inner" else "rows"
    run = FileRun(query, paths, specs, common, result=result, outer=outer)
    run.prepare()
    if rows is not None and isinstance(run.query, TimingJoin):
        for line in why_lines(run.query, run.inputs, rows=rows, stream=common.stream, picture=arguments["picture"]):
            say(line)
        return
    limits = arguments["max_pairs"], arguments["max_pairs_per_row"]
    if common.explain or limits != (None, None):
        bound = at_most(run.inputs, specs, query.condition, query.key_columns)
        if arguments["aggregate"]:  # right rows collect nothing
            bound = bound._replace(per_row=bound.per_left_row)
        say(f"at most {bound.pairs:,} pairs, at most {bound.per_row:,} for one row", err=True)
        refuse_over(bound, *limits)
    if common.explain:
        asked = run.query
        run.explain(
            chance_lines(asked, run.inputs) if isinstance(asked, TimingJoin) else partner_lines(asked, run.inputs)
        )
    else:
        run.execute()


def _query(common: CommonOptions, arguments: dict[str, Any]) -> TimingJoin | JoinAggregate:
    """The query that the options describe. Errors in them are reported before any file is read."""
    if arguments["aggregate"]:
        return aggregate_query(common, arguments)
    if arguments["max_uncertain_per_row"] is not None:
        raise click.UsageError("--max-uncertain-per-row needs --aggregate")
    from whenabouts.core.timing_join.query import TimingJoin

    left_time, right_time = times_of_sides(arguments)
    return TimingJoin(
        left_time=left_time,
        right_time=right_time,
        condition=condition_of(arguments),
        on=key_columns(arguments["on"]),
        how=arguments["how"] or "inner",
        best=arguments["best"],
        ties=arguments["ties"],
        where=arguments["where"],
        strategy=arguments["strategy"],
        lateness=common.lateness_by_side,
        suffixes=two_values(arguments["suffixes"], "--suffixes"),
        probability=not arguments["no_probability"],
        time_slots=arguments["time_slots"],
    )

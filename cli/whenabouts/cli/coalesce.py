"""`whenabouts coalesce`: consecutive readings of equivalent values as one row, from files to a file."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click

from whenabouts.cli.given_files import input_path
from whenabouts.cli.options import CommonOptions, common_options, lateness_of_inputs, names
from whenabouts.cli.say import warnings_as_notes

if TYPE_CHECKING:
    from whenabouts.core.coalescing.query import Coalesce

_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}


@click.command(short_help="Merge consecutive readings whose values are equivalent.")
@click.argument("path")
@click.option("--time", required=True, metavar="COL", help="When a reading was taken.")
@click.option("--group", metavar="COL[,COL]", help="Readings follow each other within a group (default: one group).")
@click.option("--values", required=True, metavar="COL[,COL]", help="Columns that must all be equivalent.")
@click.option("--range", "window", metavar="D", help="Window: readings at most D old.")
@click.option("--rows", type=int, metavar="N", help="Window: the last N readings of all groups together ...")
@click.option("--per-group", is_flag=True, help="... or of each group.")
@click.option(
    "--slide", metavar="D|N", help="Evaluate the window every D, counted from 1970 UTC, or (--rows) every N readings."
)
@click.option("--at", metavar="TIME", help="Evaluate it once, at this time (default: at the last reading).")
@click.option(
    "--equivalence", default="equal", show_default=True, metavar="NAME",
    help="equal, absolute_tolerance:E, relative_tolerance:R, increasing, non_decreasing, decreasing or non_increasing.",
)  # fmt: skip
@click.option(
    "--scheme",
    default="auto",
    show_default=True,
    metavar="auto|eager|lazy",
    help="Which algorithm; all give the same rows.",
)
@click.option(
    "--closed", default="both", show_default=True, metavar="both|right", help="Which ends of a window belong to it."
)
@click.option(
    "--emit",
    default="final",
    show_default=True,
    metavar="final|early",
    help="early: rows at once, corrected in a column `op` when readings come out of order (with --stream).",
)
@click.option("--valid-last", is_flag=True, help="Add the time of the last reading of each row, as `valid_last`.")
@common_options
def coalesce(*, path: str, common: CommonOptions, **arguments: Any) -> None:
    """Consecutive readings of a group whose values are equivalent, as one row valid over all of their time.

    PATH is Parquet, CSV or JSON lines: a file, a folder, a glob in quotes, or - (stdin). A reading is valid until the
    next one of its group. Without --range and --rows all readings are coalesced. Durations D: 500ms, 2s,
    1h30m, '0.5 s', PT1.5S.

    \b
    whenabouts coalesce readings.csv --time ts --group region --values temperature \\
        --range 24h --slide 1h --equivalence absolute_tolerance:0.5 -o runs.parquet --rejects bad.csv
    """
    with warnings_as_notes():
        query = _query(common, arguments)
    from whenabouts.cli.run import FileRun

    run = FileRun(query, [input_path(path)], (query.point,), common, result="coalesced tuples")
    run.prepare()
    if common.explain:
        run.explain()
    else:
        run.execute()


def _query(common: CommonOptions, arguments: dict[str, Any]) -> Coalesce:
    """The query that the options describe. Errors in them are reported before any file is read."""
    from whenabouts.core.coalescing.query import Coalesce

    slide = arguments["slide"]
    by_rows = slide is not None and arguments["rows"] is not None and slide.isascii() and slide.isdigit()
    return Coalesce(
        time=arguments["time"],
        group=names(arguments["group"], "--group"),
        values=names(arguments["values"], "--values"),
        window=arguments["window"],
        rows=arguments["rows"],
        per_group=arguments["per_group"],
        slide=int(slide) if by_rows else slide,
        at=None if arguments["at"] is None else instant(arguments["at"], common.time_zone, common.time_unit),
        equivalence=arguments["equivalence"],
        scheme=arguments["scheme"],
        closed=arguments["closed"],
        lateness=lateness_of_inputs(1, common.lateness)[0],
        emit=arguments["emit"],
        valid_last=arguments["valid_last"],
    )


def instant(text: str, zone: str | None, unit: str | None) -> int:
    """Microseconds since 1970 of a time: a number in `unit`, or ISO 8601 text, in `zone` if it has none of its own.

    Raises: click's usage error for anything else, or an unknown zone.

    >>> instant("1970-01-01T01:00", "Europe/Berlin", None), instant("5", None, "ms")
    (0, 5000)
    """
    from whenabouts.core.coalescing.window_spec import instant_us

    if text.removeprefix("-").isdigit():
        number = int(text)
        return number // 1000 if unit == "ns" else number * _MICROSECONDS[unit or "us"]
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None and zone is not None:
            moment = moment.replace(tzinfo=ZoneInfo(zone))
    except (ValueError, ZoneInfoNotFoundError):
        raise click.BadParameter(f"{text!r} is not a time: give ISO 8601 or a number", param_hint="--at") from None
    return instant_us(moment)

"""`whenabouts coalesce`: readings of equivalent values as runs, from files to a file."""

from __future__ import annotations

import warnings
from datetime import datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click

from whenabouts.cli.given_files import input_path
from whenabouts.cli.options import CommonOptions, common_options, names

if TYPE_CHECKING:
    from whenabouts.cli.tables import Input
    from whenabouts.core.coalescing.operator import Coalesce

_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}


@click.command(short_help="Merge consecutive readings whose values are equivalent.")
@click.argument("path")
@click.option("--time", required=True, metavar="COL", help="When a reading was taken.")
@click.option("--group", metavar="COL[,COL]", help="Within which readings follow each other (default: all are one).")
@click.option("--values", required=True, metavar="COL[,COL]", help="What must be equivalent, in all columns.")
@click.option("--range", "window", metavar="D", help="Window: readings at most D old.")
@click.option("--rows", type=int, metavar="N", help="Window: the N last readings of all groups together ...")
@click.option("--per-group", is_flag=True, help="... or of each group.")
@click.option("--slide", metavar="D|N", help="Look every D, counted from 1970 UTC, or (--rows) at every N-th reading.")
@click.option("--at", metavar="TIME", help="Look once, at this time (default: at the time of the last reading).")
@click.option(
    "--equivalence", default="equal", show_default=True, metavar="NAME",
    help="equal, absolute_tolerance:E, relative_tolerance:R, increasing, non_decreasing, decreasing or non_increasing.",
)  # fmt: skip
@click.option(
    "--scheme", default="auto", show_default=True, metavar="auto|eager|lazy", help="Which algorithm; the same rows."
)
@click.option(
    "--closed", default="both", show_default=True, metavar="both|right", help="Which ends of a window are in it."
)
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
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        query = _query(common, arguments)
        query.warn_of_one_bucket(common.stream)
    from whenabouts.cli.run import run_command, say_all
    from whenabouts.core import SingleBucketWarning

    say_all([str(warning.message) for warning in told], "note: ")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SingleBucketWarning)  # it has been told
        run_command(
            query, [input_path(path)], common, specs=(query.point,), measured=_measured, result="coalesced tuples"
        )


def _query(common: CommonOptions, arguments: dict[str, Any]) -> Coalesce:
    """The query that the options ask for; what is wrong with them is said before any file is read."""
    from whenabouts.core.coalescing.operator import Coalesce

    slide = arguments["slide"]
    by_rows = slide is not None and arguments["rows"] is not None and slide.isascii() and slide.isdigit()
    return Coalesce(
        time=arguments["time"],
        group=names(arguments["group"]),
        values=names(arguments["values"]),
        window=arguments["window"],
        rows=arguments["rows"],
        per_group=arguments["per_group"],
        slide=int(slide) if by_rows else slide,
        at=None if arguments["at"] is None else instant(arguments["at"], common.time_zone, common.time_unit),
        equivalence=arguments["equivalence"],
        scheme=arguments["scheme"],
        closed=arguments["closed"],
        lateness=common.lateness or 0,
    )


def instant(text: str, zone: str | None, unit: str | None) -> int:
    """Microseconds since 1970 of a time on the command line: a number in `unit`, or ISO 8601, in `zone` if it has none.

    Raises: click's usage error for what is neither, or an unknown zone.

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
        raise click.BadParameter(f"{text!r} is no time: give ISO 8601 or a number", param_hint="--at") from None
    return instant_us(moment)


def _measured(query: Coalesce, inputs: tuple[Input, ...]) -> tuple[Coalesce, list[str]]:
    """A stream needs to know no more than the query says."""
    return query, []

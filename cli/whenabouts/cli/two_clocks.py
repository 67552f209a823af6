"""What the commands that learn clocks share: reading both sides, and saying what was found."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from whenabouts.cli.failures import REJECTED_AND_STRICT
from whenabouts.cli.given_files import check_not_read, input_path
from whenabouts.cli.say import say, say_all
from whenabouts.cli.two_sides import SIDES

if TYPE_CHECKING:
    from whenabouts.core.clocks.learned_clock import LearnedClock
    from whenabouts.core.sources.time_parsing import ClockRules


def two_tables(
    paths: tuple[str, str],
    times: tuple[str, str],
    rules: ClockRules,
    written: tuple[str | None, str | None],
    kind: str | None = None,
) -> list[Any]:
    """Both inputs as tables. `written` are --output and --html: files that are not inputs and can be written, and
    --output also stdout. Raises: QueryError WA-2006 if they are not, what reading raises."""
    import pyarrow as pa

    from whenabouts.cli.output_files import check_files, check_page
    from whenabouts.cli.tables import read_input
    from whenabouts.core.sources.files import find_files

    outputs = list(zip(written, ("--output", "--html"), strict=True))
    check_page(written[1])
    check_files(outputs)
    found = [input_path(path, f"the {side} input") for path, side in zip(paths, SIDES, strict=True)]
    check_not_read(outputs, (file for path in found for file in find_files(path)[0]))
    tables = []
    for side, path, time in zip(SIDES, found, times, strict=True):
        source = read_input(side, path, (time,), rules, kind if side == "right" else None)
        say_all(source.notes, "note: ")
        if source.unparsable.num_rows:
            say(f"note: {side}: {source.unparsable.num_rows:,} rows whose time cannot be used are left out", err=True)
        tables.append(pa.concat_tables(source.tables))
    return tables


def tell(
    clock: LearnedClock,
    paths: tuple[str, str],
    written: tuple[str | None, str | None],
    repeated: Mapping[str, str | None],
) -> None:
    """Print the report and write it, then print the join that uses the clock; exit with 1 if none was found.

    `repeated`: options that the join takes as well, with their values. With `--output -` the clock is on stdout and
    everything else on stderr. Raises: EngineError WA-3005 for failed writes.
    """
    from whenabouts.cli.output_files import STDOUT, reported_if_not_written
    from whenabouts.core.clocks.clock_files import write_clock

    output, html = written
    aside = output == STDOUT
    say(str(clock), err=aside)
    if aside:
        say(json.dumps(clock.to_dict(), indent=1, allow_nan=False))
        output = None
    elif output is not None:
        with reported_if_not_written(output):
            write_clock(clock, output)
    if html is not None:
        with reported_if_not_written(html):
            clock.to_html(html)
    if not clock.found:
        click.get_current_context().exit(REJECTED_AND_STRICT)
    if clock.calibration is not None and clock.calibration.verdict != "calibrated":
        say(
            "note: joins refuse this clock (WA-2222), since its delay did not hold for held-out rows, unless they are "
            f"given learned:uncalibrated:{output or 'CLOCK.json'}:{clock.right_time}",
            err=True,
        )
        return
    if not clock.delays:
        say("note: joins refuse this clock (WA-2222), since its delay is not known well enough", err=True)
        return
    near = clock.condition(0.99)
    words = ["whenabouts", "join", *paths]
    words += ["--left-time", clock.left_time]
    words += ["--right-time", f"learned:{output or 'CLOCK.json'}:{clock.right_time}"]
    words += ["--between", f"{near.lo_us}us,{near.hi_us}us", "--confidence", str(near.confidence)]
    for option, value in repeated.items():
        words += [] if value is None else [option, value]
    say(f"\n{shlex.join(words)}", err=aside)

"""`whenabouts plan`: decides how the queries of a plan file run, and says why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from whenabouts.cli.given_files import check_not_read, input_path, plan_extension, text_of
from whenabouts.cli.named_options import stream_paths
from whenabouts.cli.say import printable, say, warnings_as_notes

_EXPORTED = "give a plan written with -o"


@click.command()
@click.argument("queries")
@click.option("--explain", is_flag=True, help="Print every query's choices, costs, statistics and expected state.")
@click.option("-o", "--output", metavar="PATH", help="Write the plan as JSON; - is stdout.")
@click.option("--compare", type=click.Path(path_type=Path), help="Print where an exported plan differs.")
@click.option(
    "--keep",
    type=click.Path(path_type=Path),
    help="Keep an exported plan's decisions unless new ones are clearly cheaper.",
)
@click.option(
    "--input", "inputs", multiple=True, metavar="NAME=PATH",
    help="Files of a stream, for its columns and its rate. Needed for queries as text that join.",
)  # fmt: skip
@click.option("--stream", "streams", multiple=True, hidden=True)
@click.option("--time", "times", multiple=True, metavar="[NAME=]SPEC", help="Time of all streams, or of one.")
@click.option("--max-uncertainty", metavar="D", help="Greatest length of an interval.")
@click.option("--min-uncertainty", metavar="D", help="Least length of an interval.")
def plan(
    queries: str,
    explain: bool,
    output: str | None,
    compare: Path | None,
    keep: Path | None,
    inputs: tuple[str, ...],
    streams: tuple[str, ...],
    **arguments: Any,
) -> None:
    """Decide how queries run: eager or lazy for coalescing queries together, and the algorithm of each join.

    QUERIES is a YAML or JSON file, or - for stdin: `queries` with name, coalesce, group, window (or query: text, or the
    parts of a join, asof_join, join_aggregate or window_join) and statistics, and optionally streams, weights, costs
    and a memory_budget. Or it is a .sql file: queries with a semicolon between them, each with a name if a comment says
    `-- name: NAME` before it. Without costs in the file, those of `whenabouts calibrate` are used.
    """
    from whenabouts.cli.output_files import STDOUT, check_files, output_file
    from whenabouts.cli.plan_streams import streams_of
    from whenabouts.core.sources.files import find_files
    from whenabouts.planner import Plan, read_plan_file
    from whenabouts.planner.calibration import stored_calibration

    path = input_path(queries, "plan file", plan_extension)
    paths = stream_paths(inputs, streams)
    files = (file for each in paths.values() for file in find_files(each)[0])
    check_files([(output, "--output")])
    check_not_read([(output, "--output")], (Path(path), *files))
    text_of(path, "give a YAML, JSON or SQL file")  # `read_plan_file` would repeat Python's words
    stored = stored_calibration()
    with warnings_as_notes():
        registry = read_plan_file(path, stored, streams_of(paths, arguments))
        decided = registry.plan() if keep is None else registry.adopt(text_of(keep, _EXPORTED))
    aside = output == STDOUT
    if explain:
        say(decided.explain(), err=aside)
        if decided.queries and stored is not None and not decided.fitted:
            say(f"costs of coalescing: measured on {stored.machine}, but for those that the file gives", err=aside)
    else:
        for name, scheme in decided.choices.items():
            say(f"{printable(name, kept='')}\t{scheme}", err=aside)
    if compare is not None:
        before = Plan.from_json(text_of(compare, _EXPORTED))
        if before.release != decided.release:
            say(f"the exported plan is from release {before.release or 'unknown'}, this is {decided.release}", err=True)
        for name, (then, now) in before.diff(decided).items():
            say(f"{name}: {then or 'not planned'} before, {now or 'not planned'} now", err=True)
    if aside:
        say(decided.to_json())
    elif output is not None:
        with output_file(output) as file:
            file.write(decided.to_json().encode())

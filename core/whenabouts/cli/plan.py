"""`whenabouts plan`: decides eager or lazy for the queries of a plan file."""

from __future__ import annotations

from pathlib import Path

import click

from whenabouts.core.errors import Code, InputError


@click.command()
@click.argument("queries", type=click.Path(path_type=Path))
@click.option("--explain", is_flag=True, help="Print every query's choice, costs, statistics and predicted state.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the plan as JSON.")
@click.option("--compare", type=click.Path(path_type=Path), help="Print where an exported plan decided otherwise.")
def plan(queries: Path, explain: bool, output: Path | None, compare: Path | None) -> None:
    """Decide which of many coalescing queries keep an extent of their own and which share a lazy one.

    QUERIES is a YAML or JSON file: `queries` with name, coalesce, group, window (or query: text) and statistics, and
    optionally weights, costs and a memory_budget. Or it is a .sql file: queries with a semicolon between them, each
    with a name if a comment says `-- name: NAME` before it. Costs that nobody gives are those that were calibrated.
    """
    from whenabouts.planner import Plan, read_plan_file
    from whenabouts.planner.calibration import stored_calibration

    stored = stored_calibration()
    decided = read_plan_file(queries, stored).plan()
    if explain:
        click.echo(decided.explain())
        click.echo("costs: " + ("made up, see whenabouts calibrate" if stored is None else f"of {stored.machine}"))
    else:
        for name, scheme in decided.choices.items():
            click.echo(f"{name}\t{scheme}")
    if compare is not None:
        try:
            before = Plan.from_json(compare.read_text(encoding="utf-8"))
        except OSError as error:
            raise InputError(Code.UNREADABLE_FILE, str(error), "give a plan written with -o") from error
        if before.release != decided.release:
            click.echo(f"planned by release {before.release or 'unknown'}, this is {decided.release}", err=True)
        for name, (then, now) in before.diff(decided).items():
            click.echo(f"{name}: {then or 'not planned'} before, {now or 'not planned'} now", err=True)
    if output is not None:
        try:
            output.write_text(decided.to_json(), encoding="utf-8")
        except OSError as error:
            raise InputError(Code.UNREADABLE_FILE, str(error), "choose a file that can be written") from error

"""`whenabouts window-join`: combinations of rows of several inputs, from files to a file."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from whenabouts.cli.given_files import input_path
from whenabouts.cli.named_options import lateness_by_name, paths_by_name, times_by_name
from whenabouts.cli.options import (
    CommonOptions,
    check_uncertainty,
    common_options,
    key_columns,
    names,
    time_slots_option,
)
from whenabouts.cli.say import warnings_as_notes

if TYPE_CHECKING:
    from whenabouts.cli.inputs import Input
    from whenabouts.core.times.time_specs import TimeSpec
    from whenabouts.core.window_join.graph import Edge
    from whenabouts.core.window_join.query import WindowJoin


@click.command("window-join", short_help="Join several inputs within windows of each other.")
@click.argument("inputs", nargs=-1, required=True, metavar="NAME=PATH...")
@click.option(
    "--on", metavar="COL[,COL]", help="Key columns that must be equal (default: none); A=B=C where the inputs differ."
)
@click.option(
    "--time", "times", required=True, multiple=True, metavar="[NAME=]SPEC", help="Time of all inputs, or of one."
)
@click.option(
    "--window", "windows", required=True, multiple=True, metavar="A,B=D[@P]",
    help="At most D between a row of A and one of B; LO..HI bounds B - A. @P: with probability P; @possibly: with any.",
)  # fmt: skip
@click.option(
    "--strategy",
    default="auto",
    show_default=True,
    metavar="auto|backward|forward",
    help="Take each row as it arrives (backward evaluation), or in the order of time (forward). Same rows either way.",
)
@click.option(
    "--conservative",
    default="auto",
    show_default=True,
    metavar="auto|gca|lca|none",
    help="Search within the widest window of all (global conservative approach), within the widest ones of two inputs "
    "(local), or within each window itself. Same rows either way.",
)
@click.option(
    "--method",
    default="hash",
    show_default=True,
    metavar="hash|nested",
    help="Search among the rows of one key, or among all rows. Same rows either way.",
)
@click.option(
    "--predicate", "predicates", multiple=True, metavar="SQL", help="Condition on two inputs, as in 'a.id <> b.id'."
)
@click.option("--joint", is_flag=True, help="Add the probability that all windows hold together.")
@time_slots_option
@click.option("--max-uncertainty", metavar="D", help="Greatest length of an interval; longer ones are rejected.")
@click.option("--min-uncertainty", metavar="D", help="Least length of an interval; shorter ones are rejected.")
@common_options
def window_join(*, inputs: tuple[str, ...], common: CommonOptions, **arguments: Any) -> None:
    """Combinations of one row from each input in which every --window is kept.

    Inputs are NAME=PATH, PATH being Parquet, CSV or JSON lines: a file, a folder, a glob in quotes, or - (stdin).
    Windows may form any connected graph over the names. Durations D: 500ms, 2s, 1h30m, '0.5 s', PT1.5S. A time SPEC is
    t (exact), t_min,t_max (uniform in between), granularity:D:t (cut to D), polling:D:t (found by a poll every D), or
    hist:TEMPLATES.json:template_column,t_max; uncertain times need windows with a probability. --lateness takes one
    duration for all inputs, or one for each.

    \b
    whenabouts window-join gate=gate.csv hall=hall.csv exit=exit.csv --on objid --time t \\
        --window gate,hall=5s --window hall,exit=0s..3s -o seen.parquet
    """
    paths = paths_by_name(inputs, "NAME=PATH")
    with warnings_as_notes():
        query = _query(paths, common, arguments)
    from whenabouts.cli.run import FileRun

    files = [input_path(path, f"the input {name}") for name, path in paths.items()]
    run = FileRun(query, files, [spec for _, spec in query.times], common, result="combinations")
    run.prepare()
    if common.explain:
        run.explain(_explained(run.query, run.inputs))
    else:
        run.execute()


def _query(paths: dict[str, str], common: CommonOptions, arguments: dict[str, Any]) -> WindowJoin:
    """The query that the options describe. Errors in them are reported before any file is read."""
    from whenabouts.core.window_join.query import WindowJoin

    return WindowJoin(
        times=_times(tuple(paths), arguments),
        windows=tuple(window_edge(text) for text in arguments["windows"]),
        on=key_columns(arguments["on"]),
        strategy=arguments["strategy"],
        conservative=arguments["conservative"],
        method=arguments["method"],
        predicates=tuple((_pair_of(text, tuple(paths)), text) for text in arguments["predicates"]),
        lateness=lateness_by_name(tuple(paths), common.lateness),
        joint=arguments["joint"],
        time_slots=arguments["time_slots"],
    )


def _times(inputs: tuple[str, ...], arguments: dict[str, Any]) -> dict[str, TimeSpec]:
    specs = times_by_name(inputs, arguments)
    missing = [name for name in inputs if name not in specs]
    if missing:
        raise click.UsageError(f"--time is missing for {', '.join(missing)}")
    check_uncertainty(specs.values(), arguments)
    return {name: specs[name] for name in inputs}


def _pair_of(text: str, streams: tuple[str, ...]) -> tuple[str, str]:
    """The two inputs that a predicate compares."""
    from whenabouts.core.expressions.sql import parse_expression

    found = list(dict.fromkeys(column.value[0] for column in parse_expression(text).columns()))
    if len(found) != 2 or not set(found) <= set(streams):
        raise click.BadParameter(
            f"{text!r} does not compare two of the inputs {', '.join(streams)}: write columns as INPUT.COLUMN",
            param_hint="--predicate",
        )
    return found[0], found[1]


def window_edge(text: str) -> Edge:
    """A window of the command line: `A,B=2s`, `A,B=0s..5s`, either with `@0.8`, or `@possibly`.

    Raises: click's usage error for another form; QueryError WA-2002, WA-2003, WA-2005 for durations, WA-2001 for the
    probability.

    >>> window_edge("a,b=2s").hi_us, window_edge("a,b=-1s..5s@0.8")
    (2000000, Edge(first='a', second='b', lo_us=-1000000, hi_us=5000000, confidence=0.8))
    """
    from whenabouts.core.times.conditions import POSSIBLE, Condition
    from whenabouts.core.window_join.graph import edge_of

    pair, equals, window = text.partition("=")
    streams = names(pair, "--window")
    if not equals or len(streams) != 2:
        raise click.BadParameter(f"{text!r} is not A,B=D, A,B=LO..HI or either with @P", param_hint="--window")
    width, at, sure = window.partition("@")
    lo, dots, hi = width.partition("..")
    edge = edge_of(streams[0], streams[1], (lo, hi) if dots else width)
    if not at:
        return edge
    if sure.strip() == "possibly":
        return replace(edge, confidence=POSSIBLE)
    try:
        probability = float(sure)
    except ValueError:
        raise click.BadParameter(f"{sure!r} in {text!r} is not a probability", param_hint="--window") from None
    return replace(edge, confidence=Condition(edge.lo_us, edge.hi_us, probability).confidence)


def _explained(query: WindowJoin, inputs: tuple[Input, ...]) -> list[str]:
    """The graph of windows, what it implies, how long rows are kept, and the expected cost of each algorithm."""
    from whenabouts.cli.measured_inputs import rates_of
    from whenabouts.core.durations import format_duration
    from whenabouts.core.window_join.cost import alternatives
    from whenabouts.core.window_join.graph import OPEN_US

    graph = query.graph()
    lines = [f"the windows form a {graph.form}"]
    for i, name in enumerate(graph.streams):
        for j in range(i + 1, len(graph.streams)):
            lo, hi = -graph.reach[j][i], graph.reach[i][j]
            ends = ["no bound" if abs(us) >= OPEN_US else format_duration(us) for us in (lo, hi)]
            lines.append(f"{graph.streams[j]} - {name}: from {ends[0]} to {ends[1]}")
    for index, name in enumerate(graph.streams):
        horizon = graph.horizon_us(index)
        kept = "forever" if horizon >= OPEN_US else f"for {format_duration(max(horizon, 0))} of event time"
        lines.append(f"rows of {name} are kept {kept}")
    rates = rates_of(query, inputs)
    lines += [f"{name}: {rate:.6g} rows a second and key" for name, rate in rates.items()]
    if rates:
        found = alternatives(query, graph, list(rates.values()), streaming=bool(query.rates))
        for each in found:
            last = "" if query.rates or each.strategy == "forward" else f", {graph.streams[each.base]} taken last"
            lines.append(f"{each.strategy} {each.conservative}{last}: {each.cost:,.0f} ns a second and key")
    return lines

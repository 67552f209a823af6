"""`whenabouts query`: a query as text, from files to a file, on any engine."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from whenabouts.cli.given_files import STDIN, input_path, read_besides, take_stdin
from whenabouts.cli.options import CommonOptions, names, options_but_stream, time_spec

if TYPE_CHECKING:
    import pyarrow as pa

    from whenabouts.cli.tables import Input
    from whenabouts.core.times.time_specs import TimeSpec
    from whenabouts.core.wrappers.select_project import SelectProject
    from whenabouts.planner.text_queries import TextQuery


@click.command(short_help="Run a query that is written as text.")
@click.argument("text", metavar="QUERY")
@click.option(
    "--stream", "streams", multiple=True, is_flag=False, flag_value="", metavar="NAME=PATH",
    help="Where a stream of the query is read from. Without a value: as --streaming.",
)  # fmt: skip
@click.option("--streaming", "stream", is_flag=True, help="Run as a streaming query over the files, one file a step.")
@click.option(
    "--time", "times", multiple=True, metavar="[NAME=]SPEC",
    help="Time of all streams, or of one (default: t_min,t_max, the only timestamp column, or one called t or ts).",
)  # fmt: skip
@click.option("--max-uncertainty", metavar="D", help="Greatest length of an interval; longer ones are rejected.")
@click.option("--min-uncertainty", metavar="D", help="Least length of an interval; shorter ones are rejected.")
@options_but_stream
def query(*, text: str, streams: tuple[str, ...], common: CommonOptions, **arguments: Any) -> None:
    """Run QUERY, a SELECT in one of three forms, or @FILE that holds one (@-: stdin).

    \b
    SELECT * FROM seismic A, acoustic B
      WHERE A.region = B.region AND WINDOW(A, B) = INTERVAL '2' SECOND WITH THRESHOLD 0.6
    SELECT A.id, C.id FROM gate A, hall B, exit C
      WHERE A.gas = B.gas AND B.gas = C.gas AND WINDOW(A, B) = '2 s' AND WINDOW(B, C) = '5 s'
    SELECT region, MAX(DURATION(VALID(s))) FROM s [RANGE 24 HOUR SLIDE 1 HOUR]
      COALESCE ON temperature > 100 GROUP BY region

    \b
    whenabouts query "SELECT ..." --stream seismic=seismic.csv --stream acoustic='acoustic/*.parquet' -o pairs.parquet

    Each stream is Parquet, CSV or JSON lines: a file, a folder, a glob in quotes, or - (stdin). SPEC is t (exact),
    t_min,t_max (uniform in between), or hist:TEMPLATES.json:template_column,t_max.
    """
    from whenabouts.cli.run import run_command, say_all
    from whenabouts.planner import parse_query

    asked = parse_query(_text_of(text))
    paths = paths_of(streams)
    common = replace(common, stream=common.stream or "" in streams)
    schemas = {name: schema_of(path) for name, path in paths.items() if name in asked.streams}
    bound = asked.bind(schemas, _times(asked, arguments), _lateness(asked, common))
    specs = _specs(bound)
    say_all([f"note: the time of {name} is {told}" for name, told in _found_times(asked, bound, arguments)])
    run_command(
        bound,
        [paths[source.stream] for source in asked.sources],
        common,
        specs=specs,
        measured=_measured,
        result="rows",
    )


def schema_of(path: str) -> pa.Schema:
    """The columns of an input, from its first file. Raises: InputError WA-1008 for what cannot be read."""
    from whenabouts.core.sources.files import find_files, format_of, read_file, with_times_found

    first = find_files(path)[0][0]
    if format_of(first) == "parquet":
        import pyarrow.parquet as pq

        try:
            return pq.read_schema(first)
        except Exception:  # whatever is wrong with the file, reading it says so
            pass
    return with_times_found(read_file(first)).schema


def _text_of(text: str) -> str:
    from whenabouts.core.errors import Code, InputError

    if not text.startswith("@"):
        return text
    try:
        if text[1:] == STDIN:
            take_stdin("the query")
            return sys.stdin.buffer.read().decode()
        read_besides(text[1:])
        return Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(Code.UNREADABLE_FILE, f"{text[1:]}: {error}", "give a file that holds a query") from error


def paths_of(streams: tuple[str, ...]) -> dict[str, str]:
    """Paths by stream name, from `NAME=PATH`; stdin is put into a file."""
    paths: dict[str, str] = {}
    for given in filter(None, streams):
        name, equals, path = given.partition("=")
        if not (name and equals and path):
            raise click.BadParameter(f"{given!r} is not NAME=PATH", param_hint="--stream")
        if name in paths:
            raise click.BadParameter(f"two streams are called {name!r}", param_hint="--stream")
        paths[name] = input_path(path, f"the stream {name}")
    return paths


def _times(asked: TextQuery, arguments: dict[str, Any]) -> dict[str, TimeSpec]:
    known = [*asked.streams, *(source.alias for source in asked.sources)]
    specs: dict[str, TimeSpec] = {}
    for given in arguments["times"]:
        name, equals, rest = given.partition("=")
        chosen, spec = ([name], rest) if equals and name in known else (asked.streams, given)
        for stream in chosen:
            if len(chosen) == 1 or stream not in specs:
                specs[stream] = time_spec(spec, "--time", arguments["max_uncertainty"], arguments["min_uncertainty"])
    return specs


def _lateness(asked: TextQuery, common: CommonOptions) -> dict[str, str]:
    given = names(common.lateness) or ("0s",)
    if len(given) not in (1, len(asked.sources)):
        raise click.BadParameter(f"{common.lateness!r} is not one duration, or one for each", param_hint="--lateness")
    each = given * len(asked.sources) if len(given) == 1 else given
    return {source.alias: late for source, late in zip(asked.sources, each, strict=True)}


def _specs(bound: SelectProject) -> list[TimeSpec]:
    """The time of each input."""
    inner: Any = bound.query
    if hasattr(inner, "left_time"):
        return [inner.left_time, inner.right_time]
    return [spec for _, spec in inner.times] if hasattr(inner, "times") else [inner.point] * len(bound.inputs)


def _found_times(asked: TextQuery, bound: SelectProject, arguments: dict[str, Any]) -> list[tuple[str, str]]:
    """Times that were found by their columns' names, for the user to know."""
    given = _times(asked, arguments)
    told = zip(asked.sources, _specs(bound), strict=True)
    return [
        (source.alias, ",".join(spec.columns))
        for source, spec in told
        if source.alias not in given and source.stream not in given
    ]


def _measured(bound: SelectProject, inputs: tuple[Input, ...]) -> tuple[SelectProject, list[str]]:
    """On a stream, the greatest length of intervals where it was not declared, and a note that says so."""
    from whenabouts.cli import join, window_join

    measure: Any = None
    if hasattr(bound.query, "left_time"):
        measure = join.measured
    elif hasattr(bound.query, "times"):
        measure = window_join.measured
    if measure is None:
        return bound, []
    inner, notes = measure(bound.query, inputs)
    return replace(bound, query=inner), notes

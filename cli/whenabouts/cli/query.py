"""`whenabouts query`: a query written as SQL, from files to a file, on any engine."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from whenabouts.cli.given_files import STDIN, decoded, note_read, take_stdin, text_of
from whenabouts.cli.named_options import check_names, lateness_by_name, stream_paths, time_found, times_by_name
from whenabouts.cli.options import STREAMING, CommonOptions, check_uncertainty, options_besides_stream
from whenabouts.cli.say import say_all, warnings_as_notes
from whenabouts.core.errors import Code, QueryError

if TYPE_CHECKING:
    import pyarrow as pa

    from whenabouts.cli.run import FileRun
    from whenabouts.core.times.time_specs import TimeSpec
    from whenabouts.core.wrappers.select_project import SelectProject

_QUERY = "give a file that holds a query"


@click.command(short_help="Run a query written as SQL.")
@click.argument("text", metavar="QUERY")
@click.option("--input", "inputs", multiple=True, metavar="NAME=PATH", help="Where to read a stream of the query.")
@click.option("--stream", "streams", multiple=True, is_flag=False, flag_value="", hidden=True)
@click.option("--streaming", "stream", is_flag=True, help=STREAMING)
@click.option(
    "--time", "times", multiple=True, metavar="[NAME=]SPEC",
    help="Time of all streams, or of one (default: t_min,t_max, the only timestamp column, or one called t, ts, time, "
    "timestamp or event_time).",
)  # fmt: skip
@click.option("--max-uncertainty", metavar="D", help="Greatest length of an interval; longer ones are rejected.")
@click.option("--min-uncertainty", metavar="D", help="Least length of an interval; shorter ones are rejected.")
@options_besides_stream
def query(
    *, text: str, inputs: tuple[str, ...], streams: tuple[str, ...], common: CommonOptions, **arguments: Any
) -> None:
    """Run QUERY, a SELECT in one of five forms, or @FILE that holds one (@-: stdin).

    \b
    SELECT * FROM seismic A, acoustic B
      WHERE A.region = B.region AND WINDOW(A, B) = INTERVAL '2' SECOND WITH THRESHOLD 0.6
    SELECT A.id, C.id FROM gate A, hall B, exit C
      WHERE A.gas = B.gas AND B.gas = C.gas AND WINDOW(A, B) = '2 s' AND WINDOW(B, C) = '5 s'
    SELECT region, MAX(DURATION(VALID(s))) FROM s [RANGE 24 HOUR SLIDE 1 HOUR]
      COALESCE ON temperature > 100 GROUP BY region
    SELECT A.id, B.bid FROM trades A ASOF LEFT JOIN quotes B ON A.symbol = B.symbol AND A.ts >= B.ts
    SELECT o.id, SUM(p.amount), PROBABILITY(COUNT(p) = 0) FROM orders o, payments p
      WHERE o.account = p.account AND WINDOW(o, p) BETWEEN '-5 minutes' AND '0 s' WITH THRESHOLD 0.9 GROUP BY o

    \b
    whenabouts query "SELECT ..." --input seismic=seismic.csv --input acoustic='acoustic/*.parquet' -o pairs.parquet

    Each stream is Parquet, CSV or JSON lines: a file, a folder, a glob in quotes, or - (stdin). SPEC is t (exact),
    t_min,t_max (uniform in between), granularity:D:t (cut to D), polling:D:t (found by a poll every D), or
    hist:TEMPLATES.json:template_column,t_max.
    """
    from whenabouts.cli.run import FileRun
    from whenabouts.planner import parse_query

    asked = parse_query(_text_of(text))
    former = [given for given in streams if given]  # without a value, --stream is --streaming
    paths = stream_paths(inputs, former)
    common = replace(common, stream=common.stream or len(former) < len(streams))
    check_names(paths, asked.streams, "--input", "streams of the query")
    if not paths:
        raise QueryError(
            Code.UNKNOWN_STREAM, "no stream is given", f"write --input NAME=PATH for {', '.join(asked.streams)}"
        )
    schemas = {name: schema_of(path) for name, path in paths.items()}
    aliases = [source.alias for source in asked.sources]
    given = times_by_name(asked.streams, arguments, aliases)
    unnamed = [each for each in asked.sources if each.alias not in given and each.stream not in given]
    with_files = [each for each in unnamed if each.stream in schemas]
    times = given | {each.alias: time_found(each.stream, schemas[each.stream], arguments) for each in with_files}
    check_uncertainty(times.values(), arguments)
    with warnings_as_notes():
        bound = asked.bind(schemas, times, lateness_by_name(aliases, common.lateness))
    specs = _specs(bound)
    notes = asked.notes + [
        f"the time of {source.alias} is {','.join(spec.columns)}"
        for source, spec in zip(asked.sources, specs, strict=True)
        if source in unnamed
    ]
    say_all(notes, "note: ")
    run = FileRun(bound, [paths[source.stream] for source in asked.sources], specs, common, result="rows")
    run.prepare()
    if common.explain:
        run.explain(_forecast(run, stream=common.stream))
    else:
        run.execute()


def _forecast(run: FileRun[Any], *, stream: bool) -> Sequence[str]:
    """What the join will meet: rows that a stream of an as-of join holds, partners of the rows of a join aggregate."""
    from whenabouts.cli.aggregates import partner_lines
    from whenabouts.cli.asof_state import state_lines
    from whenabouts.core.asof_join.query import AsofJoin
    from whenabouts.core.join_aggregate.query import JoinAggregate

    asked: Any = run.query
    if isinstance(asked.query, AsofJoin):
        return state_lines(asked.query, run.inputs) if stream else ()
    whole = isinstance(asked.query, JoinAggregate) and not asked.where  # else the rows that it joins are not known
    return partner_lines(asked.query, run.inputs) if whole else ()


def schema_of(path: str) -> pa.Schema:
    """The columns of an input, from its first file. Raises: InputError WA-1008 for what cannot be read."""
    from whenabouts.core.sources.files import find_files, format_of, read_file, with_times_found

    first = find_files(path)[0][0]
    if format_of(first) == "parquet":
        import pyarrow.parquet as pq

        try:
            return pq.read_schema(first)
        except Exception:  # reading the file will report what is wrong with it
            pass
    return with_times_found(read_file(first)).schema


def _text_of(text: str) -> str:
    """The text of a query, or of the file that it names with @; @- is stdin."""
    if not text.startswith("@"):
        return text
    if text[1:] == STDIN:
        take_stdin("the query")
        return decoded(sys.stdin.buffer.read(), "stdin", _QUERY)
    note_read(text[1:])
    return text_of(text[1:], _QUERY)


def _specs(bound: SelectProject) -> list[TimeSpec]:
    """The time of each input."""
    inner: Any = bound.query
    if hasattr(inner, "left_time"):
        return [inner.left_time, inner.right_time]
    return [spec for _, spec in inner.times] if hasattr(inner, "times") else [inner.point] * len(bound.inputs)

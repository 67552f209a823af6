"""`whenabouts profile`: how uncertain the times of a file are, what is wrong with them, and how to state them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from whenabouts.cli.failures import REJECTED_AND_STRICT
from whenabouts.cli.given_files import check_not_read, input_path
from whenabouts.cli.options import TIME_UNITS, names
from whenabouts.cli.say import say, say_all

if TYPE_CHECKING:
    import pyarrow as pa

    from whenabouts.cli.inputs import Input
    from whenabouts.core.clocks.profile.profile import Unreadable
    from whenabouts.core.clocks.profile.report import Profile
    from whenabouts.core.sources.time_parsing import ClockRules

_AT_ONCE = 1_000_000
"""Files of so many rows are read whole, so that equal rows can be found; of larger ones only the columns asked for."""


@click.command(short_help="Find out how uncertain the times of a file are, and what is wrong with them.")
@click.argument("file")
@click.option("--time", required=True, metavar="COL", help="The column of times.")
@click.option("--group", metavar="COL[,COL]", help="Columns whose groups are profiled each: devices, hosts.")
@click.option("--arrival", metavar="COL", help="Times of arrival (default: rows arrived in their order).")
@click.option(
    "--lateness-share", type=click.FloatRange(0, 1, min_open=True), default=0.999, show_default=True,
    help="The share of rows that the proposed lateness has in time.",
)  # fmt: skip
@click.option("--max-rows", type=click.IntRange(1), default=10_000_000, show_default=True,
              help="Look at so many rows one by one; of more, at a sample.")  # fmt: skip
@click.option("--html", metavar="PAGE.html", help="Write the report as a page.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--strict", is_flag=True, help="Exit with 1 if anything is wrong.")
@click.option("--time-zone", metavar="ZONE", help="Time zone of times without one (default: UTC).")
@click.option("--time-unit", type=click.Choice(TIME_UNITS), help="Unit of integer times since 1970 (default: us).")
def profile(
    *,
    file: str,
    time: str,
    group: str | None,
    arrival: str | None,
    lateness_share: float,
    max_rows: int,
    html: str | None,
    as_json: bool,
    strict: bool,
    time_zone: str | None,
    time_unit: str | None,
) -> None:
    """Profile a column of times: unit, granularity, polling, duplicates, gaps, order, clock steps, time zones.

    FILE is Parquet, CSV or JSON lines: a file, a folder, a glob in quotes, or - (stdin). Prints what was found, and at
    the end the time specification as Python and as options of `whenabouts join`.

    \b
    whenabouts profile events.csv --time t --group device
    """
    import pyarrow as pa

    from whenabouts.cli.output_files import check_files, check_page, reported_if_not_written
    from whenabouts.cli.tables import read_input
    from whenabouts.core.clocks.profile.columns import ROW_ORDER
    from whenabouts.core.clocks.profile.profile import profile_of_file
    from whenabouts.core.sources.files import find_files
    from whenabouts.core.sources.time_parsing import ClockRules

    check_page(html)
    check_files([(html, "--html")])
    path = input_path(file)
    check_not_read([(html, "--html")], find_files(path)[0])
    columns = (time, *([arrival] if arrival else []))
    rules = ClockRules(time_zone, time_unit or "us")  # a unit, so that numbers of another one are not refused
    source = read_input("profiled", path, columns, rules, left_to_engine=lambda _: True)
    say_all(source.notes, "note: ")
    lost, unreadable = _unreadable(source, columns, rules)
    found = profile_of_file(
        _frame(source, lost), time, unreadable, group=names(group) or None, arrival=arrival or ROW_ORDER,
        max_rows=max_rows,
    )  # fmt: skip
    of_unit = pa.int64() if rules.unit in (None, "us") else pa.timestamp(rules.unit, "UTC")
    if source.schema.field(time).type == of_unit:
        found = _with_option(found, rules.unit or "us")
    if html is not None:
        with reported_if_not_written(html):
            found.to_html(html)
    if as_json:
        say(json.dumps(found.to_dict(), indent=2))
    else:
        say(found.text(lateness_share))
        options = found.option(lateness_share)
        if options is not None:
            say(options)
    if strict and found.wrong:
        click.get_current_context().exit(REJECTED_AND_STRICT)


def _with_option(found: Profile, declared: str) -> Profile:
    """A profile of integers, whose unit an option states."""
    from whenabouts.core.clocks.profile.units import UNIT_NAMES, unit_remedy

    options = {
        unit_remedy(UNIT_NAMES[declared], name): f"Give --time-unit {unit}."
        for unit, name in UNIT_NAMES.items()
        if unit != declared
    }
    findings = tuple(replace(each, remedy=options.get(each.remedy, each.remedy)) for each in found.findings)
    return replace(found, findings=findings)


def _unreadable(source: Input, columns: tuple[str, ...], rules: ClockRules) -> tuple[pa.Table, list[Unreadable]]:
    """The rows with a time that cannot be read, that time null, and in which rows of the file each column has one."""
    import numpy as np
    import pyarrow as pa

    from whenabouts.core.clocks.profile.profile import Unreadable
    from whenabouts.core.errors import Code
    from whenabouts.core.sources.time_parsing import UTC_US, ParsingCounts, parse_times

    rows, found = source.unparsable, []
    at = np.array(source.unparsable_at, np.int64)
    outside = np.array([code == Code.TIME_OUT_OF_RANGE for code in source.unparsable_codes], bool)
    there = [name for name in columns if name in rows.column_names]  # the profile refuses others
    for column in dict.fromkeys(there if rows.num_rows else ()):
        written, type_ = rows.column(column), source.schema.field(column).type
        alone = pa.table({column: written})
        beside = 0
        if pa.types.is_string(written.type):
            # Among as many times like the others, text is read as it was in the whole column: as numbers or as dates.
            beside = len(written) + 1
            usual = pa.array(["2000-01-01T00:00:00Z" if type_ == UTC_US else "0"] * beside)
            alone = pa.table({column: pa.chunked_array([usual, *written.chunks])})
        parsed = parse_times(alone, (column,), rules, ParsingCounts(), source.name)
        bad = np.zeros(len(written), bool)
        bad[parsed.lost - beside] = True
        places = pa.array(beside + np.cumsum(~bad) - 1, mask=bad)
        values = parsed.table.column(column).take(places).cast(type_)
        rows = rows.set_column(rows.schema.get_field_index(column), column, values)
        for mask, far in ((bad & ~outside, False), (bad & outside, True)):
            if mask.any():
                found.append(Unreadable(column, at[mask], str(written[int(np.argmax(mask))].as_py()), far))
    return rows.cast(source.schema), found


def _frame(source: Input, lost: pa.Table) -> Any:
    """The rows of an input: all of them at once, or by chunks if they are many."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    from whenabouts.cli.inputs import ParquetTables

    if source.rows_in <= _AT_ONCE:
        return pa.concat_tables(_with_lost(source, lost))
    if isinstance(source.tables, ParquetTables):
        return ds.dataset(list(map(str, source.tables.paths)), schema=source.schema, format="parquet")
    batches = (batch for table in _with_lost(source, lost) for batch in table.to_batches())
    return pa.RecordBatchReader.from_batches(source.schema, batches)


def _with_lost(source: Input, lost: pa.Table) -> Iterator[pa.Table]:
    """The tables of an input with the lost rows at their places in the files."""
    import numpy as np
    import pyarrow as pa

    before = np.array(source.unparsable_at, np.int64) - np.arange(lost.num_rows)  # of the other rows
    start = 0
    for table in source.tables:
        rows = table.num_rows
        here = np.flatnonzero((before >= start) & (before < start + rows))
        if len(here):
            order = np.insert(np.arange(rows), before[here] - start, rows + np.arange(len(here)))
            table = pa.concat_tables([table, lost.take(here)]).take(order)
        yield table
        start += rows
    yield lost.filter(before >= start)

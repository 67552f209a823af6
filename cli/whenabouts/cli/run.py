"""One command from files to a file: read, settle, check, run, write, and say on stderr what became of every row."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

import click

from whenabouts.cli.app import REJECTED_AND_STRICT
from whenabouts.cli.engines import reads_parquet, run_on
from whenabouts.cli.expected_pairs import at_most, refuse_over
from whenabouts.cli.given_files import check_not_read
from whenabouts.cli.key_columns import with_keys_alike
from whenabouts.cli.options import CommonOptions
from whenabouts.cli.outputs import check_columns, check_targets, write_batches
from whenabouts.cli.progress import Progress, progress
from whenabouts.cli.reject_tables import Rejects, told
from whenabouts.cli.result_table import print_first_rows
from whenabouts.cli.say import say
from whenabouts.cli.tables import Input, read_input
from whenabouts.core import metrics
from whenabouts.core.costs.choices import Choice, Choosing, Load, decided
from whenabouts.core.costs.prices import SchemePrices
from whenabouts.core.errors import Code, DigitsCutWarning, EngineError
from whenabouts.core.hosting.file_runs import OutcomeBatches
from whenabouts.core.runtime.event_reader import EventReader, rejects_schema, times
from whenabouts.core.runtime.protocol import Query
from whenabouts.core.sources.files import find_files
from whenabouts.core.sources.time_parsing import ClockRules
from whenabouts.core.times.time_specs import TimeSpec

_Q = TypeVar("_Q", bound=Query)


class Limits(NamedTuple):
    """`--max-pairs` and `--max-pairs-per-row`."""

    pairs: int | None = None
    per_row: int | None = None


@dataclass(slots=True)
class _Seconds:
    """Seconds of the whole command and of the engine's part."""

    begun: float
    run: float = 0.0


def run_command(
    query: _Q,
    paths: Sequence[str],
    common: CommonOptions,
    *,
    specs: Sequence[TimeSpec],
    measured: Callable[[Any, tuple[Input, ...]], tuple[Any, list[str]]],
    limits: Limits | None = None,
    result: str = "pairs",
    instead: Callable[[Any, tuple[Input, ...]], list[str]] | None = None,
    looks_ahead: Callable[[Any, tuple[Input, ...]], list[str]] | None = None,
) -> None:
    """Read the inputs, run the query, write result and rejects, and print the account on stderr.

    `measured` completes the query from the inputs where a stream needs it. `instead` answers a question on stdout, and
    nothing is run; `looks_ahead` says what else `--explain` tells. `limits` are those of a join of two inputs, which
    alone counts its pairs beforehand; `result` is what the output rows are called. Exits with 1 when rows were rejected
    under `--strict`; raises WhenaboutsError for everything else that goes wrong.
    """
    seconds = _Seconds(perf_counter())
    check_targets(common.output, common.rejects)
    read = (file for path in paths for file in find_files(path)[0])
    check_not_read(((common.output, "--output"), (common.rejects, "--rejects")), read)
    with progress(common.progress) as shown:
        inputs = _read(query, paths, common, specs, shown)
        notes = [note for source in inputs for note in source.notes]
        notes += [f"{source.name} has no rows" for source in inputs if not source.rows_in]
        complete = query
        if common.stream:
            complete, more = measured(query, inputs)
            notes += more
        say_all(notes, "note: ")
        chosen, complete = _chosen(complete) if common.stream else ([], complete)
        operator = complete.operator([source.schema for source in inputs], streaming=common.stream)
        if instead is not None:
            for line in instead(complete, inputs):
                say(line)
            return
        check_columns(operator.output_schema, common.output, "--output")
        check_columns(rejects_schema([source.raw_schema for source in inputs]), common.rejects, "--rejects")
        if limits is not None:
            _check_limits(complete, inputs, specs, common, limits)
        if common.explain:
            say_all(_explained(complete, chosen, inputs, common))
            say_all([*(looks_ahead(complete, inputs) if looks_ahead is not None else ()), "not run (--explain)"])
            return
        shown.stage(f"running on {common.engine}", sum(source.rows_in for source in inputs))
        started = perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DigitsCutWarning)  # a note has told of it
            found = run_on(common.engine, complete, inputs, stream=common.stream, progress=shown)
        seconds.run = perf_counter() - started
        shown.stage("writing")
        rejects = Rejects(inputs, found.rejects)
        _write(found, rejects, common)
    _account(inputs, found, rejects, common, seconds, result)


def longest_us(source: Input, spec: TimeSpec) -> int:
    """The greatest length of a usable interval of an input, in microseconds; 0 where there is none."""
    reader = EventReader(0, source.name, source.schema, spec)
    longest = 0
    for table in source.tables:
        for batch in table.to_batches():
            t_min, t_max = times(reader.read(batch).block)
            longest = max(longest, int((t_max - t_min).max(initial=0)))
    return longest


def say_all(lines: Sequence[str], before: str = "") -> None:
    """Lines for the user on stderr: stdout carries data only."""
    for line in lines:
        say(before + line, err=True)


def _read(
    query: Query, paths: Sequence[str], common: CommonOptions, specs: Sequence[TimeSpec], shown: Progress
) -> tuple[Input, ...]:
    clock = ClockRules(common.time_zone, common.time_unit)
    inputs = []
    left = reads_parquet(common.engine)
    for name, path, spec in zip(query.inputs, paths, specs, strict=True):
        shown.stage(f"reading {name}")
        inputs.append(read_input(name, path, spec.columns, clock, spec.template_column, left_to_engine=left))
    inner: Any = getattr(query, "query", query)
    inputs = with_keys_alike(inputs, getattr(inner, "key_columns", ()))
    return tuple(inputs if left is not None else [source.in_memory() for source in inputs])


def _check_limits(
    query: Any, inputs: tuple[Input, ...], specs: Sequence[TimeSpec], common: CommonOptions, limits: Limits
) -> None:
    if not common.explain and limits == Limits():
        return
    bound = at_most(inputs, specs, query.condition, query.key_columns)
    say_all([f"at most {bound.pairs:,} pairs, at most {bound.per_row:,} for one row"])
    refuse_over(bound, limits.pairs, limits.per_row)


def _chosen(query: Any) -> tuple[list[Choice], Any]:
    """What a streaming query leaves open is chosen by the prices that were calibrated here, where there are any."""
    from whenabouts.planner.calibration import stored_calibration

    if not isinstance(query, Choosing):
        return [], query
    stored = stored_calibration()
    if stored is None:
        return query.choices(), query
    chosen = query.choices(Load(timing_prices=stored.timing, scheme_prices=SchemePrices(stored.costs, stored.sizes)))
    return chosen, decided(query, chosen)


def _explained(query: Query, chosen: Sequence[Choice], inputs: Sequence[Input], common: CommonOptions) -> list[str]:
    lines = [f"engine {common.engine}, {'as a stream' if common.stream else 'as a batch'}"]
    lines += [f"{source.name}: {source.rows_in:,} rows, files: {len(source.tables)}" for source in inputs]
    fields = ((name, getattr(query, name)) for name in getattr(query, "__dataclass_fields__", ()))
    lines += [f"{name}: {value}" for name, value in fields if value is not None]
    return lines + [f"chosen: {choice}" for choice in chosen]


def _write(found: OutcomeBatches, rejects: Rejects, common: CommonOptions) -> None:
    if common.rejects is not None:
        write_batches(rejects.schema, rejects.batches, common.rejects)
    else:
        deque(rejects.batches, maxlen=0)  # to be counted
    if common.output is None:
        print_first_rows(found)
    else:
        write_batches(found.schema, found.batches, common.output)


def _account(
    inputs: Sequence[Input],
    found: OutcomeBatches,
    rejects: Rejects,
    common: CommonOptions,
    seconds: _Seconds,
    result: str,
) -> None:
    """Print what became of every row; a row that is in neither account is the engine's failure (WA-3005)."""
    rows_in = sum(source.rows_in for source in inputs)
    processed = found.metrics.get(metrics.PROCESSED, rows_in - rejects.rows)
    replayed = found.metrics.get(metrics.REPLAYED, 0)
    parts = ", ".join(f"{source.name} {source.rows_in:,}" for source in inputs)
    say_all(
        [
            f"rows in {rows_in:,} ({parts}) = processed {processed:,} + rejected {rejects.rows:,}"
            + (f" + replayed {replayed:,}" if replayed else ""),
            f"{result} {found.rows:,}" + (f" -> {common.output}" if common.output else ""),
        ]
    )
    if rejects.rows:
        where = f" -> {common.rejects}" if common.rejects else " (--rejects PATH keeps the rows)"
        say_all([f"rejected: {told(rejects.by_code)}{where}"])
    rate = rows_in / seconds.run if seconds.run else 0.0
    say_all([f"{seconds.run:.2f} s to run, {perf_counter() - seconds.begun:.2f} s in all, {rate:,.0f} rows/s"])
    if rows_in != processed + rejects.rows + replayed:
        raise EngineError(
            Code.ENGINE_FAILED,
            f"{rows_in:,} rows went in, but {processed:,} were processed and {rejects.rows:,} rejected",
            "please report this: a row must never be lost",
        )
    if common.strict and rejects.rows:
        say_all([f"error: {rejects.rows:,} rows rejected and --strict was given; the first: {rejects.first}"])
        click.get_current_context().exit(REJECTED_AND_STRICT)

"""A query over files, step by step: read, prepare, then explain or execute, and account for every row on stderr."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Sequence
from time import perf_counter
from typing import Any, Generic, TypeVar

import click

from whenabouts.cli.engines import reads_parquet, run_on
from whenabouts.cli.explained_query import query_lines
from whenabouts.cli.failures import REJECTED_AND_STRICT
from whenabouts.cli.given_files import check_not_read
from whenabouts.cli.inputs import Input
from whenabouts.cli.key_columns import with_keys_alike
from whenabouts.cli.learned_times import age_notes
from whenabouts.cli.measured_inputs import with_measured
from whenabouts.cli.options import CommonOptions
from whenabouts.cli.outputs import check_columns, check_targets, write_batches
from whenabouts.cli.progress import progress
from whenabouts.cli.reject_tables import RejectTables, counted_by_reason
from whenabouts.cli.result_table import print_first_rows
from whenabouts.cli.say import say_all, warnings_as_notes
from whenabouts.cli.tables import read_input
from whenabouts.core import metrics
from whenabouts.core.costs.choices import Choice, Choosing, Workload, decided
from whenabouts.core.costs.prices import SchemePrices
from whenabouts.core.errors import Code, DigitsCutWarning, DoubtfulTimesWarning, EngineError, SingleBucketWarning
from whenabouts.core.hosting.file_runs import OutcomeBatches
from whenabouts.core.runtime.protocol import Query
from whenabouts.core.runtime.rejects import rejects_schema, were_rejected
from whenabouts.core.sources.files import find_files
from whenabouts.core.sources.time_parsing import ClockRules
from whenabouts.core.times.time_specs import TimeSpec

_Q = TypeVar("_Q", bound=Query)


class FileRun(Generic[_Q]):
    """One run of a query over files.

    A command calls `prepare`, asks its own questions of `query` and `inputs`, and ends with `explain` or `execute`.
    `query`: as given, and after `prepare` complete. `inputs`: what was read. All methods print on stderr, since stdout
    carries data only, and raise WhenaboutsError for whatever goes wrong.
    """

    def __init__(
        self,
        query: _Q,
        paths: Sequence[str],
        specs: Sequence[TimeSpec],
        common: CommonOptions,
        *,
        result: str,
        outer: bool = False,
    ) -> None:
        """Read the inputs. `specs`: the time of each. `result`: what the output rows are called. `outer`: they are
        pairs and rows without a partner, to be counted apart."""
        self._begun = perf_counter()
        self._common, self._result, self._outer = common, result, outer
        self._choices: list[Choice] = []
        self._specs = specs
        check_targets(common.output, common.rejects)
        read = (file for path in paths for file in find_files(path)[0])
        check_not_read(((common.output, "--output"), (common.rejects, "--rejects")), read)
        self.query = query
        self.inputs = _read(query, paths, specs, common)

    def prepare(self) -> None:
        """Complete the query for its inputs, and refuse what cannot run or cannot be written."""
        notes = [note for source in self.inputs for note in source.notes]
        notes += age_notes(self.inputs, self._specs)
        notes += [f"{source.name} has no rows" for source in self.inputs if not source.rows_in]
        if self._common.stream:
            self.query, more = with_measured(self.query, self.inputs)
            notes += more
        say_all(notes, "note: ")
        if self._common.stream:
            self._choices, self.query = _decided(self.query)
        with progress(self._common.progress), warnings_as_notes():  # the operator's kernels may have to be compiled
            operator = self.query.operator([source.schema for source in self.inputs], streaming=self._common.stream)
        check_columns(operator.output_schema, self._common.output, "--output")
        rejects = rejects_schema([source.raw_schema for source in self.inputs])
        check_columns(rejects, self._common.rejects, "--rejects")

    def explain(self, more: Sequence[str] = ()) -> None:
        """Print the query, its inputs, what was chosen, and `more`, in place of a run."""
        common, query = self._common, self.query
        lines = [f"engine {common.engine}, {'as a stream' if common.stream else 'as a batch'}"]
        lines += [f"{source.name}: {source.rows_in:,} rows, files: {len(source.tables)}" for source in self.inputs]
        lines += query_lines(query)
        lines += [f"chosen: {choice}" for choice in self._choices]
        say_all([*lines, *more, "not run (--explain)"])

    def execute(self) -> None:
        """Run the query, write its result and rejects, and print the account. Exits with 1 when rows were rejected
        under `--strict`."""
        common = self._common
        with progress(common.progress) as shown:
            shown.stage(f"running on {common.engine}", sum(source.rows_in for source in self.inputs))
            started = perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DigitsCutWarning)  # a note has said so
                warnings.simplefilter("ignore", SingleBucketWarning)  # likewise of a stream; a batch is one step
                warnings.simplefilter(
                    "ignore", DoubtfulTimesWarning
                )  # refused when files are read, unless a unit is given
                found = run_on(common.engine, self.query, self.inputs, stream=common.stream, progress=shown)
                shown.stage("writing")
                if common.output is None:
                    print_first_rows(found)
                else:
                    write_batches(found.schema, found.batches, common.output)
                seconds = perf_counter() - started
                rejects = RejectTables(self.inputs, found.rejects)
                if common.rejects is not None:
                    write_batches(rejects.schema, rejects.batches, common.rejects)
                else:
                    deque(rejects.batches, maxlen=0)  # they are counted
        self._account(found, rejects, seconds)

    def _account(self, found: OutcomeBatches, rejects: RejectTables, seconds: float) -> None:
        """Print what happened to every row; a row missing from the account is the engine's failure (WA-3005)."""
        common = self._common
        rows_in = sum(source.rows_in for source in self.inputs)
        processed = found.metrics.get(metrics.PROCESSED, rows_in - rejects.rows)
        replayed = found.metrics.get(metrics.REPLAYED, 0)
        parts = ", ".join(f"{source.name} {source.rows_in:,}" for source in self.inputs)
        alone = found.metrics[metrics.UNMATCHED]
        lines = [
            f"rows in {rows_in:,} ({parts}) = processed {processed:,} + rejected {rejects.rows:,}"
            + (f" + replayed {replayed:,}" if replayed else ""),
            f"{self._result} {found.rows:,}"
            + (f" (pairs {found.rows - alone:,}, unmatched {alone:,})" if self._outer else "")
            + (f" -> {common.output}" if common.output else ""),
        ]
        if rejects.rows:
            where = f" -> {common.rejects}" if common.rejects else " (--rejects PATH keeps the rows)"
            lines.append(f"rejected: {counted_by_reason(rejects.by_code)}{where}")
        rate = rows_in / seconds if seconds else 0.0
        lines.append(f"{seconds:.2f} s to run, {perf_counter() - self._begun:.2f} s in all, {rate:,.0f} rows/s")
        say_all(lines)
        if rows_in != processed + rejects.rows + replayed:
            raise EngineError(
                Code.ENGINE_FAILED,
                f"{rows_in:,} rows went in, but {processed:,} were processed and {rejects.rows:,} rejected",
                "please report this: a row must never be lost",
            )
        if common.strict and rejects.rows:
            say_all([f"error: {were_rejected(rejects.rows)} and --strict was given; the first: {rejects.first}"])
            click.get_current_context().exit(REJECTED_AND_STRICT)


def _read(query: Query, paths: Sequence[str], specs: Sequence[TimeSpec], common: CommonOptions) -> tuple[Input, ...]:
    clock = ClockRules(common.time_zone, common.time_unit)
    left_to_engine = reads_parquet(common.engine)
    inputs = []
    with progress(common.progress) as shown:
        for name, path, spec in zip(query.inputs, paths, specs, strict=True):
            shown.stage(f"reading {name}")
            columns = spec.columns, clock, spec.template_column
            inputs.append(read_input(name, path, *columns, left_to_engine=left_to_engine))
    inner: Any = getattr(query, "query", query)
    inputs = with_keys_alike(inputs, getattr(inner, "key_columns", ()))
    return tuple(inputs if left_to_engine is not None else [source.in_memory() for source in inputs])


def _decided(query: Any) -> tuple[list[Choice], Any]:
    """A streaming query with its open choices made, by the prices calibrated on this machine if there are any."""
    from whenabouts.planner.calibration import stored_calibration

    if not isinstance(query, Choosing):
        return [], query
    stored = stored_calibration()
    if stored is None:
        return query.choices(), query
    choices = query.choices(
        Workload(timing_prices=stored.timing, scheme_prices=SchemePrices(stored.costs, stored.sizes))
    )
    return choices, decided(query, choices)

"""What a stream must know of its inputs and the files can tell: longest intervals, and rates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar, cast

import pyarrow as pa

from whenabouts.cli.inputs import Input
from whenabouts.core.asof_join.query import AsofJoin
from whenabouts.core.join_aggregate.query import JoinAggregate
from whenabouts.core.runtime.blocks import times
from whenabouts.core.runtime.event_reader import EventReader
from whenabouts.core.runtime.key_names import of_input
from whenabouts.core.times.time_specs import TimeSpec
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.window_join.query import WindowJoin, measured_rates
from whenabouts.core.wrappers.select_project import SelectProject

_Q = TypeVar("_Q")


def with_measured(query: _Q, inputs: tuple[Input, ...]) -> tuple[_Q, list[str]]:
    """The query for a stream over these inputs, completed by what was not declared, and notes for the user.

    For joins the greatest lengths of intervals; for a window join also the rates by which `auto` decides.
    """
    if isinstance(query, SelectProject):
        inner, notes = with_measured(query.query, inputs)
        return cast("_Q", replace(query, query=inner)), notes
    if isinstance(query, TimingJoin | AsofJoin | JoinAggregate):
        sides, notes = _with_longest(
            inputs, [query.left_time, query.right_time], ["--left-max-uncertainty", "--right-max-uncertainty"]
        )
        return cast("_Q", replace(query, left_time=sides[0], right_time=sides[1])), notes
    if isinstance(query, WindowJoin):
        names = [name for name, _ in query.times]
        specs, notes = _with_longest(
            inputs, [spec for _, spec in query.times], [f"--max-uncertainty of {name}" for name in names]
        )
        times = tuple(zip(names, specs, strict=True))
        return cast("_Q", replace(query, times=times, rates=rates_of(query, inputs))), notes
    return query, []


def rates_of(query: WindowJoin, inputs: tuple[Input, ...]) -> dict[str, float]:
    """Rows per second and key by stream; empty if one has no rows. Only times and keys of the files are in memory."""
    query.operator([source.schema for source in inputs], streaming=False)  # refuses columns that are missing
    samples = {}
    for index, source in enumerate(inputs):
        spec = query.spec(source.name)
        asked = [*of_input(query.key_columns, index), *spec.columns, *filter(None, [spec.template_column])]
        samples[source.name] = pa.concat_tables(table.select(dict.fromkeys(asked)) for table in source.tables)
    return measured_rates(replace(query, predicates=()), samples)


def _with_longest(
    inputs: tuple[Input, ...], specs: list[TimeSpec], options: list[str]
) -> tuple[list[TimeSpec], list[str]]:
    """The specifications, each with a greatest length of intervals. `options` would have declared them."""
    complete, notes = [], []
    for source, spec, option in zip(inputs, specs, options, strict=True):
        if spec.max_uncertainty_us is None:
            us = _longest_us(source, spec)
            spec = replace(cast("Any", spec), max_uncertainty=us)
            notes.append(
                f"the longest {source.name} interval in the files is {us:,} us: taken as {option}, which a stream needs"
            )
        complete.append(spec)
    return complete, notes


def _longest_us(source: Input, spec: TimeSpec) -> int:
    """The greatest length of a usable interval of an input, in microseconds; 0 if there is none."""
    reader = EventReader(0, source.name, source.schema, spec)
    longest = 0
    for table in source.tables:
        for batch in table.to_batches():
            t_min, t_max = times(reader.read(batch).block)
            longest = max(longest, int((t_max - t_min).max(initial=0)))
    return longest

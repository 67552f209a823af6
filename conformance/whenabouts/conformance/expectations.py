"""The expected outcome of a run, computed by the oracle from the query and its inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from whenabouts.conformance import multiset, oracle
from whenabouts.conformance.case_tables import dataset
from whenabouts.conformance.multiset import Row
from whenabouts.core.local import Outcome
from whenabouts.core.runtime.key_names import of_input, shared
from whenabouts.core.timing_join.query import TimingJoin

SIDES = ("left", "right")
COMPUTED = ("probability", "event_time")


class Inputs(NamedTuple):
    """The rows of the inputs: usable events and rejected rows by side."""

    events: dict[str, list[oracle.Event]]
    refused: dict[str, list[tuple[str, Row]]]


class TimingJoinAnswer(NamedTuple):
    """The join's rows without computed columns, their exact probabilities, and the times of their event."""

    rows: Counter[Row]
    probability: dict[Row, oracle.Ratio]
    event_time_us: dict[Row, int]


def read(query: TimingJoin, tables: Mapping[str, pa.Table]) -> Inputs:
    """Both inputs as the oracle reads them."""
    specs = {"left": query.left_time, "right": query.right_time}
    keys = {side: of_input(query.key_columns, index) for index, side in enumerate(SIDES)}
    both = {side: oracle.read(tables[side], specs[side], keys[side]) for side in SIDES}
    return Inputs({side: both[side][0] for side in SIDES}, {side: both[side][1] for side in SIDES})


def answer(
    query: TimingJoin, tables: Mapping[str, pa.Table], events: Mapping[str, Sequence[oracle.Event]]
) -> TimingJoinAnswer:
    """The rows of the join of `events`."""
    once = shared(query.key_columns)
    kept = [index for index, name in enumerate(tables["right"].column_names) if name not in once]
    found = TimingJoinAnswer(Counter(), {}, {})
    for left, right, p in oracle.pairs(events["left"], events["right"], query.condition):
        row = (*left.values, *(right.values[index] for index in kept))
        found.rows[row] += 1
        found.probability[row] = p
        found.event_time_us[row] = max(left.t_max, right.t_max)
    return found


@lru_cache
def of_dataset(name: str) -> tuple[Inputs, TimingJoinAnswer]:
    """The answer of a dataset, for any split into files."""
    source = dataset(name)
    inputs = read(source.query, source.tables)
    return inputs, answer(source.query, source.tables, inputs.events)


def whole(files: Mapping[str, Sequence[pa.Table]]) -> dict[str, pa.Table]:
    """Each input's files as one table."""
    return {name: pa.concat_tables(tables) for name, tables in files.items()}


def join_rows(outcome: Outcome) -> Counter[Row]:
    """Output rows without computed columns."""
    return multiset.rows(outcome.output, [name for name in outcome.output.column_names if name not in COMPUTED])


def output_schema(query: TimingJoin, tables: Mapping[str, pa.Table], *, streaming: bool) -> pa.Schema:
    """Left columns, right columns without the keys, suffixes where names clash, then the computed columns."""
    left = list(tables["left"].schema)
    right = [field for field in tables["right"].schema if field.name not in shared(query.key_columns)]
    clash = {field.name for field in left} & {field.name for field in right}
    fields = [
        pa.field(field.name + (suffix if field.name in clash else ""), field.type)
        for side, suffix in zip((left, right), query.suffixes, strict=True)
        for field in side
    ]
    if query.probability:
        fields.append(pa.field("probability", pa.float64()))
    if streaming:
        fields.append(pa.field("event_time", pa.timestamp("us", "UTC")))
    return pa.schema(fields)


def rejected(outcome: Outcome, tables: Mapping[str, pa.Table], input: str) -> Counter[Row]:
    """Rejected rows of an input: their code, then their original columns.

    A column that the first input has with another type has the input's number after its name.
    """
    first = tables[next(iter(tables))].schema
    index = list(tables).index(input)
    names = []
    for field in tables[input].schema:
        shared = field.name not in first.names or first.field(field.name).type == field.type
        names.append(field.name if shared else f"{field.name}_{index}")
    mine = outcome.rejects.filter(pc.equal(outcome.rejects.column("input"), input))
    return multiset.rows(mine, ["code", *names])


def without(events: Sequence[oracle.Event], rows: Counter[Row]) -> list[oracle.Event]:
    """The events without these rows (values in the order of the columns), with multiplicity."""
    left_over = rows.copy()
    kept = []
    for event in events:
        if left_over[event.values] > 0:
            left_over[event.values] -= 1
        else:
            kept.append(event)
    assert not left_over.total(), f"rejected rows that never came in: {left_over}"
    return kept


def accepted(
    outcome: Outcome, tables: Mapping[str, pa.Table], events: Mapping[str, list[oracle.Event]]
) -> dict[str, list[oracle.Event]]:
    """The usable rows of each input that were not late. The counts must show that some were late, and that no row is
    lost."""
    late, kept = 0, {}
    for name in tables:
        told = rejected(outcome, tables, name)
        behind = Counter({row[1:]: n for row, n in told.items() if row[0] == "WA-1010"})
        kept[name] = without(events[name], behind)
        late += behind.total()
    assert late > 0, "rows of the first files come in the last ones: an engine with a watermark calls some of them late"
    counts = outcome.metrics
    assert counts["rows_late"] == late
    assert counts["rows_in"] == sum(table.num_rows for table in tables.values())
    assert counts["rows_in"] == counts["rows_processed"] + counts["rows_rejected"]
    return kept

"""Selection and projection around another query: the rows that it uses, computed columns, and the output columns.

The result is itself a query of the protocol, so it runs on every host. Computed columns are added when rows are read.
Rows that are not selected are dropped at the start of a step, where they can be counted as processed. Conditions on the
result and the output columns are applied to the step's output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.costs.choices import Choice, Choosing, Held, Value, Workload, held_of
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.expressions.tree import Expression, column, holds, values_of
from whenabouts.core.runtime.changes import kept_changes
from whenabouts.core.runtime.event_reader import conformed
from whenabouts.core.runtime.protocol import (
    NO_WATERMARK,
    Arrival,
    Copied,
    Events,
    FlushMode,
    Query,
    Reader,
    Rejected,
    SegmentStore,
    Step,
)
from whenabouts.core.wrappers.base import WrappedOperator, WrappedQuery

Named = tuple[tuple[str, Expression], ...]
"""Names and their expressions, in order."""


@dataclass(frozen=True, kw_only=True)
class SelectProject(WrappedQuery):
    """A query with selections and projections.

    `where`: input name -> a condition on its rows. `derived`: input name -> computed columns (name, expression), which
    the query sees as columns of the input. `having`: a condition on the query's output rows. `columns`: the output
    columns (name, expression over the query's output columns); None: all of the query's.

    Raises QueryError WA-2006 for an input that the query does not have, WA-2009 for two output columns of one name;
    `operator` raises what the query raises, and WA-2092, WA-2093 for expressions over missing columns or wrong types.

    >>> from whenabouts.core.coalescing.query import Coalesce
    >>> from whenabouts.core.local import run
    >>> hot = (("hot", Expression("gt", (column("v"), Expression("literal", value=3)))),)
    >>> query = SelectProject(query=Coalesce(time="t", values="hot"), derived={"events": hot}, having=column("hot"),
    ...                       columns=(("n", column("n")),))
    >>> run(query, [pa.table({"t": [1, 2, 3], "v": [1, 5, 9]})]).output.to_pylist()
    [{'n': 2}]
    """

    query: Query
    where: Any = ()
    derived: Any = ()
    having: Expression | None = None
    columns: Named | None = None

    def __post_init__(self) -> None:
        for name in ("where", "derived"):
            given = getattr(self, name)
            pairs = tuple(given.items()) if isinstance(given, Mapping) else tuple(given)
            for input, _ in pairs:
                if input not in self.query.inputs:
                    raise QueryError(
                        Code.BAD_OPTION, f"{name} names {input!r}", f"inputs are {', '.join(self.query.inputs)}"
                    )
            object.__setattr__(self, name, pairs)
        names = [name for name, _ in self.columns or ()]
        if len(set(names)) < len(names):
            raise QueryError(Code.COLUMN_CLASH, f"two output columns share a name: {', '.join(names)}", "rename one")

    def choices(self, load: Workload | None = None, pins: Mapping[str, Value] | None = None) -> list[Choice]:
        """As the wrapped query."""
        return self._inner.choices(load, pins)

    def kept_for_us(self, input: int) -> int:
        """As the wrapped query."""
        return self._inner.kept_for_us(input)

    def held(self, input: int, load: Workload) -> Held:
        """As the wrapped query."""
        return held_of(self._inner, input, load)

    def copies(self, input: int) -> float:
        """As the wrapped query."""
        return self._inner.copies(input)

    @property
    def _inner(self) -> Choosing:
        assert isinstance(self.query, Choosing)
        return self.query

    def operator(self, schemas: Sequence[pa.Schema], *, streaming: bool) -> SelectProjectOperator:
        """The operator for inputs of these schemas."""
        return SelectProjectOperator(self, schemas, streaming=streaming)


class SelectProjectOperator(WrappedOperator):
    """Runs a `SelectProject`: the operator of its query between a selection and a projection."""

    def __init__(self, query: SelectProject, schemas: Sequence[pa.Schema], *, streaming: bool) -> None:
        derived = [dict(query.derived).get(name, ()) for name in query.inputs]
        wide = [wider(schema, named) for schema, named in zip(schemas, derived, strict=True)]
        super().__init__(query.query.operator(wide, streaming=streaming))
        inner = self._operator
        self._query = query
        self._readers: tuple[Reader, ...] = tuple(
            DerivingReader(reader, len(schema.names), named) if named else reader
            for reader, schema, named in zip(inner.readers, schemas, derived, strict=True)
        )
        self._where = [dict(query.where).get(name) for name in query.inputs]
        for condition, reader in zip(self._where, self._readers, strict=True):
            if condition is not None:
                holds(condition, _empty(reader.block_schema))
        self._schema = finished(_empty(inner.output_schema), query.having, query.columns).schema
        names = [name for name, each in query.columns or () if each == column(inner.event_time or "")]
        self._event_time = inner.event_time if query.columns is None else next(iter(names), None)

    @property
    def readers(self) -> tuple[Reader, ...]:
        """The readers of the operator, which add the computed columns."""
        return self._readers

    @property
    def output_schema(self) -> pa.Schema:
        """The output columns."""
        return self._schema

    @property
    def event_time(self) -> str | None:
        """The operator's event time, under its output name; None if it is not among the output columns."""
        return self._event_time

    def step(
        self,
        store: SegmentStore,
        arrivals: Sequence[Arrival],
        watermark_us: int,
        demand: FlushMode = FlushMode.NOTHING,
        latest_us: int = NO_WATERMARK,
    ) -> Step:
        """One step of `protocol.Operator`. Additional cost: the expressions over arriving rows and output rows."""
        chosen, dropped = self._selected(arrivals)
        step = self._operator.step(store, chosen, watermark_us, demand, latest_us)
        step.metrics[metrics.PROCESSED] += dropped
        before = sum(batch.num_rows for batch in step.output)
        output = [finished(batch, self._query.having, self._query.columns) for batch in step.output]
        step.output = [batch for batch in output if batch.num_rows]
        step.metrics[metrics.MATCHED] -= before - sum(batch.num_rows for batch in step.output)
        step.rejected = [self._as_read(rejected) for rejected in step.rejected]
        return step

    def _selected(self, arrivals: Sequence[Arrival]) -> tuple[list[Arrival], int]:
        """The rows that are selected, and how many are not (copies are counted elsewhere)."""
        chosen, dropped = [], 0
        for arrival in arrivals:
            condition, block = self._where[arrival.input], arrival.block
            if condition is not None:
                block = block.filter(pa.array(holds(condition, block)))
                if not isinstance(arrival, Copied):
                    dropped += arrival.block.num_rows - block.num_rows
            if block.num_rows:
                chosen.append(type(arrival)(arrival.input, block))
        return chosen, dropped

    def _as_read(self, rejected: Rejected) -> Rejected:
        names = self.readers[rejected.input].schema.names
        return rejected if rejected.rows.schema.names == names else rejected._replace(rows=rejected.rows.select(names))


class DerivingReader:
    """A reader whose blocks have computed columns after the input's own; rejected rows have only the input's own."""

    def __init__(self, inner: Reader, own: int, derived: Named) -> None:
        self.input, self.name, self.time, self.units = inner.input, inner.name, inner.time, inner.units
        self.schema, self.block_schema = pa.schema(list(inner.schema)[:own]), inner.block_schema
        self._inner, self._derived = inner, derived

    def read(self, rows: pa.RecordBatch) -> Events:
        """As `Reader.read`. Raises: QueryError WA-2093 for a number that overflows."""
        names = self.schema.names
        block, rejected = self._inner.read(_with_computed(conformed(rows, self.schema, self.name), self._derived))
        return Events(block, [each._replace(rows=each.rows.select(names)) for each in rejected])

    @property
    def time_columns(self) -> tuple[str, ...]:
        """The columns of a raw batch that `ends` reads."""
        computed = {name: [each.value[1] for each in expression.columns()] for name, expression in self._derived}
        return tuple(dict.fromkeys(of for name in self._inner.time_columns for of in computed.get(name, [name])))

    def ends(self, rows: pa.RecordBatch) -> tuple[IntArray, IntArray]:
        """The times of a raw batch in microseconds."""
        times = [(name, expression) for name, expression in self._derived if name in self._inner.time_columns]
        return self._inner.ends(_with_computed(rows, times))

    def raw(self, block: pa.RecordBatch) -> pa.RecordBatch:
        """The user's columns of a block."""
        raw: pa.RecordBatch = self._inner.raw(block).select(self.schema.names)
        return raw


def _with_computed(rows: pa.RecordBatch, derived: Sequence[tuple[str, Expression]]) -> pa.RecordBatch:
    """The rows with computed columns after their own."""
    columns = [values_of(expression, rows) for _, expression in derived]
    return pa.RecordBatch.from_arrays(
        [*rows.columns, *columns], names=[*rows.schema.names, *(name for name, _ in derived)]
    )


def finished(rows: pa.RecordBatch, having: Expression | None, columns: Named | None) -> pa.RecordBatch:
    """The rows for which a condition holds, with the output columns.

    Raises QueryError WA-2092, WA-2093 as `values_of`.
    """
    if having is not None:
        rows = kept_changes(rows, holds(having, rows))
    if columns is None:
        return rows
    fields, values = [], []
    for name, expression in columns:
        values.append(values_of(expression, rows))
        plain = rows.schema.field(expression.value[1]) if expression.operation == "column" else None
        fields.append(pa.field(name, values[-1].type) if plain is None else plain.with_name(name))
    return pa.RecordBatch.from_arrays(values, schema=pa.schema(fields))


def wider(schema: pa.Schema, derived: Named) -> pa.Schema:
    """The schema with computed columns appended."""
    empty = _empty(schema)
    return pa.schema([*schema, *(pa.field(name, values_of(expression, empty).type) for name, expression in derived)])


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)

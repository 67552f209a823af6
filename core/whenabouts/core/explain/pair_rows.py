"""The two rows of a question about a pair, read by the join's own readers."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from whenabouts.core.errors import Code, InputError
from whenabouts.core.frames.kinds import arrow_table
from whenabouts.core.joins.sides import LEFT, RIGHT
from whenabouts.core.runtime.blocks import templates_of, times
from whenabouts.core.runtime.key_names import Key, of_input
from whenabouts.core.runtime.protocol import NO_WATERMARK, Operator
from whenabouts.core.times.time_specs import TimeSpec

Row: TypeAlias = Any
"""A mapping of column values, or a dataframe of one row: see `whenabouts.core.frames.kinds`."""


_Operator = TypeVar("_Operator", bound=Operator, covariant=True)


class _PairQuery(Protocol[_Operator]):
    """A join of a left and a right input, by keys."""

    @property
    def inputs(self) -> tuple[str, ...]: ...

    @property
    def left_time(self) -> TimeSpec: ...

    @property
    def right_time(self) -> TimeSpec: ...

    @property
    def key_columns(self) -> tuple[Key, ...]: ...

    def operator(self, schemas: Sequence[pa.Schema], *, streaming: bool) -> _Operator: ...


class PairRow(NamedTuple):
    """One row as the join reads it, and the watermark in force on its arrival (`NO_WATERMARK` on finite input)."""

    name: str
    block: pa.Table
    fault: Code | None
    watermark_us: int
    shows_dates: bool
    time: TimeSpec

    @property
    def t_min_us(self) -> int:
        """The earliest instant at which it can have happened."""
        return int(times(self.block)[0][0])

    @property
    def t_max_us(self) -> int:
        """The latest instant at which it can have happened."""
        return int(times(self.block)[1][0])

    @property
    def buckets(self) -> tuple[tuple[int, int, float], ...]:
        """The intervals in which it can have happened, with their probabilities: one, or the buckets of a template."""
        number = templates_of(self.block)
        if number is None:
            return ((self.t_min_us, self.t_max_us, 1.0),)
        buckets = self.time.templates[number[0]][1].exact
        return tuple((self.t_max_us + lo, self.t_max_us + hi, float(p)) for lo, hi, p in buckets if p)

    @property
    def support(self) -> list[tuple[int, int]]:
        """The intervals in which it can have happened."""
        return [(lo, hi) for lo, hi, _ in self.buckets]

    def instant(self, us: int) -> str:
        """An instant in the form of the row's own times: ISO 8601, or microseconds."""
        if not self.shows_dates:
            return f"{us} us"
        try:
            return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)).isoformat()
        except OverflowError:  # a watermark may be outside the calendar
            return f"{us} us"


def read_pair(
    left_row: Row,
    right_row: Row,
    query: _PairQuery[_Operator],
    watermarks: tuple[int | None, int | None],
    *,
    whole: Container[int] = (),
) -> tuple[_Operator, list[PairRow]]:
    """The operator for these rows' columns, and the rows as its readers read them.

    Of inputs that are `whole` all columns are read, of the others those of keys and times.
    """
    specs = (query.left_time, query.right_time)
    rows = [
        one_row(
            row,
            None
            if input in whole
            else (*of_input(query.key_columns, input), *spec.columns, *filter(None, (spec.template_column,))),
            name,
        )
        for input, (row, spec, name) in enumerate(zip((left_row, right_row), specs, query.inputs, strict=True))
    ]
    rows = [_typed_nulls(rows[input], rows[1 - input], query, input) for input in (LEFT, RIGHT)]
    streaming = any(watermark is not None for watermark in watermarks)
    operator = query.operator([row.schema for row in rows], streaming=streaming)
    sides = []
    for reader, row, watermark, spec in zip(operator.readers, rows, watermarks, specs, strict=True):
        block, rejected = reader.read(row)
        sides.append(
            PairRow(
                reader.name,
                pa.Table.from_batches([block]),
                rejected[0].code if rejected else None,
                NO_WATERMARK if watermark is None else watermark,
                pa.types.is_timestamp(row.schema.field(spec.columns[-1]).type),
                spec,
            )
        )
    return operator, sides


def one_row(row: Row, needed: tuple[str, ...] | None, side: str) -> pa.RecordBatch:
    """The needed columns of a row (None: all); a missing one is left to the operator's own error, beside all others."""
    if isinstance(row, Mapping):
        given = [name for name in row if isinstance(name, str)]
        names = given if needed is None or not {*given} >= {*needed} else dict.fromkeys(needed)
        return pa.RecordBatch.from_pydict({name: _one_value(row[name], name, side) for name in names})
    table = arrow_table(side, row)
    if table.num_rows != 1:
        problem = f"the {side} row must be a dataframe of one row, it has {table.num_rows}"
        raise InputError(Code.NOT_AN_INPUT, problem, "take one row of it")
    whole = needed is None or not set(table.column_names) >= set(needed)
    kept = (table if whole else table.select(list(dict.fromkeys(needed or ())))).combine_chunks()
    return kept.to_batches()[0] if kept.num_columns else pa.RecordBatch.from_pydict({})


def _one_value(value: object, name: str, side: str) -> pa.Array:
    if type(value).__name__ == "NaTType":  # that of pandas, which may not be here
        value = None
    try:
        return pa.array(np.array([value])) if isinstance(value, np.generic) else pa.array([value])
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise InputError(
            Code.WRONG_TYPE,
            f"column {name!r} of the {side} row is {value!r}, which Arrow has no type for",
            "give times as datetime or whole microseconds, keys as numbers or text",
        ) from error


def _typed_nulls(row: pa.RecordBatch, other: pa.RecordBatch, query: _PairQuery[Any], side: int) -> pa.RecordBatch:
    """Give untyped nulls (None in a dict) a type: a key gets the other row's type, a template text."""
    partner = dict(zip(of_input(query.key_columns, side), of_input(query.key_columns, 1 - side), strict=True))
    template = {query.left_time.template_column, query.right_time.template_column} - {None}
    for index, field in enumerate(row.schema):
        if not pa.types.is_null(field.type):
            continue
        if partner.get(field.name) in other.schema.names:
            row = row.set_column(index, field.name, pa.nulls(1, other.schema.field(partner[field.name]).type))
        elif field.name in template:
            row = row.set_column(index, field.name, pa.nulls(1, pa.string()))
    return row

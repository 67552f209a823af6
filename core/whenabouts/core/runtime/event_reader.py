"""Reads raw Arrow batches into blocks with int64 microsecond times (`runtime.blocks`); bad rows become rejects."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whenabouts.core.arrays.extremes import extremes
from whenabouts.core.arrays.large_arrays import large_array
from whenabouts.core.arrays.plain_types import plain, plain_type
from whenabouts.core.arrays.record_batches import copy_of, plain_field
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.errors import Code, InputError, QueryError
from whenabouts.core.runtime.blocks import PREFIX, T_MAX, T_MIN, TEMPLATE
from whenabouts.core.runtime.option_checks import columns_shown
from whenabouts.core.runtime.protocol import Events, Rejected
from whenabouts.core.runtime.time_columns import FIRST_US, LAST_US, TimeColumn, microseconds
from whenabouts.core.times.time_specs import TimeSpec
from whenabouts.core.times.time_units import DoubtfulTimes

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")


class EventReader:
    """Turns raw batches of one input into blocks.

    Raises when built, for problems of the schema: a missing column (InputError WA-1001), a type that is not a time
    (WA-1002), a column name with the prefix `_wa_` (WA-1011), a duplicate name (QueryError WA-2009).

    `groups`: columns that must not be null; rows with a null in one of them are rejected (WA-1021).

    >>> from whenabouts.core.times.time_specs import Interval
    >>> reader = EventReader(0, "left", pa.schema({"a": pa.int64(), "b": pa.int64()}), Interval("a", "b"))
    >>> block, rejected = reader.read(pa.record_batch({"a": [1, 5, None], "b": [2, 3, 4]}))
    >>> block.to_pylist(), [(r.code, r.rows.num_rows) for r in rejected]
    ([{'_wa_t_min': 1, '_wa_t_max': 2, 'a': 1, 'b': 2}], [(<Code.NULL_TIME: 'WA-1003'>, 1), \
(<Code.REVERSED_INTERVAL: 'WA-1004'>, 1)])
    """

    def __init__(self, input: int, name: str, schema: pa.Schema, time: TimeSpec, *, groups: Sequence[str] = ()) -> None:
        self.input = input
        self.name = name
        self.time = time
        self._groups = tuple(groups)
        _check_names(schema, name)
        self.schema = pa.schema([plain_field(field).with_type(plain_type(field.type)) for field in schema])
        for column in time.columns:
            check_time_column(self.schema, column, name)
        for column in self._groups:
            if column not in self.schema.names:
                raise InputError(
                    Code.MISSING_COLUMN, f"the {name} input has no column {column!r}", columns_shown(self.schema)
                )
        if time.template_column is not None:
            check_template_column(self.schema, time.template_column, name)
        first, last = time.end_columns
        t_min = pa.field(T_MIN, pa.int64())
        self._own = [t_min if first is None or first != last else copy_of(t_min, T_MAX), pa.field(T_MAX, pa.int64())]
        self._own += [pa.field(TEMPLATE, pa.int32())] if time.templates else []
        self.units = DoubtfulTimes(name, self.schema, time.columns)
        ends = {first: T_MIN} | {last: T_MAX}
        columns = [copy_of(f, ends[f.name]) if f.name in ends and _ismicroseconds(f.type) else f for f in self.schema]
        self.block_schema = pa.schema([*self._own, *columns])

    def read(self, rows: pa.RecordBatch) -> Events:
        """Split a raw batch into a block, with times in microseconds, and rejects with their codes. O(rows)."""
        rows = conformed(rows, self.schema, self.name)
        columns, template, t_min, t_max = self._times(rows)
        named = zip(self.time.columns, columns, strict=True)
        self.units.observe(rows, {name: column.extremes for name, column in named if column.null is None})
        good: BoolArray | None = None
        rejected = []
        nulls = [np.asarray(rows.column(name).is_null()) for name in self._groups if rows.column(name).null_count]
        for code, fault in (
            *self._faults(columns, template, t_min, t_max), *((Code.NULL_GROUP, null) for null in nulls),
        ):  # fmt: skip
            bad = fault if good is None else good & fault
            if bad.any():
                rejected.append(Rejected(self.input, code, rows.filter(pa.array(bad))))
                good = ~bad if good is None else good & ~bad
        first = pa.array(t_min)
        own = [first, first if t_max is t_min else pa.array(t_max)]
        if self.time.templates:
            own.append(pa.array(np.zeros(rows.num_rows, np.int32) if template is None else template.astype(np.int32)))
        block = pa.RecordBatch.from_arrays([*own, *rows.columns], schema=self.block_schema)
        return Events(block if good is None else block.filter(pa.array(good)), rejected)

    @property
    def time_columns(self) -> tuple[str, ...]:
        """The columns of a raw batch that `ends` reads."""
        return tuple(dict.fromkeys([*self.time.columns, *filter(None, [self.time.template_column])]))

    def ends(self, rows: pa.RecordBatch) -> tuple[IntArray, IntArray]:
        """The times of a raw batch in microseconds; only those of rows that `read` accepts are meaningful."""
        return self._times(rows)[2:]

    def _times(self, rows: pa.RecordBatch) -> tuple[list[TimeColumn], IntArray | None, IntArray, IntArray]:
        """The time columns, the template numbers, `t_min` and `t_max`."""
        columns = [microseconds(plain(rows.column(name))) for name in self.time.columns]
        template = self._template(rows)
        known = None if template is None else np.maximum(template, 0)
        return columns, template, *self.time.ends([column.us for column in columns], known)

    def _template(self, rows: pa.RecordBatch) -> IntArray | None:
        """The number of each row's template, -1 for an unknown one."""
        if self.time.template_column is None:
            return None
        column = plain(rows.column(self.time.template_column))
        names = {name: number for number, (name, _) in enumerate(self.time.templates)}
        if pa.types.is_integer(column.type) and not pa.types.is_uint64(column.type):
            # Only names that are integers can occur in an integer column.
            column = column.cast(pa.int64())
            wanted = pa.array([int(name) for name in names if _INTEGER.fullmatch(name)], pa.int64())
            numbers = [number for name, number in names.items() if _INTEGER.fullmatch(name)]
        else:
            column = column.cast(pa.string())
            wanted, numbers = pa.array(names, pa.string()), list(names.values())
        found = pc.index_in(column, wanted).fill_null(len(numbers))
        return np.array([*numbers, -1], np.int64).take(np.asarray(found))

    def _faults(
        self, ends: list[TimeColumn], template: IntArray | None, t_min: IntArray, t_max: IntArray
    ) -> Iterator[tuple[Code, BoolArray]]:
        """The codes and the rows that they apply to, in order of precedence. A clean block costs minima and maxima."""
        for end in ends:
            if end.null is not None:
                yield Code.NULL_TIME, end.null
        for end in ends:
            if end.outside is not None:
                yield Code.TIME_OUT_OF_RANGE, end.outside
        if template is not None and template.min(initial=0) < 0:
            yield Code.UNKNOWN_TEMPLATE, template < 0
        as_given = t_min is ends[0].us and t_max is ends[-1].us  # their range has been checked
        # The specification may have shifted times beyond the years 1 to 9999.
        if not as_given and (extremes(t_min)[0] < FIRST_US or extremes(t_max)[1] > LAST_US):
            yield Code.TIME_OUT_OF_RANGE, (t_min < FIRST_US) | (t_max > LAST_US)
        if self.time.templates or (as_given and t_max is t_min):
            return  # the templates determine the lengths, or there are only points
        length = np.subtract(t_max, t_min, out=large_array(len(t_max), np.int64))
        shortest, longest = extremes(length)
        if shortest < 0:
            yield Code.REVERSED_INTERVAL, length < 0
        if self.time.min_uncertainty_us > 0:
            yield Code.TOO_CERTAIN, length < self.time.min_uncertainty_us
        if self.time.max_uncertainty_us is not None and longest > self.time.max_uncertainty_us:
            yield Code.TOO_UNCERTAIN, length > self.time.max_uncertainty_us

    def raw(self, block: pa.RecordBatch) -> pa.RecordBatch:
        """The user's columns of a block."""
        return pa.RecordBatch.from_arrays(block.columns[len(self._own) :], schema=self.schema)


def conformed(rows: pa.RecordBatch, schema: pa.Schema, input: str) -> pa.RecordBatch:
    """A raw batch in a reader's columns and types. Raises InputError WA-1001 and WA-1002 for rows of another schema."""
    if rows.schema.equals(schema, check_metadata=True):
        return rows
    return pa.RecordBatch.from_arrays([_column(rows, field, input) for field in schema], schema=schema)


def _column(rows: pa.RecordBatch, field: pa.Field, input: str) -> pa.Array:
    if field.name not in rows.schema.names:
        raise InputError(
            Code.MISSING_COLUMN,
            f"later rows of the {input} input have no column {field.name!r}",
            columns_shown(rows.schema),
        )
    column = plain(rows.column(field.name))
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(
            Code.WRONG_TYPE,
            f"column {field.name!r} of later rows of the {input} input is {column.type}, before it was "
            f"{field.type}: {error}",
            "all rows of an input have the same columns",
        ) from error


def _check_names(schema: pa.Schema, name: str) -> None:
    for column in schema.names:
        if column.startswith(PREFIX):
            raise InputError(
                Code.RESERVED_COLUMN,
                f"the {name} input has a column {column!r}",
                f"the prefix {PREFIX} is reserved: rename it",
            )
    for column, times in Counter(schema.names).items():
        if times > 1:
            raise QueryError(Code.COLUMN_CLASH, f"the {name} input has two columns {column!r}", "rename one")


def _check_present(schema: pa.Schema, column: str, kind: str, name: str) -> None:
    if column not in schema.names:
        raise InputError(
            Code.MISSING_COLUMN,
            f"the {name} input has no {kind} column {column!r}",
            columns_shown(schema),
        )


def check_time_column(schema: pa.Schema, column: str, name: str) -> None:
    """Raise InputError WA-1001 if the column is missing, WA-1002 if it does not hold times."""
    _check_present(schema, column, "time", name)
    type_ = schema.field(column).type
    if not (pa.types.is_timestamp(type_) or pa.types.is_int64(type_) or pa.types.is_null(type_)):
        hint = "floats cannot hold a time exactly: " if pa.types.is_floating(type_) else ""
        raise InputError(
            Code.WRONG_TYPE,
            f"time column {column!r} of the {name} input is {type_}",
            hint + "make it a TIMESTAMP, or int64 microseconds since 1970",
        )


def check_template_column(schema: pa.Schema, column: str, name: str) -> None:
    """Raise InputError WA-1001 if the column is missing, WA-1002 if it cannot name templates."""
    _check_present(schema, column, "template", name)
    type_ = schema.field(column).type
    if not (pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_integer(type_)):
        raise InputError(
            Code.WRONG_TYPE,
            f"template column {column!r} of the {name} input is {type_}",
            "name templates by text or integers",
        )


def _ismicroseconds(type_: pa.DataType) -> bool:
    return bool(pa.types.is_int64(type_) or (pa.types.is_timestamp(type_) and type_.unit == "us"))

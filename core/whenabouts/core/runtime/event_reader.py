"""Where rows enter: raw Arrow batches become blocks with int64 microsecond times, and bad rows become rejects.

A *block* is a record batch whose first columns are the times (`T_MIN`, `T_MAX`) and, where the input has templates, the
number of each row's template (`TEMPLATE`), followed by the user's columns, unchanged but for their layout
(`plain_types`).
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from whenabouts.core.arrays.plain_types import plain, plain_type
from whenabouts.core.arrays.record_batches import copy_of
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.errors import REASONS, Code, DigitsCutWarning, InputError, QueryError
from whenabouts.core.runtime.protocol import Events, Reader, Rejected
from whenabouts.core.times.time_specs import TimeSpec
from whenabouts.core.times.time_units import DoubtfulTimes

PREFIX = "_wa_"
T_MIN = PREFIX + "t_min"
T_MAX = PREFIX + "t_max"
TEMPLATE = PREFIX + "template"

FIRST_US = -62_135_596_800_000_000
"""0001-01-01 UTC. With `LAST_US` it keeps every difference of times far inside int64."""
LAST_US = 253_402_300_799_999_999
"""9999-12-31T23:59:59.999999 UTC."""

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


class EventReader:
    """Turns raw batches of one input into blocks.

    Raises at once for what no row can mend: a missing column (InputError WA-1001), a type that is no time (WA-1002),
    a column name beginning with `_wa_` (WA-1011), a name that stands twice (QueryError WA-2009).

    `groups`: columns without which a row has no place: where one is null the row is rejected (WA-1021).

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
        self.schema = pa.schema([field.with_type(plain_type(field.type)) for field in schema])
        for column in time.columns:
            check_time_column(self.schema, column, name)
        if time.template_column is not None:
            _check_template_column(self.schema, time.template_column, name)
        first, last = time.end_columns
        t_min = pa.field(T_MIN, pa.int64())
        self._own = [t_min if first is None or first != last else copy_of(t_min, T_MAX), pa.field(T_MAX, pa.int64())]
        self._own += [pa.field(TEMPLATE, pa.int32())] if time.templates else []
        self.units = DoubtfulTimes(name, self.schema, time.columns)
        ends = {first: T_MIN} | {last: T_MAX}
        columns = [copy_of(f, ends[f.name]) if f.name in ends and _ismicroseconds(f.type) else f for f in self.schema]
        self.block_schema = pa.schema([*self._own, *columns])

    def read(self, rows: pa.RecordBatch) -> Events:
        """Split a raw batch into a block (times in microseconds) and rejects with their codes. O(rows)."""
        rows = self._conform(rows)
        self.units.observe(rows)
        columns, template, t_min, t_max = self._times(rows)
        good = np.ones(rows.num_rows, bool)
        rejected = []
        nulls = [np.asarray(rows.column(name).is_null()) for name in self._groups if rows.column(name).null_count]
        for code, fault in (
            *self._faults(columns, template, t_min, t_max), *((Code.NULL_GROUP, null) for null in nulls),
        ):  # fmt: skip
            struck = good & fault
            if struck.any():
                rejected.append(Rejected(self.input, code, rows.filter(pa.array(struck))))
                good &= ~struck
        own = [pa.array(t_min), pa.array(t_max)]
        if self.time.templates:
            own.append(pa.array(np.zeros(rows.num_rows, np.int32) if template is None else template.astype(np.int32)))
        block = pa.RecordBatch.from_arrays([*own, *rows.columns], schema=self.block_schema)
        return Events(block.filter(pa.array(good)) if rejected else block, rejected)

    def ends(self, rows: pa.RecordBatch) -> tuple[IntArray, IntArray]:
        """The times of a raw batch in microseconds, of which only those that `read` does not reject mean anything."""
        return self._times(rows)[2:]

    def _times(self, rows: pa.RecordBatch) -> tuple[list[_Ends], IntArray | None, IntArray, IntArray]:
        """The time columns as they are, the numbers of templates, `t_min` and `t_max`."""
        columns = [microseconds(plain(rows.column(name))) for name in self.time.columns]
        template = self._template(rows)
        known = None if template is None else np.maximum(template, 0)
        return columns, template, *self.time.ends([column.us for column in columns], known)

    def _template(self, rows: pa.RecordBatch) -> IntArray | None:
        """The number of each row's template, -1 where it names none of the registered ones."""
        if self.time.template_column is None:
            return None
        column = plain(rows.column(self.time.template_column))
        names = {name: number for number, (name, _) in enumerate(self.time.templates)}
        if pa.types.is_integer(column.type) and not pa.types.is_uint64(column.type):
            # Names that are no integers cannot stand in it.
            column = column.cast(pa.int64())
            wanted = pa.array([int(name) for name in names if _INTEGER.fullmatch(name)], pa.int64())
            numbers = [number for name, number in names.items() if _INTEGER.fullmatch(name)]
        else:
            column = column.cast(pa.string())
            wanted, numbers = pa.array(names, pa.string()), list(names.values())
        found = pc.index_in(column, wanted).fill_null(len(numbers))
        return np.array([*numbers, -1], np.int64).take(np.asarray(found))

    def _faults(
        self, ends: list[_Ends], template: IntArray | None, t_min: IntArray, t_max: IntArray
    ) -> Iterator[tuple[Code, NDArray[np.bool_]]]:
        """Codes with the rows that they strike, in order of precedence; a clean block costs its minima and maxima."""
        for end in ends:
            if end.null is not None:
                yield Code.NULL_TIME, end.null
        for end in ends:
            if end.outside is not None:
                yield Code.TIME_OUT_OF_RANGE, end.outside
        if template is not None and template.min(initial=0) < 0:
            yield Code.UNKNOWN_TEMPLATE, template < 0
        if t_min is ends[0].us and t_max is t_min:
            return  # points as they stand in their column, whose range has been looked at
        # Columns inside the calendar can lie at its edge, and a specification may have shifted them past it.
        if t_min.min(initial=0) < FIRST_US or t_max.max(initial=0) > LAST_US:
            yield Code.TIME_OUT_OF_RANGE, (t_min < FIRST_US) | (t_max > LAST_US)
        if self.time.templates:
            return  # lengths are those of the templates
        length = t_max - t_min
        shortest, longest = int(length.min(initial=0)), int(length.max(initial=0))
        if shortest < 0:
            yield Code.REVERSED_INTERVAL, length < 0
        if self.time.min_uncertainty_us > 0:
            yield Code.TOO_CERTAIN, length < self.time.min_uncertainty_us
        if self.time.max_uncertainty_us is not None and longest > self.time.max_uncertainty_us:
            yield Code.TOO_UNCERTAIN, length > self.time.max_uncertainty_us

    def raw(self, block: pa.RecordBatch) -> pa.RecordBatch:
        """The user's columns of a block."""
        return pa.RecordBatch.from_arrays(block.columns[len(self._own) :], schema=self.schema)

    def _conform(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if rows.schema.names != self.schema.names:
            rows = rows.select(self.schema.names)
        columns = [
            column if column.type == field.type else plain(column).cast(field.type)
            for column, field in zip(rows.columns, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def templates_of(block: pa.RecordBatch | pa.Table) -> NDArray[np.int32] | None:
    """The template numbers of a block, None where its input has no templates."""
    return np.asarray(block.column(TEMPLATE).to_numpy()) if TEMPLATE in block.schema.names else None


def times(block: pa.RecordBatch | pa.Table) -> tuple[IntArray, IntArray]:
    """The two time columns of a block (or of a table of blocks) as int64 arrays, without a copy where it has one chunk.

    >>> times(pa.record_batch({T_MIN: [1], T_MAX: [2]}))
    (array([1]), array([2]))
    """
    return np.asarray(block.column(T_MIN).to_numpy()), np.asarray(block.column(T_MAX).to_numpy())


def rejects_schema(schemas: list[pa.Schema] | tuple[pa.Schema, ...]) -> pa.Schema:
    """Schema of a rejects table: `input`, `code`, `reason`, then the inputs' columns.

    Columns of equal name and type are shared; one whose type differs between inputs is followed by its input's number.
    """
    fields = [pa.field("input", pa.string()), pa.field("code", pa.string()), pa.field("reason", pa.string())]
    for place, schema in enumerate(schemas):
        names = {field.name: field.type for field in fields}
        for field, name in zip(schema, reject_column_names(schemas, place), strict=True):
            if name not in names:
                fields.append(pa.field(name, field.type))
    return pa.schema(fields)


def reject_rows(
    rejected: Rejected, schemas: list[pa.Schema] | tuple[pa.Schema, ...], inputs: tuple[str, ...]
) -> pa.RecordBatch:
    """Rejected rows in the `rejects_schema` of all inputs; the columns of other inputs are null."""
    schema, n = rejects_schema(schemas), rejected.rows.num_rows
    columns: dict[str, pa.Array] = {
        "input": pa.repeat(inputs[rejected.input], n),
        "code": pa.repeat(str(rejected.code), n),
        "reason": pa.repeat(REASONS[rejected.code], n),
    }
    columns |= dict(zip(reject_column_names(schemas, rejected.input), rejected.rows.columns, strict=True))
    arrays = [columns[field.name] if field.name in columns else pa.nulls(n, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def reject_column_names(schemas: list[pa.Schema] | tuple[pa.Schema, ...], place: int) -> list[str]:
    """What the columns of input `place` are called in the `rejects_schema` of all inputs."""
    taken = {"input", "code", "reason"}
    types: dict[str, pa.DataType] = {}
    for schema in schemas[:place]:
        for field in schema:
            types.setdefault(field.name, field.type)
    return [
        f"{field.name}_{place}"
        if field.name in taken or types.get(field.name, field.type) != field.type
        else field.name
        for field in schemas[place]
    ]


def _check_names(schema: pa.Schema, name: str) -> None:
    for column in schema.names:
        if column.startswith(PREFIX):
            raise InputError(
                Code.RESERVED_COLUMN,
                f"the {name} input has a column {column!r}",
                f"names in {PREFIX}* are ours: rename it",
            )
    for column, times in Counter(schema.names).items():
        if times > 1:
            raise QueryError(Code.COLUMN_CLASH, f"the {name} input has two columns {column!r}", "rename one")


def _check_present(schema: pa.Schema, column: str, kind: str, name: str) -> None:
    if column not in schema.names:
        raise InputError(
            Code.MISSING_COLUMN,
            f"the {name} input has no {kind} column {column!r}",
            f"it has {', '.join(schema.names)}",
        )


def check_time_column(schema: pa.Schema, column: str, name: str) -> None:
    """Raise InputError WA-1001 where there is no such column, WA-1002 where it holds no times."""
    _check_present(schema, column, "time", name)
    type_ = schema.field(column).type
    if not (pa.types.is_timestamp(type_) or pa.types.is_int64(type_) or pa.types.is_null(type_)):
        hint = "floats cannot hold a time exactly: " if pa.types.is_floating(type_) else ""
        raise InputError(
            Code.WRONG_TYPE,
            f"time column {column!r} of the {name} input is {type_}",
            hint + "make it a TIMESTAMP, or int64 microseconds since 1970",
        )


def _check_template_column(schema: pa.Schema, column: str, name: str) -> None:
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


class _Ends(NamedTuple):
    """A time column in microseconds; null times and times outside the calendar read 0, None says there are none."""

    us: IntArray
    null: NDArray[np.bool_] | None
    outside: NDArray[np.bool_] | None


def microseconds(column: pa.Array) -> _Ends:
    """The times of a column."""
    null = np.asarray(column.is_null()) if column.null_count else None
    if pa.types.is_null(column.type):
        return _Ends(np.zeros(len(column), np.int64), null, None)
    numbers = column.cast(pa.int64())
    ticks = np.asarray((numbers if null is None else numbers.fill_null(0)).to_numpy(), np.int64)
    per_second = _PER_SECOND[column.type.unit] if pa.types.is_timestamp(column.type) else _PER_SECOND["us"]
    first, last = _scaled(FIRST_US, per_second), _scaled(LAST_US, per_second)
    outside = None
    if ticks.min(initial=0) < first or ticks.max(initial=0) > last:
        outside = (ticks < first) | (ticks > last)
        ticks = np.where(outside, 0, ticks)
    if per_second > 1_000_000:
        return _Ends(ticks // (per_second // 1_000_000), null, outside)
    return _Ends(ticks if per_second == 1_000_000 else ticks * (1_000_000 // per_second), null, outside)


def digits_cut(column: pa.Array | pa.ChunkedArray) -> int:
    """How many times of a column are finer than a microsecond, so that reading them cuts digits. O(1) but for ns.

    >>> digits_cut(pa.array([1_000, 1_001, None], pa.timestamp("ns"))), digits_cut(pa.array([1], pa.timestamp("us")))
    (1, 0)
    """
    if not pa.types.is_timestamp(column.type) or column.type.unit != "ns":
        return 0
    ticks = column.cast(pa.int64())
    whole = pc.equal(pc.multiply(pc.divide(ticks, 1_000), 1_000), ticks)
    return int(pc.sum(pc.invert(whole)).as_py() or 0)


def times_cut(reader: Reader, block: pa.RecordBatch) -> int:
    """How many times of a block that the reader made lost digits. O(rows) where a time column has nanoseconds."""
    names = [name for name in reader.time.columns if name in block.schema.names]
    return sum(digits_cut(block.column(name)) for name in names)


def warn_of_digits(n: int, where: str, *, stacklevel: int = 2) -> None:
    """Warn (`DigitsCutWarning`, WA-1075) of times that were cut, if there are any."""
    if n:
        warnings.warn(
            f"{Code.DIGITS_CUT}: {n:,} times{where} are finer than a microsecond: what is finer was cut, so that times "
            "less than a microsecond apart count as equal",
            DigitsCutWarning,
            stacklevel=stacklevel + 1,
        )


def _scaled(microseconds: int, per_second: int) -> int:
    """A calendar end in another unit, inside int64."""
    scaled = microseconds * per_second // 1_000_000
    return max(min(scaled, 2**63 - 1), -(2**63))

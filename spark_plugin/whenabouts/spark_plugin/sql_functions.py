"""The timing join as a table function of batch SQL.

A table function has one table: events of both sides in one, with a column that tells them apart.

    SELECT * FROM timing_join(
        TABLE(events), side => 'sensor', left => 'seismic', right => 'acoustic', on => 'region',
        time => 't_min,t_max', within => '2 s', confidence => 0.6)

`left_time`, `right_time` say where the sides' times differ; `deadline`, `since`, `delay`, `until`, `between`,
`overlaps`, `possibly`, `how`, `best`, `ties`, `where` (as text) and `probability` are those of `timing_join`. The
result has the columns of both rows, `on` once, the others with `_left` and `_right`; `left` and `right` may be the
same. `timing_join_rejects` has the same arguments and gives the rows that could not be used, those among them that name
another side or none (WA-1061).

Rows cross into such a function one by one, as Python objects: for many rows join DataFrames with `timing_join`. Spark
has no such function on streams: there it is `timing_join` too, and SQL over a temporary view of its result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import udtf
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, TimestampType, UserDefinedType
from pyspark.sql.udtf import AnalyzeArgument, AnalyzeResult, PartitioningColumn

from pyspark_whenabouts import DefaultSource
from whenabouts.core.arrays.record_batches import one_batch
from whenabouts.core.errors import Code, InputError, QueryError
from whenabouts.core.hosting.column_case import Columns, as_spelled
from whenabouts.core.hosting.columns_compared import columns_compared
from whenabouts.core.hosting.host import refuse_two_zones
from whenabouts.core.local import run
from whenabouts.core.runtime.key_names import of_input
from whenabouts.core.runtime.option_checks import refused
from whenabouts.core.runtime.protocol import Rejected
from whenabouts.core.runtime.rejects import reject_rows, rejects_schema
from whenabouts.core.times.condition_keywords import CONDITION_KEYWORDS, condition_of
from whenabouts.core.times.time_specs import Interval, Point, TimeSpec
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.spark_plugin.arrow_types import arrow_fields, spark_fields
from whenabouts.spark_plugin.column_names import quoted
from whenabouts.spark_plugin.column_types import check_collations, inner_types
from whenabouts.spark_plugin.sessions import prepare
from whenabouts.spark_plugin.workers import begin_task

PARTS = 64
"""Into how many parts the keys are split: the limit of parallelism."""

_EPOCH, _MICROSECOND, _TWO_DAYS = datetime(1970, 1, 1), timedelta(microseconds=1), timedelta(days=2)

_OPTIONS = (
    "side", "left", "right", "on", "time", "left_time", "right_time", *CONDITION_KEYWORDS, "how", "best", "ties",
    "where", "probability",
)  # fmt: skip


def register_sql(session: SparkSession) -> None:
    """Make `timing_join` and `timing_join_rejects` known to the SQL of a session, Spark Connect or not.

    Likewise the data source `whenabouts`: Spark finds it by itself where it is installed, but not among `--py-files`.

    Raises EngineError WA-3002 for an unfit Spark.
    """
    if not hasattr(session, "dataSource"):  # a session of Spark Connect is of a class of its own
        raise refused("the session", session, "give a SparkSession")
    prepare(session, streaming=False)
    try:
        session.dataSource.register(DefaultSource)
    except PySparkException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":  # then Spark has found it
            raise
    session.udtf.register("timing_join", udtf(_Pairs, useArrow=False))  # type: ignore[arg-type,unused-ignore]
    session.udtf.register("timing_join_rejects", udtf(_Rejects, useArrow=False))  # type: ignore[arg-type,unused-ignore]


@dataclass
class _Analysis(AnalyzeResult):
    """What the workers also need to know."""

    query: TimingJoin | None = None
    columns: pa.Schema = field(default_factory=lambda: pa.schema([]))
    side: int = 0
    names: tuple[str, str] = ("left", "right")


class _Pairs:
    """The function: gathers the rows of a part, and joins them at its end."""

    REJECTED: ClassVar[bool] = False

    def __init__(self, analysis: _Analysis) -> None:
        begin_task()
        self._analysis = analysis
        self._rows: tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]] = ([], [])
        self._of_no_side: list[tuple[Any, ...]] = []
        self._named: list[str | None] = []
        self._instants = [pa.types.is_timestamp(f.type) and f.type.tz is not None for f in analysis.columns]

    @classmethod
    def _analyzed(
        cls, table: AnalyzeArgument, more: tuple[AnalyzeArgument, ...], options: dict[str, AnalyzeArgument]
    ) -> _Analysis:
        if more or any(argument.isTable for argument in options.values()):
            raise _bad(
                "after its table timing_join takes arguments with names, and no other table",
                "write TABLE(SELECT 'a' AS side, ... UNION ALL SELECT 'b' AS side, ...), or make a view: docs/spark.md",
            )
        given = {name: argument.value for name, argument in options.items()}
        odd = set(given) - set(_OPTIONS)
        if odd:
            raise _bad(f"timing_join has no argument {min(odd)!r}", f"it has {', '.join(_OPTIONS)}")
        if not table.isTable or not isinstance(table.dataType, StructType):
            raise _bad("the first argument is not a table", "write TABLE(name) or TABLE(SELECT ...)")
        find = Columns(tuple(table.dataType.names))
        side = find(str(given.get("side", "side")))
        if side not in table.dataType.names:
            raise InputError(
                Code.MISSING_COLUMN,
                f"the table has no column {side!r} that tells the sides",
                "name it: side => 'column'",
            )
        plain = StructType([f for f in table.dataType.fields if f.name != side])
        _refuse_types(plain)
        columns = pa.schema(arrow_fields(plain.fields, "events"))
        query = _over(_query(given), plain, columns)
        operator = query.operator([columns, columns], streaming=False)
        refuse_two_zones(query, operator, [columns, columns], "a SQL function does not know the session's zone")
        output = (
            rejects_schema([reader.schema for reader in operator.readers]) if cls.REJECTED else operator.output_schema
        )
        keys = ", ".join(map(quoted, of_input(query.key_columns, 0)))
        return _Analysis(
            StructType(spark_fields(output)),
            withSinglePartition=not keys,
            partitionBy=[PartitioningColumn(f"pmod(hash({keys}), {PARTS})")] if keys else [],
            query=query,
            columns=columns,
            side=table.dataType.names.index(side),
            names=(str(given.get("left", "left")), str(given.get("right", "right"))),
        )

    @staticmethod
    def analyze(table: AnalyzeArgument, *more: AnalyzeArgument, **options: AnalyzeArgument) -> AnalyzeResult:
        """The result's columns, and how the rows are parted."""
        return _Pairs._analyzed(table, more, options)

    def eval(self, row: Any, **options: Any) -> None:
        """Take a row in."""
        values = list(row)
        side = values.pop(self._analysis.side)
        for at, instant in enumerate(self._instants):
            if instant and values[at] is not None:
                values[at] = _instant_us(values[at])
        sides = [rows for rows, name in zip(self._rows, self._analysis.names, strict=True) if str(side) == name]
        for rows in sides if side is not None else ():
            rows.append(tuple(values))
        if self.REJECTED and (side is None or not sides):
            self._of_no_side.append(tuple(values))
            self._named.append(None if side is None else str(side))

    def terminate(self) -> Iterator[tuple[Any, ...]]:
        """The rows of this part are complete."""
        assert self._analysis.query is not None
        outcome = run(self._analysis.query, [self._table(rows) for rows in self._rows])
        for table in [outcome.rejects, *self._without_side()] if self.REJECTED else [outcome.output]:
            for batch in table.to_batches(max_chunksize=4096):
                yield from zip(*map(_values, batch.columns), strict=True)

    def _without_side(self) -> list[pa.Table]:
        """Rows without a valid side, as rejects: the column `input` has the name that they give."""
        if not self._of_no_side:
            return []
        schema = self._analysis.columns
        rejected = Rejected(0, Code.UNKNOWN_SIDE, one_batch(self._table(self._of_no_side)))
        rows = reject_rows(rejected, [schema, schema], self._analysis.names)
        return [pa.Table.from_batches([rows.set_column(0, "input", pa.array(self._named, pa.string()))])]

    def _table(self, rows: list[tuple[Any, ...]]) -> pa.Table:
        schema = self._analysis.columns
        columns = zip(*rows, strict=True) if rows else [()] * len(schema)
        arrays = [pa.array(column, f.type) for column, f in zip(columns, schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=schema)


class _Rejects(_Pairs):
    """The same for rejected rows."""

    REJECTED = True

    @staticmethod
    def analyze(table: AnalyzeArgument, *more: AnalyzeArgument, **options: AnalyzeArgument) -> AnalyzeResult:
        """The columns of rejects."""
        return _Rejects._analyzed(table, more, options)


def _values(column: pa.Array) -> list[Any]:
    """The values of a column as Spark takes them from Python."""
    values: list[Any] = column.to_pylist()
    convert = _to_python(column.type)
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _to_python(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """From what `to_pylist` makes of a value with a map in it to what Spark takes; None for other types.

    Arrow gives a map as a list of pairs. Spark wants a dict, and makes NULL of a list.
    """
    if pa.types.is_map(kind):
        of_key, of_item = _hashable(kind.key_type), _or_null(_to_python(kind.item_type))
        return lambda pairs: {of_key(key): of_item(item) for key, item in pairs}
    if pa.types.is_list(kind):
        inner = _to_python(kind.value_type)
        of_value = _or_null(inner)
        return None if inner is None else lambda values: [of_value(value) for value in values]
    if pa.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        found = {f.name: of_field for f in fields if (of_field := _to_python(f.type)) is not None}
        parts = {name: _or_null(of_field) for name, of_field in found.items()}
        return (lambda row: row | {name: part(row[name]) for name, part in parts.items()}) if parts else None
    return None


def _or_null(convert: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    if convert is None:
        return lambda value: value
    return lambda value: None if value is None else convert(value)


def _hashable(kind: pa.DataType) -> Callable[[Any], Any]:
    """From what `to_pylist` makes of a map's key to what a dict takes as a key: tuples for structs."""
    if pa.types.is_struct(kind):
        parts = [_hashable(kind.field(index).type) for index in range(kind.num_fields)]
        return lambda row: None if row is None else tuple(of(v) for of, v in zip(parts, row.values(), strict=True))
    return lambda key: key


def _instant_us(moment: datetime) -> int:
    """Microseconds since 1970 of an instant. Spark hands instants over as naive times of the worker's zone; `fold`
    tells the repeated hour apart. Python has no instants outside the years 1 to 9999, and looks for the offset of a
    time a day before and after it: of the first and the last days it is asked two days further in."""
    asked = moment
    if moment - datetime.min < _TWO_DAYS:
        asked += _TWO_DAYS
    elif datetime.max - moment < _TWO_DAYS:
        asked -= _TWO_DAYS
    offset = asked.astimezone().utcoffset() or timedelta()
    return (moment - _EPOCH - offset) // _MICROSECOND


def _query(given: dict[str, Any]) -> TimingJoin:
    return TimingJoin(
        left_time=_time(given, "left_time"),
        right_time=_time(given, "right_time"),
        condition=condition_of(given),
        on=[name.strip() for name in str(given["on"]).split(",")] if given.get("on") else None,
        how=given.get("how", "inner"),
        best=given.get("best"),
        ties=given.get("ties", "earliest"),
        where=given.get("where"),
        probability=bool(given.get("probability", True)),
    )


def _over(query: TimingJoin, fields: StructType, columns: pa.Schema) -> TimingJoin:
    """The query over a table of these columns. Raises QueryError WA-2186 for text that it cannot compare."""
    spelled, _ = as_spelled(query, [columns, columns])
    assert isinstance(spelled, TimingJoin)
    check_collations("events", {f.name: f.dataType for f in fields.fields}, columns_compared(spelled)[0])
    return spelled


def _time(given: dict[str, Any], name: str) -> TimeSpec:
    text = given.get(name, given.get("time"))
    columns = [column.strip() for column in str(text or "").split(",")]
    if not all(columns) or len(columns) > 2:
        raise _bad(f"{name} is {text!r}", "give time => 't', or time => 't_min,t_max'")
    return Point(*columns) if len(columns) == 1 else Interval(columns[0], columns[1])


def _refuse_types(schema: StructType) -> None:
    """Raise InputError WA-1002 for a column whose values cannot be taken from Spark's Python objects."""
    for f in schema.fields:
        odd = _no_plain_value(f.dataType)
        if odd is not None:
            raise InputError(
                Code.WRONG_TYPE,
                f"column {f.name!r} is {f.dataType.simpleString()}, and a table function cannot take {odd}",
                "leave it out, or join DataFrames with timing_join",
            )
        if not isinstance(f.dataType, TimestampType) and _has_instant(f.dataType):
            raise InputError(
                Code.WRONG_TYPE,
                f"column {f.name!r} holds timestamps inside of {f.dataType.simpleString()}",
                "leave it out, or join DataFrames with timing_join",
            )


def _no_plain_value(kind: DataType) -> str | None:
    """What a type has that is no plain value in Python, or cannot be told apart there; None if nothing."""
    if isinstance(kind, UserDefinedType) or kind.typeName() in ("variant", "geometry", "geography"):
        return kind.simpleString()
    if isinstance(kind, MapType) and _has_array(kind.keyType):
        return "arrays in keys of maps"
    if isinstance(kind, StructType) and len(set(kind.names)) < len(kind.names):
        return "a struct with two fields of one name"
    return next(filter(None, map(_no_plain_value, inner_types(kind))), None)


def _has_array(kind: DataType) -> bool:
    return isinstance(kind, ArrayType) or any(map(_has_array, inner_types(kind)))


def _has_instant(kind: DataType) -> bool:
    return isinstance(kind, TimestampType) or any(map(_has_instant, inner_types(kind)))


def _bad(problem: str, hint: str) -> QueryError:
    return QueryError(Code.BAD_OPTION, problem, hint)

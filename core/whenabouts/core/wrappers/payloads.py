"""Payloads: one encoded record per row, as a message broker delivers them, and the columns that they contain.

Other programs write to a topic, so every payload is decoded separately and strictly: a payload that is not a record of
the declared columns is rejected, and cannot affect other rows. Libraries decode (msgspec for JSON, fastavro for Avro:
extra `payloads`); `wrappers.payload_decoding` adds this to any query.
"""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cached_property
from importlib import import_module
from operator import attrgetter, itemgetter
from typing import Annotated, Any, NamedTuple

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.typing import BoolArray
from whenabouts.core.durations import Duration, parse_non_negative, whole_of
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.runtime.option_checks import columns_of, refused, shown

UTC_TIME = pa.timestamp("us", "UTC")


class Format(NamedTuple):
    """How records are read: `read` decodes one payload, and raises if it is not a record; `values` has a function for
    each column that gives a record's value; `nothing` is a record of nulls."""

    read: Callable[[bytes], Any]
    values: Sequence[Callable[[Any], Any]]
    nothing: Any


@dataclass(frozen=True, kw_only=True)
class Payload(ABC):
    """Which columns of an input have the payloads and other data; `JsonPayload` and `AvroPayload` are the formats.

    `column`: the column of the payloads, bytes or text. `skip`: bytes in front of each record (5 for Confluent's
    serialisers). `keep`: other columns of the input to keep next to the decoded ones. `received`: the column with the
    time of receipt, and `max_ahead`: how far a row's `t_max` may be ahead of that; a row further ahead is rejected
    (WA-1052), because it would make all others late. Raises QueryError WA-2171 for one without the other.
    """

    column: str = "value"
    skip: int = 0
    keep: str | Sequence[str] = ()
    received: str | None = None
    max_ahead: Duration | None = None

    def __post_init__(self) -> None:
        if (self.received is None) != (self.max_ahead is None):
            raise QueryError(
                Code.BAD_PAYLOAD,
                f"received is {self.received!r} and max_ahead {self.max_ahead!r}",
                'give both, as received="timestamp", max_ahead="1 day", or none',
            )
        skip = whole_of(self.skip)
        if skip is None or skip < 0:
            raise QueryError(
                Code.BAD_PAYLOAD, f"skip is {shown(self.skip)}", "give the number of bytes before a record"
            )
        object.__setattr__(self, "skip", skip)
        object.__setattr__(self, "keep", columns_of("keep", self.keep, Code.BAD_PAYLOAD))
        assert self.max_ahead_us is None or self.max_ahead_us >= 0  # raises for an invalid duration

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns that the payloads hold."""

    @property
    def max_ahead_us(self) -> int | None:
        """`max_ahead` in microseconds."""
        return None if self.max_ahead is None else parse_non_negative(self.max_ahead, name="max_ahead")

    def decoder(self) -> Decoder:
        """A decoder of these payloads. Create it once, in the process that decodes."""
        return Decoder(self.schema, self.skip, self._format())

    @abstractmethod
    def _format(self) -> Format:
        """How these records are read."""


def _names(columns: Any) -> Any:
    return columns.names if isinstance(columns, pa.Schema) else columns


def a_payload(name: str, value: Any) -> None:
    """Raise QueryError WA-2171 for anything but a description of payloads."""
    if not isinstance(value, Payload):
        raise refused(name, value, 'give JsonPayload({"t": "int64"}) or AvroPayload(...)', Code.BAD_PAYLOAD)


@dataclass(frozen=True)
class Decoder:
    """Decodes payloads to columns."""

    schema: pa.Schema
    skip: int
    format: Format

    def __call__(self, payloads: Sequence[bytes | None]) -> tuple[pa.RecordBatch, BoolArray]:
        """The columns of `schema`, and which payloads could be decoded; the rows of others are null.

        Cost: one to two tenths of a microsecond per value of JSON.
        """
        records, good = self._records(payloads)
        columns = [[*map(value, records)] for value in self.format.values]
        try:
            batch = _batch(columns, self.schema)
        except (pa.ArrowException, OverflowError):  # a value does not have its column's type
            good &= np.array([_fits(row, self.schema) for row in zip(*columns, strict=True)], bool)
            fitting = [[value if fine else None for value, fine in zip(each, good, strict=True)] for each in columns]
            batch = _batch(fitting, self.schema)
        return batch, good

    def _records(self, payloads: Sequence[bytes | None]) -> tuple[list[Any], BoolArray]:
        read, skip, nothing = self.format.read, self.skip, self.format.nothing
        records: list[Any] = []
        good = np.ones(len(payloads), bool)
        for payload in payloads:
            try:
                records.append(read(payload[skip:]))  # type: ignore[index]
            except Exception:  # any kind: a topic may contain anything, and a tombstone nothing
                good[len(records)] = False
                records.append(nothing)
        return records, good


@dataclass(frozen=True)
class JsonPayload(Payload):
    """Payloads that are JSON objects.

    `columns`: the type of each column, as a pyarrow type or its name. Numbers must be numbers and text must be text;
    `timestamp("us")` is text like `2024-05-01T12:00:00.25`, with an offset if the type has a time zone, and further
    digits of its seconds are rounded; bytes are base64. A null or missing member is null; members without a column are
    ignored. Raises QueryError WA-2171 for a type that JSON cannot represent, WA-2007 without msgspec.

    >>> payload = JsonPayload({"id": "int64", "t": "int64"})
    >>> batch, good = payload.decoder()([b'{"id": 1, "t": 9, "more": []}', b'{"id": "1"}', b"", b'{"t": 3}'])
    >>> batch.to_pylist()[0], good.tolist()
    ({'id': 1, 't': 9}, [True, False, False, True])
    """

    columns: Mapping[str, Any] | pa.Schema = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        given: Any = self.columns
        if not isinstance(given, (Mapping, pa.Schema)) or not all(isinstance(name, str) for name in _names(given)):
            raise refused("columns", given, 'give names with types, as {"t": "int64"}', Code.BAD_PAYLOAD)
        named = given if isinstance(given, pa.Schema) else pa.schema([(n, _arrow(t)) for n, t in given.items()])
        object.__setattr__(self, "columns", named)
        for each in self.schema:
            _json_type(each)

    @property
    def schema(self) -> pa.Schema:
        """The columns that the payloads hold."""
        return self.columns

    def _format(self) -> Format:
        msgspec = _library("msgspec")
        members = [(f"c{i}", _json_type(each) | None, None) for i, each in enumerate(self.schema)]
        renamed = {f"c{i}": each.name for i, each in enumerate(self.schema)}
        # gc: a record refers to plain values. To visit those of a whole batch, again and again, took most of the time.
        record = msgspec.defstruct("Record", members, rename=renamed, gc=False)
        return Format(msgspec.json.Decoder(record).decode, [*map(attrgetter, renamed)], record())


@dataclass(frozen=True)
class AvroPayload(Payload):
    """Payloads that are single Avro records without a file header, all written with one schema.

    `record`: the schema, as JSON text or as parsed JSON. Its fields are the columns; they may be numbers, text, bytes,
    enums, times (`timestamp-micros`, `timestamp-millis`, `local-timestamp-…`), dates, and unions of one of them with
    null. Each record is encoded again, and a payload with other bytes is rejected: fastavro alone would accept bytes
    after the record, and invent values for a boolean of 2 or a negative index of an enum. Raises QueryError WA-2171
    for another schema, WA-2007 without fastavro. Cost: about 6 microseconds for a record of five columns.

    >>> record = {"type": "record", "name": "event", "fields": [{"name": "t", "type": "long"}]}
    >>> batch, good = AvroPayload(record).decoder()([bytes([18]), bytes([18, 18]), b""])
    >>> batch.to_pylist()[0], good.tolist()
    ({'t': 9}, [True, False, False])
    """

    record: str | Mapping[str, Any] = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.record, str):
            try:
                object.__setattr__(self, "record", json.dumps(self.record))
            except (TypeError, ValueError) as error:
                raise _bad_avro(f"is {shown(self.record)}") from error
        assert self.schema is not None  # raises for an unsupported schema

    @cached_property
    def _described(self) -> dict[str, Any]:
        try:
            described = json.loads(str(self.record))
        except ValueError as error:
            raise _bad_avro(f"is not JSON: {error}") from error
        if not isinstance(described, dict) or described.get("type") != "record":
            raise _bad_avro("is not of a record")
        fields = described.get("fields")
        if not isinstance(fields, list) or not all(map(_is_avro_field, fields)):
            raise _bad_avro(f"has the fields {shown(fields)}")
        if len({each["name"] for each in fields}) < len(fields):
            raise _bad_avro("gives two fields one name")
        return described

    @property
    def schema(self) -> pa.Schema:
        """The columns that the payloads hold."""
        return pa.schema([(each["name"], _avro_type(each["type"], each["name"])) for each in self._described["fields"]])

    def _format(self) -> Format:
        fastavro = _library("fastavro")
        try:
            parsed, names = fastavro.parse_schema(self._described), self.schema.names
        except Exception as error:  # fastavro's own, and KeyError or TypeError for an incomplete schema
            raise _bad_avro(f"is invalid: {error!r}") from error

        def read(payload: bytes) -> Any:
            record = fastavro.schemaless_reader(io.BytesIO(payload), parsed, None)
            # fastavro reads what no writer writes: bytes after the record, a negative index of a union, a boolean of 2.
            written = io.BytesIO()
            fastavro.schemaless_writer(written, parsed, record)
            if written.getvalue() != payload:
                raise ValueError("the bytes are not those of a record")
            return record

        return Format(read, [*map(itemgetter, names)], dict.fromkeys(names))


def _batch(columns: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [pa.array(values, each.type) for values, each in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _fits(row: Sequence[Any], schema: pa.Schema) -> bool:
    try:
        _batch([[value] for value in row], schema)
    except (pa.ArrowException, OverflowError):
        return False
    return True


def _arrow(type_: Any) -> pa.DataType:
    if isinstance(type_, pa.DataType):
        return type_
    try:
        return pa.type_for_alias(type_)
    except (ValueError, AttributeError, TypeError) as error:
        hint = "name a pyarrow type, such as int64 or string"
        raise QueryError(Code.BAD_PAYLOAD, f"{type_!r} is not a type", hint) from error


def _json_type(column: pa.Field) -> Any:
    """The type that msgspec checks a member against."""
    kind = column.type
    if pa.types.is_signed_integer(kind):
        limit = 1 << (kind.bit_width - 1)
        return Annotated[int, _library("msgspec").Meta(ge=-limit, le=limit - 1)]
    if pa.types.is_float32(kind):
        most = float(np.finfo(np.float32).max)  # Arrow would make infinity of a number beyond it
        return Annotated[float, _library("msgspec").Meta(ge=-most, le=most)]
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return Annotated[datetime, _library("msgspec").Meta(tz=kind.tz is not None)]
    for fits, found in (
        (pa.types.is_float64, float), (pa.types.is_boolean, bool), (pa.types.is_string, str),
        (pa.types.is_binary, bytes), (pa.types.is_date32, date),
    ):  # fmt: skip
        if fits(kind):
            return found
    raise QueryError(
        Code.BAD_PAYLOAD,
        f"column {column.name!r} of a JSON payload is {kind}",
        "use signed integers, float32, float64, bool, string, binary, date32 or timestamp[us]",
    )


_AVRO = {
    "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(), "boolean": pa.bool_(),
    "string": pa.string(), "bytes": pa.binary(), "enum": pa.string(),
}  # fmt: skip
_AVRO_TIMES = {
    "timestamp-micros": UTC_TIME, "timestamp-millis": UTC_TIME, "date": pa.date32(),
    "local-timestamp-micros": pa.timestamp("us"), "local-timestamp-millis": pa.timestamp("us"),
}  # fmt: skip


def _bad_avro(what: str) -> QueryError:
    hint = 'give {"type": "record", "name": ..., "fields": [{"name": ..., "type": ...}, ...]}'
    return QueryError(Code.BAD_PAYLOAD, f"the Avro schema {what}", hint)


def _is_avro_field(given: Any) -> bool:
    return isinstance(given, dict) and isinstance(given.get("name"), str) and "type" in given


def _avro_type(given: Any, name: str) -> pa.DataType:
    """The column type of an Avro field."""
    if isinstance(given, list):
        others = [each for each in given if each != "null"]
        if len(others) == 1 and not isinstance(others[0], list):
            return _avro_type(others[0], name)
    elif isinstance(given, dict):
        logical, base = given.get("logicalType"), given.get("type")
        if logical is None:
            return _avro_type(base, name)
        for known, kind in _AVRO_TIMES.items():
            # On another base readers ignore the logical type: milliseconds would be taken for microseconds.
            if logical == known and base == ("int" if known == "date" else "long"):
                return kind
    elif given in _AVRO:
        return _AVRO[given]
    raise QueryError(
        Code.BAD_PAYLOAD,
        f"field {name!r} of an Avro record is {given}",
        f"use {', '.join([*_AVRO, *_AVRO_TIMES])}, or a union of one with null",
    )


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise QueryError(
            Code.NOT_AVAILABLE, f"such payloads need {name}", "pip install 'whenabouts[payloads]'"
        ) from error

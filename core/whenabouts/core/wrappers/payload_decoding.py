"""Queries over payloads: records are decoded when rows are read, and invalid ones are rejected like other bad rows.

`Decoded` wraps any other query. The query sees the decoded columns, engines see a query over the payloads. So an
unreadable message costs one rejected row, not the job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.plain_types import plain_type
from whenabouts.core.arrays.record_batches import separate_bytes
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.errors import Code, InputError, QueryError
from whenabouts.core.runtime.event_reader import check_time_column, conformed
from whenabouts.core.runtime.protocol import (
    NO_WATERMARK,
    Arrival,
    Events,
    FlushMode,
    Query,
    Reader,
    Rejected,
    SegmentStore,
    Step,
)
from whenabouts.core.runtime.time_columns import microseconds
from whenabouts.core.wrappers.base import WrappedOperator, WrappedQuery
from whenabouts.core.wrappers.payloads import Payload, a_payload

Payloads = Payload | Mapping[str, Payload]
"""One for every input, or by input name."""

_BYTES_OR_TEXT = (pa.types.is_binary, pa.types.is_string, pa.types.is_large_binary, pa.types.is_large_string)


def decoded(query: Query, payloads: Payloads | None) -> Query:
    """The query over inputs whose rows hold records as bytes; inputs that `payloads` does not name are unchanged.

    Rows whose payload is not a record are rejected (WA-1051), and rows too far ahead of their receipt (WA-1052);
    the rejects have the payload as a further column. With None the query itself is returned. Raises QueryError WA-2171
    for an input that the query does not have.

    >>> from whenabouts.core import Point, within
    >>> from whenabouts.core.local import run
    >>> from whenabouts.core.wrappers.payloads import JsonPayload
    >>> from whenabouts.core.timing_join.query import TimingJoin
    >>> query = TimingJoin(left_time=Point("t"), right_time=Point("t"), condition=within(5, confidence=1))
    >>> topic = pa.table({"value": [b'{"t": 1}', b"oops"]})
    >>> outcome = run(decoded(query, JsonPayload({"t": "int64"})), [topic, topic])
    >>> outcome.output.to_pylist()
    [{'t_left': 1, 't_right': 1, 'probability': 1.0}]
    >>> outcome.rejects.select(["input", "code", "value"]).to_pylist()[0]
    {'input': 'left', 'code': 'WA-1051', 'value': b'oops'}
    """
    if payloads is None:
        return query
    named = payloads if isinstance(payloads, Mapping) else dict.fromkeys(query.inputs, payloads)
    for name, payload in named.items():
        a_payload(f"the payload of {name}", payload)
        if name not in query.inputs:
            raise QueryError(
                Code.BAD_PAYLOAD, f"payloads of {name!r} are described", f"inputs are {', '.join(query.inputs)}"
            )
    return Decoded(query, tuple(named.get(name) for name in query.inputs))


@dataclass(frozen=True)
class Decoded(WrappedQuery):
    """A query over payloads; `payloads`: for each input how to decode them, None if its rows are not encoded."""

    query: Query
    payloads: tuple[Payload | None, ...]

    def operator(self, schemas: Sequence[pa.Schema], *, streaming: bool) -> DecodingOperator:
        """The query's operator, with readers that decode. Raises InputError WA-1001 and WA-1002 for columns of the
        input, QueryError WA-2009 for two columns of one name."""
        return DecodingOperator(self, schemas, streaming=streaming)


class DecodingOperator(WrappedOperator):
    """Runs a `Decoded`: the operator of its query, with readers that decode."""

    def __init__(self, query: Decoded, schemas: Sequence[pa.Schema], *, streaming: bool) -> None:
        pairs = list(zip(query.inputs, schemas, query.payloads, strict=True))
        inside = [
            schema if payload is None else decoded_schema(schema, payload, name) for name, schema, payload in pairs
        ]
        super().__init__(query.query.operator(inside, streaming=streaming))
        self._readers: tuple[Reader, ...] = tuple(
            reader if payload is None else DecodingReader(reader, schema, payload)
            for reader, (_, schema, payload) in zip(self._operator.readers, pairs, strict=True)
        )

    @property
    def readers(self) -> tuple[Reader, ...]:
        """The readers of the operator, which decode first."""
        return self._readers

    def step(
        self,
        store: SegmentStore,
        arrivals: Sequence[Arrival],
        watermark_us: int,
        demand: FlushMode = FlushMode.NOTHING,
        latest_us: int = NO_WATERMARK,
    ) -> Step:
        """One step of `protocol.Operator`."""
        step = self._operator.step(store, arrivals, watermark_us, demand, latest_us)
        step.rejected = [self._as_given(each) for each in step.rejected]
        return step

    def _as_given(self, rejected: Rejected) -> Rejected:
        reader = self._readers[rejected.input]
        return reader.as_given(rejected) if isinstance(reader, DecodingReader) else rejected


class DecodingReader:
    """A reader of payloads; `schema` has the decoded columns, and the payload for rows that cannot be decoded."""

    def __init__(self, inner: Reader, given: pa.Schema, payload: Payload) -> None:
        self.input, self.name, self.time, self.units = inner.input, inner.name, inner.time, inner.units
        self.schema = inner.schema.append(pa.field(payload.column, pa.binary()))
        self.block_schema = inner.block_schema
        self._given = pa.schema([self.schema.field(name) for name in (*payload.keep, payload.column)])
        self._received = pa.schema([given.field(name) for name in [payload.received] if name is not None])
        self._inner, self._payload, self._decode = inner, payload, payload.decoder()

    def read(self, rows: pa.RecordBatch) -> Events:
        """As `Reader.read`, for a batch with payloads."""
        wide, good = self._decoded(rows)
        rejected = []
        for code, fine in ((Code.UNREADABLE_PAYLOAD, good), (Code.AHEAD, ~good | self._in_time(wide, rows))):
            if not fine.all():
                rejected.append(Rejected(self.input, code, wide.filter(pa.array(~fine))))
                good = good & fine
        usable = wide.filter(pa.array(good)) if rejected else wide
        block, more = self._inner.read(usable.select(self._inner.schema.names))
        return Events(block, rejected + [self.as_given(each) for each in more])

    @property
    def time_columns(self) -> tuple[str, ...]:
        """The columns of a raw batch that `ends` reads."""
        return self._payload.column, *self._payload.keep

    def ends(self, rows: pa.RecordBatch) -> tuple[IntArray, IntArray]:
        """The times of a batch with payloads in microseconds. Cost: they are decoded."""
        return self._inner.ends(self._decoded(rows)[0])

    def raw(self, block: pa.RecordBatch) -> pa.RecordBatch:
        """The decoded columns of a block; its payloads are not kept."""
        return self._widened(self._inner.raw(block))

    def as_given(self, rejected: Rejected) -> Rejected:
        """Rows that the query rejected, with this reader's columns."""
        return rejected._replace(rows=self._widened(rejected.rows))

    def _decoded(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, BoolArray]:
        """The rows with this reader's columns, and which payloads could be decoded."""
        *kept, payloads = conformed(rows, self._given, self.name).columns
        columns, good = self._decode(separate_bytes(payloads))
        return pa.RecordBatch.from_arrays([*columns.columns, *kept, payloads], schema=self.schema), good

    def _widened(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([*rows.columns, pa.nulls(rows.num_rows, pa.binary())], schema=self.schema)

    def _in_time(self, wide: pa.RecordBatch, rows: pa.RecordBatch) -> BoolArray:
        """Which rows are not too far ahead of their time of receipt; rows without that time are not."""
        most_us = self._payload.max_ahead_us
        if most_us is None:
            return np.ones(rows.num_rows, bool)
        received = microseconds(conformed(rows, self._received, self.name).column(0))
        fine = self._inner.ends(wide)[1] - received.us <= most_us
        return fine if received.null is None else fine | received.null


def decoded_schema(given: pa.Schema, payload: Payload, input: str) -> pa.Schema:
    """The columns that the query sees of an input."""
    for name in (payload.column, *payload.keep):
        if name not in given.names:
            known = f"it has {', '.join(given.names)}"
            raise InputError(Code.MISSING_COLUMN, f"the {input} input has no column {name!r}", known)
    kind = plain_type(given.field(payload.column).type)
    if not any(is_it(kind) for is_it in _BYTES_OR_TEXT):
        raise InputError(
            Code.WRONG_TYPE, f"column {payload.column!r} of the {input} input is {kind}", "payloads are bytes or text"
        )
    if payload.received is not None:
        check_time_column(given, payload.received, input)
    fields = [*payload.schema, *(given.field(name) for name in payload.keep)]
    names = [*(each.name for each in fields), payload.column]
    for name, times in Counter(names).items():
        if times > 1:
            raise QueryError(
                Code.COLUMN_CLASH,
                f"the {input} input would have two columns {name!r}",
                "rename that of the payload, or do not keep the other",
            )
    return pa.schema(fields)

"""What hosts in other processes share: rows as bytes on their way to an operator, and its results on their way out.

An engine's Python operators have a cost per row and per group. A blob makes one row of a thousand, and a bucket makes
one group of a thousand keys: rows are read into blocks where they enter, split by bucket, and sent as `Packed` rows.
The operator's results leave as `Tagged` rows. Both contain Arrow bytes (`state.segment_codec`) and numbers, which any
engine can transport.
"""

from __future__ import annotations

import json
import struct
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.callers import users_level
from whenabouts.core.errors import Code, MixedZonesWarning, QueryError
from whenabouts.core.hosting.columns_compared import times_compared
from whenabouts.core.hosting.input_watermarks import InputClocks
from whenabouts.core.hosting.packed_kinds import (
    PRESENT,
    REJECTS,
    Content,
    clock_kind,
    content_of,
    has_rows,
    progress_kind,
    rows_kind,
)
from whenabouts.core.hosting.packer_clocks import report
from whenabouts.core.hosting.query_identity import Identity, identity_of
from whenabouts.core.runtime.blocks import times
from whenabouts.core.runtime.protocol import (
    END_OF_TIME,
    NO_WATERMARK,
    Arrival,
    Copied,
    FlushMode,
    Operator,
    Query,
    SegmentStore,
    Step,
)
from whenabouts.core.runtime.rejects import reject_rows, rejects_schema
from whenabouts.core.runtime.time_columns import times_cut, warn_of_digits
from whenabouts.core.runtime.watermarks import began
from whenabouts.core.state.segment_codec import decode, encode
from whenabouts.core.times.time_units import DoubtfulTimes
from whenabouts.core.wrappers.state_limit import StateLimit, limited

OUTPUT, REJECTED, COUNTS = 0, 1, 2

_PROGRESS = struct.Struct("<qq")
"""An input's progress: its greatest `t_max` (`END_OF_TIME` once it has ended), and the start of its block."""

ROWS_PER_BLOB = 1 << 13
"""Rows that `BlockPacker.split_by_time` keeps together."""

BYTES_PER_BLOB = 16 << 20
"""Output is cut into blobs of about this size."""


@dataclass(frozen=True)
class Hosting:
    """Everything that a worker needs to build the operator and to bucket its rows. It is sent to the workers by pickle.

    `flushed`: the inputs of a stream signal their own ends (`BlockPacker.ended`). `own_watermarks`: steps of a stream
    that work on the same rows can have different watermarks in different buckets. `key_groups`: the engine's number of
    them, if the keys of the buckets depend on it; 0: they do not.
    """

    query: Query
    schemas: tuple[pa.Schema, ...]
    buckets: int
    streaming: bool
    state_limit: StateLimit | None = None
    flushed: bool = False
    own_watermarks: bool = False
    key_groups: int = 0

    def operator(self) -> Operator:
        """A fresh operator; all state is outside of it."""
        return limited(self.query.operator(self.schemas, streaming=self.streaming), self.state_limit)

    @property
    def keeps_clocks(self) -> bool:
        """Whether buckets record the progress of each input (`hosting.input_watermarks`)."""
        return self.streaming and (self.flushed or self.query.idle_after_us is not None)

    def packers_decide(self, operator: Operator) -> bool:
        """Whether rows are late by the clocks of their packers (`hosting.packer_clocks`)."""
        return self.streaming and self.own_watermarks and operator.keys.slots is not None

    def step(
        self,
        operator: Operator,
        store: SegmentStore,
        arrived: BucketInput,
        watermark_us: int,
        demand: FlushMode,
        *,
        has_clocks: bool = False,
    ) -> Step:
        """One step of a bucket of a stream; `watermark_us` is the engine's. Afterwards `arrived.ended` says whether it
        was the last. `has_clocks`: the bucket's state holds the progress of its inputs, if only by earlier settings."""
        if self.keeps_clocks or has_clocks:
            clocks = InputClocks(store, self.query)
            watermark_us = max(watermark_us, clocks.watermark_us)
            clocks.take(arrived.latest, arrived.began)
            arrived.ended |= clocks.ended
        demand = FlushMode.END if arrived.ended else demand
        return operator.step(store, arrived.arrivals, watermark_us, demand, arrived.latest_us)

    @property
    def identity(self) -> Identity:
        """The identity that a stream's state is bound to."""
        return identity_of(self.query, self.schemas, self.buckets)

    @property
    def rejects_schema(self) -> pa.Schema:
        """Schema of reject blobs."""
        return rejects_schema([reader.schema for reader in self.operator().readers])


def require_lateness(query: Query) -> None:
    """Refuse, as QueryError WA-2051, a stream without a declared lateness.

    Its watermark would follow the newest row at once, so that rows out of order would be rejected and their pairs
    missing.
    """
    if not query.says_lateness:
        raise QueryError(
            Code.NO_LATENESS,
            "the inputs are streams without a declared lateness",
            'give lateness="10 s", or Lateness(left=..., right=...); zero if rows come in order of their times',
        )


def require_one_zone(query: Query, operator: Operator, schemas: Sequence[pa.Schema], zone: str | None) -> None:
    """Refuse, as QueryError WA-2192, to compare times with a zone and times without, unless the session's zone is UTC;
    as times of the query, or in its SQL conditions.

    `zone`: the session's, None for UTC. Here times without a zone are read as UTC, while the engine's own `=` reads
    them in the session's zone. Only the user knows which is meant; and in a zone whose clocks change, some local times
    are no instant and others are two.
    """
    if zone is not None:
        refuse_two_zones(query, operator, schemas, f"the session's zone is {zone}", "; or have a session in UTC")


def warn_of_two_zones(query: Query, operator: Operator, schemas: Sequence[pa.Schema]) -> None:
    """Warn (`MixedZonesWarning`) where one time column names a zone other than UTC, and another has none.

    In process there is no session whose zone might be meant, so the latter is read as UTC; wall-clock times of the
    former's zone would then be hours off, and match nothing or the wrong rows.
    """
    for compared in _compared_times(query, operator, schemas):
        stamps = {what: type_.tz for what, type_ in compared.items() if pa.types.is_timestamp(type_)}
        named = next(((what, tz) for what, tz in stamps.items() if tz is not None and not is_utc(tz)), None)
        without = next((what for what, tz in stamps.items() if tz is None), None)
        if named is not None and without is not None:
            warnings.warn(
                f"{Code.MIXED_ZONES}: {named[0]} has times of {named[1]}, {without} times without a zone, which are "
                "read as UTC; give both a zone if other times are meant",
                MixedZonesWarning,
                stacklevel=users_level(),
            )


_UTC = frozenset({"utc", "etc/utc", "z", "gmt", "etc/gmt", "uct", "etc/uct", "zulu", "etc/zulu", "+00:00", "universal"})


def is_utc(zone: str) -> bool:
    """Whether the wall clock of the zone shows UTC.

    >>> is_utc("Etc/UTC"), is_utc("Europe/London")
    (True, False)
    """
    return zone.lower() in _UTC


def _compared_times(query: Query, operator: Operator, schemas: Sequence[pa.Schema]) -> Iterator[dict[str, pa.DataType]]:
    """Columns that are compared with one another, by what they are: the times of the query, and those in conditions."""
    yield {
        f"time column {column!r} of the {name} input": schema.field(column).type
        for name, reader, schema in zip(query.inputs, operator.readers, schemas, strict=True)
        for column in reader.time.columns
        if column in schema.names  # columns of a payload are typed by the payload's description
    }
    for compared in times_compared(query, schemas, operator.output_schema):
        yield {f"column {name!r} of a condition": type_ for name, type_ in compared.items()}


def refuse_two_zones(query: Query, operator: Operator, schemas: Sequence[pa.Schema], zone: str, hint: str = "") -> None:
    """`require_one_zone` for a session that `zone` describes. `hint`: what can be done but for a cast."""
    for compared in _compared_times(query, operator, schemas):
        stamps = {what: type_ for what, type_ in compared.items() if pa.types.is_timestamp(type_)}
        instant = next((what for what, type_ in stamps.items() if type_.tz is not None), None)
        without = next((what for what, type_ in stamps.items() if type_.tz is None), None)
        if instant is not None and without is not None:
            raise QueryError(
                Code.MIXED_ZONES,
                f"{instant} holds instants, {without} times without a zone, and {zone}",
                f"cast one to the type of the other, which reads it in the session's zone{hint}",
            )


class Packed(NamedTuple):
    """Rows of one input and bucket as bytes.

    `kind`: what the blob holds, and of which input, see `hosting.packed_kinds`. `rows`: how many the bucket counts, so
    0 for copies. `clock_us`: the greatest `t_max` of the rows, which the watermark follows.
    """

    bucket: int
    kind: int
    rows: int
    clock_us: int
    blob: bytes


class BlockPacker:
    """Reads and packs one input; made in the worker. `operator`: the hosting's, if there is one already.

    `number`: which of the `packers` of the input it is.
    """

    def __init__(
        self, hosting: Hosting, input: int, operator: Operator | None = None, *, number: int = 0, packers: int = 1
    ) -> None:
        self._hosting, self._input = hosting, input
        self._warned_of_digits = False
        self._operator = operator or hosting.operator()
        self._decides = hosting.packers_decide(self._operator)
        self._number, self._packers = number, packers
        self._clock_us: int | None = None
        self._raw_schemas = [reader.schema for reader in self._operator.readers]

    def read(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, list[Packed]]:
        """A block of the rows that can be used, and the packed rejects. O(rows)."""
        reader, doubtful = self._operator.readers[self._input], self.units.rows
        block, rejected = reader.read(rows)
        if not self._warned_of_digits:
            cut = times_cut(reader, block)
            warn_of_digits(cut, f" of the first block of {reader.name} that has such")
            self._warned_of_digits = cut > 0
        refused = [reject_rows(each, self._raw_schemas, self._hosting.query.inputs) for each in rejected]
        packed = [Packed(0, REJECTS, rows.num_rows, 0, encode(rows)) for rows in refused]
        if self.units.rows > doubtful:
            counts = json.dumps({metrics.DOUBTFUL: self.units.rows - doubtful}).encode()
            packed.append(Packed(0, PRESENT, 0, 0, counts))
        return block, packed

    @property
    def units(self) -> DoubtfulTimes:
        """Integer times whose unit looks wrong, for the host's warning."""
        return self._operator.readers[self._input].units

    def split(self, blocks: Sequence[pa.RecordBatch]) -> Iterator[Packed]:
        """Blocks of this input by bucket, rows in arrival order. O(rows), and a sort of small integers."""
        if self._decides and self._clock_us is None:
            yield from self._reported(NO_WATERMARK)  # how many packers there are now
        for bucket, kind, rows in self._placed(blocks):
            yield self._packed(bucket, kind, rows)
        yield from self._latest(blocks)
        if self._decides:
            greatest = [int(times(block)[1].max()) - self._lateness_us for block in blocks if block.num_rows]
            yield from self._reported(max(greatest, default=NO_WATERMARK))

    def split_by_time(self, blocks: Sequence[pa.RecordBatch]) -> Iterator[tuple[Packed, int]]:
        """As `split`, in packed rows of bounded size, each of a time range of its own, with its least `t_max`.

        So a bucket can be read piece by piece (`hosting.out_of_core`). O(rows), and a sort of those that are out of
        order.
        """
        for bucket, kind, rows in self._placed(blocks):
            t_max = times(rows)[1]
            if rows.num_rows > ROWS_PER_BLOB and (np.diff(t_max) < 0).any():
                from whenabouts.core.arrays.value_order import sorted_values  # numba: imported when first needed

                rows = rows.take(pa.array(sorted_values(t_max).position))
            for start in range(0, rows.num_rows, ROWS_PER_BLOB):
                piece = rows.slice(start, ROWS_PER_BLOB)
                yield self._packed(bucket, kind, piece), int(times(piece)[1].min())
        for mark in self._latest(blocks):
            yield mark, NO_WATERMARK  # before all rows

    def ended(self) -> Iterator[Packed]:
        """One row per bucket: this input has ended. The hosting must be `flushed`."""
        return self._progress(END_OF_TIME, NO_WATERMARK, 0)

    def _reported(self, clock_us: int) -> Iterator[Packed]:
        """One row per bucket: the clock of this packer, if it has advanced."""
        if self._clock_us is not None and clock_us <= self._clock_us:
            return
        self._clock_us = clock_us
        for bucket in range(self._hosting.buckets):
            blob = report(self._number, self._packers, clock_us)
            yield Packed(bucket, clock_kind(self._input), 0, NO_WATERMARK, blob)

    @property
    def _lateness_us(self) -> int:
        return self._hosting.query.lateness_us[self._input]

    def _latest(self, blocks: Sequence[pa.RecordBatch]) -> Iterator[Packed]:
        """One row per bucket: the progress of this input in these blocks."""
        query = self._hosting.query
        t_max = [times(block)[1] for block in blocks if block.num_rows]
        if t_max and (self._operator.needs_latest or self._hosting.keeps_clocks):
            greatest = max(int(t.max()) for t in t_max)
            first = NO_WATERMARK
            if query.idle_after_us is not None:
                first = min(began(t, self._lateness_us) for t in t_max)
            yield from self._progress(greatest, first, greatest)

    def _progress(self, greatest_us: int, began_us: int, clock_us: int) -> Iterator[Packed]:
        """One row per bucket with the two instants of `_PROGRESS`."""
        kind, blob = progress_kind(self._input), _PROGRESS.pack(greatest_us, began_us)
        for bucket in range(self._hosting.buckets):
            yield Packed(bucket, kind, 0, clock_us, blob)

    def _placed(self, blocks: Sequence[pa.RecordBatch]) -> Iterator[tuple[int, int, pa.RecordBatch]]:
        if not any(block.num_rows for block in blocks):
            return
        for block in pa.Table.from_batches(blocks).combine_chunks().to_batches():
            for bucket, at, copied in self._operator.keys.partition(self._input, block, self._hosting.buckets):
                packer = self._number if self._decides else 0
                yield bucket, rows_kind(self._input, copies=copied, packer=packer), block.take(pa.array(at))

    def _packed(self, bucket: int, kind: int, rows: pa.RecordBatch) -> Packed:
        clock_us = int(times(rows)[1].max())
        schema = self._operator.readers[self._input].block_schema
        counted = 0 if content_of(kind)[0] is Content.COPIES else rows.num_rows
        return Packed(bucket, kind, counted, clock_us, encode(rows, schema))


def clock_of(packed: Iterable[Packed]) -> int | None:
    """The greatest `t_max` of a block, which the watermark of its input follows; None if no row of it can be used."""
    return max((row.clock_us for row in packed if has_rows(row.kind)), default=None)


@dataclass(slots=True)
class BucketInput:
    """The rows and messages that arrived for one bucket."""

    arrivals: list[Arrival] = field(default_factory=list)
    rejects: list[bytes] = field(default_factory=list)
    rows_in: int = 0
    rows_rejected: int = 0
    ended: bool = False
    noted: Counter[str] = field(default_factory=Counter)
    latest: dict[int, int] = field(default_factory=dict)
    began: dict[int, int] = field(default_factory=dict)

    @property
    def latest_us(self) -> int:
        """The greatest time of the inputs that have not ended."""
        return max((us for us in self.latest.values() if us != END_OF_TIME), default=NO_WATERMARK)

    def take(self, operator: Operator, packed: Iterable[tuple[int, int, bytes]]) -> None:
        """Sort `(kind, rows, blob)` by kind."""
        for kind, rows, blob in packed:
            self.rows_in += rows
            content, input = content_of(kind)
            match content:
                case Content.ROWS:
                    self.arrivals.append(Arrival(input, decode(blob, operator.readers[input].block_schema)))
                case Content.COPIES:
                    self.arrivals.append(Copied(input, decode(blob, operator.readers[input].block_schema)))
                case Content.PROGRESS:
                    self._advance(input, *_PROGRESS.unpack(blob))
                case Content.REJECTS:
                    self.rejects.append(blob)
                    self.rows_rejected += rows
                case Content.END:
                    self.ended = True
                case Content.PRESENT:
                    self.noted += read_counts([blob] if blob else [])

    def _advance(self, input: int, greatest_us: int, began_us: int) -> None:
        """The progress of an input; of blocks that arrive together the earliest start counts."""
        self.latest[input] = max(self.latest.get(input, NO_WATERMARK), greatest_us)
        if greatest_us != END_OF_TIME:
            self.began[input] = min(self.began.get(input, END_OF_TIME), began_us)


class Tagged(NamedTuple):
    """A row on its way out: `OUTPUT` and `REJECTED` rows as a segment, `COUNTS` as JSON."""

    tag: int
    blob: bytes


def output_rows(
    step: Step, arrived: BucketInput, operator: Operator, inputs: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """The output of a step alone, in the pieces and with the parameters of `tagged_rows`."""
    for batch in step.output:
        yield from _pieces(batch)


def tagged_rows(step: Step, arrived: BucketInput, operator: Operator, inputs: tuple[str, ...]) -> Iterator[Tagged]:
    """All results of a step, and the rows that the readers had rejected before it."""
    for batch in step.output:
        for piece in _pieces(batch):
            yield Tagged(OUTPUT, encode(piece, operator.output_schema))
    counts = Counter(step.metrics)
    counts.update(arrived.noted)
    counts.update(step.gauges)  # not a sum of counters, which drops negative counts
    for blob in arrived.rejects:
        yield Tagged(REJECTED, blob)
    raw = [reader.schema for reader in operator.readers]
    for blob in arrived.rejects:
        codes = decode(blob, rejects_schema(raw)).column("code")
        counts[metrics.rejected_by(codes[0].as_py())] += len(codes)
        counts[metrics.LATE] += len(codes) * (codes[0].as_py() == Code.LATE)
    for rejected in step.rejected:
        counts[metrics.rejected_by(rejected.code)] += rejected.rows.num_rows
        for piece in _pieces(reject_rows(rejected, raw, inputs)):
            yield Tagged(REJECTED, encode(piece))
    counts[metrics.ROWS_IN] += arrived.rows_in
    counts[metrics.REJECTED] += arrived.rows_rejected
    yield Tagged(COUNTS, json.dumps(dict(counts)).encode())


def read_counts(blobs: Iterable[bytes]) -> Counter[str]:
    """The sum of count blobs.

    >>> read_counts([b'{"rows_in": 2}', b'{"rows_in": 3}'])
    Counter({'rows_in': 5})
    """
    total: Counter[str] = Counter()
    for blob in blobs:
        total.update(json.loads(blob))
    return total


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    rows = max(1, BYTES_PER_BLOB * batch.num_rows // max(batch.nbytes, 1))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)

"""Finite input of one bucket, piece by piece, so that a bucket may be larger than memory.

A bucket that fits is one step. A larger one is read like a stream: its packed rows are in the order of their first
`t_max`, so that no later row is before the current piece, which gives the watermark. Rows that can have no partner any
more leave the state. Memory is then that of one piece and of the rows that are near it in time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeAlias, TypeVar

from whenabouts.core.hosting.batch_output import as_stream
from whenabouts.core.hosting.host import BucketInput, Hosting
from whenabouts.core.hosting.packed_kinds import has_rows
from whenabouts.core.runtime.protocol import NO_WATERMARK, FlushMode, Operator, Step
from whenabouts.core.state.memory_store import DictStore

BYTES_PER_PIECE = 128 << 20
"""Bytes of blobs that are read together; an operator needs about four times as much for them, and the output."""


class Timed(NamedTuple):
    """A packed row of the bucket: its least `t_max`, then `kind`, `rows` and `blob` of `hosting.host.Packed`."""

    first_us: int
    kind: int
    rows: int
    blob: bytes


Result = TypeVar("Result")
Results: TypeAlias = Callable[[Step, BucketInput, Operator, tuple[str, ...]], Iterator[Result]]
"""What is made of a step, what arrived for it, the operator, and the names of its inputs."""


def take_in(hosting: Hosting, whole: Operator, rows: Iterable[Timed], results: Results[Result]) -> Iterator[Result]:
    """The results of one bucket, with `rows` sorted by `first_us`; `whole` is the query's operator for finite input.

    `results`: what is made of each step, `host.tagged_rows` or `host.output_rows`. In pieces only if the query also
    runs as a stream (otherwise nothing says when a row may be dropped) with the same columns.
    """
    inputs, store = hosting.query.inputs, DictStore()
    streaming: Operator | None = None
    last: list[Timed] = []
    for piece in _pieces(rows):
        if last:
            streaming = streaming or as_stream(hosting.query, hosting.schemas, whole)
            if streaming is None:
                last += piece
                continue
            yield from results(*_step(streaming, whole, store, last, FlushMode.FLUSH), whole, inputs)
        last = piece
    yield from results(*_step(streaming or whole, whole, store, last, FlushMode.END), whole, inputs)


def _step(
    operator: Operator, whole: Operator, store: DictStore, rows: list[Timed], demand: FlushMode
) -> tuple[Step, BucketInput]:
    arrived = BucketInput()
    in_order = sorted(rows, key=lambda row: row.kind)  # the left input first, as everywhere on finite input
    arrived.take(operator, ((row.kind, row.rows, row.blob) for row in in_order))
    if operator is whole:
        step = operator.step(store, arrived.arrivals, NO_WATERMARK, demand, arrived.latest_us)
        return step, arrived
    watermark_us = min((row.first_us for row in rows if has_rows(row.kind)), default=NO_WATERMARK)
    step = operator.step(store, arrived.arrivals, watermark_us, demand, arrived.latest_us)
    output = [batch.select(whole.output_schema.names) for batch in step.output]  # without event_time
    return Step(output, step.rejected, metrics=step.metrics), arrived


def _pieces(rows: Iterable[Timed]) -> Iterator[list[Timed]]:
    piece: list[Timed] = []
    size = 0
    for row in rows:
        if piece and size + len(row.blob) > BYTES_PER_PIECE:
            yield piece
            piece, size = [], 0
        piece.append(row)
        size += len(row.blob)
    yield piece

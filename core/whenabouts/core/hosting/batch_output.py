"""The output of a query over finite inputs, batch by batch: memory follows a batch of the output, not all of it.

The inputs are read in the order of time, as a stream would bring them, and each step takes as many rows as are expected
to give about `ROWS` rows of output. Rows that can have no partner any more leave the state. A step whose output does
not fit into memory, because many rows follow few, is made in halves.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa

from whenabouts.core.arrays.threads import using
from whenabouts.core.errors import Code, QueryError, SingleBucketWarning
from whenabouts.core.hosting.time_order import Piece, TimeOrder
from whenabouts.core.runtime.changes import changes_column
from whenabouts.core.runtime.protocol import NO_WATERMARK, Arrival, FlushMode, Operator, Query, Step

ROWS = 1 << 19
"""Of output that a step should give, and that a batch has at most."""

_FIRST_STEP, _LEAST_STEP, _LARGEST_STEP = 1 << 10, 1 << 6, 1 << 19
_MOST_GROWTH = 4
"""A step takes at most so many times the rows of the one before: what they give may change from one to the next."""


class Host(Protocol):
    """What drives the operator: `read` counts rows and keeps rejects, `step` keeps everything but the output."""

    operator: Operator

    def read(self, input: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A raw batch as a block."""

    def give(self, arrivals: list[Arrival], watermark_us: int, demand: FlushMode) -> Step:
        """One step; one that raises an error changes nothing."""


def as_stream(query: Query, schemas: Sequence[pa.Schema], whole: Operator) -> Operator | None:
    """The operator that gives the rows of `whole`, the one for finite input, step by step; None if there is none:
    nothing says when a row may be dropped, or a stream gives other columns, or corrects the rows that it gave."""
    if changes_column(whole.output_schema) is not None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SingleBucketWarning)  # finite input is no stream
            operator = query.operator(schemas, streaming=True)
    except QueryError:
        return None
    return operator if set(whole.output_schema.names) <= set(operator.output_schema.names) else None


def output_batches(
    host: Host, inputs: Sequence[Sequence[Piece]], schema: pa.Schema, threads: int
) -> Iterator[pa.RecordBatch]:
    """Batches of at most `ROWS` rows, of the columns of `schema`."""
    order, rows = TimeOrder(inputs, host.read), _FIRST_STEP
    while order:
        arrivals, watermark_us = order.take(rows)
        given = 0
        for step in _steps(host, arrivals, watermark_us, FlushMode.FLUSH, threads):
            yield from cut(step.output, schema)
            given += sum(batch.num_rows for batch in step.output)
        rows = _next(rows, given)
    for step in _steps(host, [], NO_WATERMARK, FlushMode.END, threads):
        yield from cut(step.output, schema)


def _steps(host: Host, arrivals: list[Arrival], watermark_us: int, demand: FlushMode, threads: int) -> Iterator[Step]:
    """One step, or several of fewer rows if its output does not fit into memory. No row is before the watermark, so
    rows may be divided in any way."""
    try:
        with using(threads):
            step = host.give(arrivals, watermark_us, demand)
    except QueryError as error:
        if error.code is not Code.TOO_MUCH_OUTPUT or sum(arrival.block.num_rows for arrival in arrivals) < 2:
            raise
    else:
        yield step
        return
    for half in _halves(arrivals):
        yield from _steps(host, half, watermark_us, demand, threads)


def _halves(arrivals: Sequence[Arrival]) -> tuple[list[Arrival], list[Arrival]]:
    """The first and the last rows of each arrival."""
    first: list[Arrival] = []
    last: list[Arrival] = []
    for arrival in arrivals:
        rows = arrival.block.num_rows
        at = rows // 2 if rows > 1 or first else rows
        for half, block in ((first, arrival.block.slice(0, at)), (last, arrival.block.slice(at))):
            if block.num_rows:
                half.append(Arrival(arrival.input, block))
    return first, last


def _next(rows: int, given: int) -> int:
    """How many rows the next step takes, if `rows` gave so many.

    >>> [_next(1000, given) for given in (0, 1, ROWS // 2, ROWS, 100 * ROWS)]
    [4000, 4000, 2000, 1000, 64]
    """
    wanted = rows * ROWS // max(given, 1)
    return min(max(wanted, _LEAST_STEP), rows * _MOST_GROWTH, _LARGEST_STEP)


def cut(output: Sequence[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Output in batches of at most `ROWS` rows, of the columns of `schema`."""
    for batch in output:
        columns: Any = batch.select(schema.names)
        for start in range(0, columns.num_rows, ROWS):
            yield columns.slice(start, ROWS)

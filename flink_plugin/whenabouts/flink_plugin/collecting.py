"""Results in the client, by columns.

PyFlink's own ways (`Table.execute().collect()`, `DataStream.execute_and_collect()`) ask the JVM several questions for
every row, which takes about a millisecond and a half of CPU: most of the time of a job that reads some ten thousand
rows. An element here holds the rows of a step.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
from pyflink.common import Types
from pyflink.datastream import DataStream
from pyflink.table import Table

from whenabouts.core.errors import Code, QueryError
from whenabouts.core.state.segment_codec import decode, encode
from whenabouts.flink_plugin.blocks import BatchFunction, Blocks, Read, behind
from whenabouts.flink_plugin.row_streams import blocks_behind

PIECE_BYTES = 1 << 20
"""Flink's sink for results in the client refuses elements above 2 MiB, whatever its options are."""


def collect(result: Blocks | Table | DataStream) -> pa.Table:
    """Runs the job of a bounded stream to its end, with all sinks that it has, and gives the rows of `result`.

    `result`: Blocks, or the very Table or DataStream that a function of this package returned (QueryError WA-2006 for
    another). The rows are in no order, their columns as the query made them: microseconds, NaN and null as they were,
    `event_time` in microseconds too. They have to fit into memory.
    """
    blocks = result if isinstance(result, Blocks) else blocks_behind(result)
    if blocks is None:
        raise QueryError(
            Code.BAD_OPTION,
            "this stream did not come from whenabouts",
            "give the object that was returned; for a Table made from it, use to_pandas()",
        )
    blobs = blocks.stream.flat_map(_ToBlobs(blocks.schema, blocks.read), Types.PICKLED_BYTE_ARRAY())
    found = whole(behind(blobs, "collected", like=blocks.stream).execute_and_collect())
    batches = [decode(blob, blocks.schema) for blob in found]
    return pa.Table.from_batches(batches, blocks.schema)


def pieces(blob: bytes) -> Iterator[bytes]:
    """The pieces of a blob in order, each with a name that it shares with the others, and the number of those left."""
    name, starts = uuid.uuid4().bytes, range(0, max(1, len(blob)), PIECE_BYTES)
    for left, start in zip(reversed(range(len(starts))), starts, strict=True):
        yield name + left.to_bytes(4, "little") + blob[start : start + PIECE_BYTES]


def whole(found: Any) -> Iterator[bytes]:
    """The blobs whose pieces a job gives; those of one come in order, with others in between. Ends the job.

    >>> class Found(list):
    ...     def close(self):
    ...         print("closed")
    >>> blobs = [bytes(3 * PIECE_BYTES), b"", b"one"]
    >>> list(whole(Found(piece for blob in blobs for piece in pieces(blob)))) == blobs
    closed
    True
    """
    waiting: defaultdict[bytes, list[bytes]] = defaultdict(list)
    with closing(found):
        for piece in found:
            name, left = piece[:16], piece[16:20]
            waiting[name].append(piece[20:])
            if not any(left):
                yield b"".join(waiting.pop(name))


class _ToBlobs(BatchFunction):
    """Elements of a stream of blocks to the bytes of their record batches."""

    def __init__(self, schema: pa.Schema, read: Read) -> None:
        super().__init__(read)
        self._schema = schema

    def flat_map(self, value: Any) -> Iterator[bytes]:
        """The blobs of one element, in pieces."""
        for blob in self.results(value, lambda batch: encode(batch, self._schema)):
            yield from pieces(blob)

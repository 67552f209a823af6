"""Readers of Arrow that need a whole row in each block of bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import pyarrow as pa

_T = TypeVar("_T")

_BLOCK_BYTES = (1 << 20, 1 << 24, 1 << 28, (1 << 31) - 1)
_TOO_LONG = ("straddling", "Empty CSV file or block")
"""Parts of Arrow's messages for a row, or a header, that is longer than a block."""


def in_blocks(read: Callable[[int], _T]) -> _T:
    """Call a reader with a block size in bytes, which grows until every row fits into a block.

    >>> in_blocks(lambda block: block)
    1048576
    """
    for block in _BLOCK_BYTES:
        try:
            return read(block)
        except pa.ArrowInvalid as error:
            if not _longer_is_needed(error, block):
                raise
    raise AssertionError("the last block raises or returns")


def batches_in_blocks(read: Callable[[int], Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """As `in_blocks`, for a reader that gives batches. Where a longer block is needed, the file is read again, and the
    rows that have been given are skipped."""
    given = 0
    for block in _BLOCK_BYTES:
        read_before = 0
        try:
            for batch in read(block):
                new = batch.slice(min(max(given - read_before, 0), batch.num_rows))
                read_before += batch.num_rows
                if new.num_rows:
                    given += new.num_rows
                    yield new
            return
        except pa.ArrowInvalid as error:
            if not _longer_is_needed(error, block):
                raise


def _longer_is_needed(error: pa.ArrowInvalid, block: int) -> bool:
    return any(words in str(error) for words in _TOO_LONG) and block != _BLOCK_BYTES[-1]

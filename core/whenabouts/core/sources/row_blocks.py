"""Readers of Arrow that need a whole row in each block of bytes."""

from __future__ import annotations

from collections.abc import Callable
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
            if not any(words in str(error) for words in _TOO_LONG) or block == _BLOCK_BYTES[-1]:
                raise
    raise AssertionError("the last block raises or returns")

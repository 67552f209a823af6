"""The kind of a packed row: what the row carries, and of which input, as one number that every engine can transport.

Flink's checkpoints hold kinds, so their encoding must not change. Only this module knows it.
"""

from __future__ import annotations

from enum import Enum

REJECTS = -1
END = -2
PRESENT = -3
"""The kinds that name no input, see `Content`."""

_PROGRESS_OF_FIRST = -4
_COPIES_OF_FIRST = 1 << 16
_NEXT_PACKER = 1 << 17
_CLOCK_OF_FIRST = -(1 << 20)


class Content(Enum):
    """What a packed row carries."""

    ROWS = "rows of an input"
    COPIES = "rows of an input that another bucket counts"
    PROGRESS = "how far an input has come in all buckets: two instants"
    CLOCK = "the clock of one of an input's packers (`hosting.packer_clocks`)"
    REJECTS = "rows that the reader refused, in the rejects schema"
    END = "the message that all inputs have ended"
    PRESENT = "the reader's counts as JSON, or nothing, for hosts that have to be called"


_WITHOUT_INPUT = {REJECTS: Content.REJECTS, END: Content.END, PRESENT: Content.PRESENT}


def rows_kind(input: int, *, copies: bool = False, packer: int = 0) -> int:
    """The kind of rows of an input, with the number of their packer where that counts."""
    return input + _COPIES_OF_FIRST * copies + _NEXT_PACKER * packer


def packer_of(kind: int) -> int:
    """The number of the packer of rows.

    >>> packer_of(rows_kind(1, copies=True, packer=3)), packer_of(rows_kind(1))
    (3, 0)
    """
    return kind // _NEXT_PACKER


def clock_kind(input: int) -> int:
    """The kind of the clock of a packer of an input."""
    return _CLOCK_OF_FIRST - input


def progress_kind(input: int) -> int:
    """The kind of an input's progress."""
    return _PROGRESS_OF_FIRST - input


def content_of(kind: int) -> tuple[Content, int]:
    """What a row of this kind carries, and the input (0 if the kind names none).

    >>> content_of(rows_kind(1, copies=True)), content_of(progress_kind(2))[1], content_of(END)[0] is Content.END
    ((<Content.COPIES: 'rows of an input that another bucket counts'>, 1), 2, True)
    """
    if kind >= 0:
        copies, input = divmod(kind % _NEXT_PACKER, _COPIES_OF_FIRST)
        return Content.COPIES if copies else Content.ROWS, input
    if kind <= _CLOCK_OF_FIRST:
        return Content.CLOCK, _CLOCK_OF_FIRST - kind
    if kind <= _PROGRESS_OF_FIRST:
        return Content.PROGRESS, _PROGRESS_OF_FIRST - kind
    return _WITHOUT_INPUT[kind], 0


def has_rows(kind: int) -> bool:
    """Whether a row of this kind carries rows of an input, copies included."""
    return kind >= 0

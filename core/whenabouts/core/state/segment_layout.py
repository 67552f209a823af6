"""How a bucket's segments are laid out: the keys of the store, the rows of each kind, and the slots that segments span.

Event time is divided into slots. A segment spans a range of slots, and its key is the first one. The number of slots
follows the rows that arrive together: single rows are kept slot by slot, a micro-batch of an hour in a few segments,
because every segment costs its host a round trip. A directory segment lists them, so that a step never has to list the
store, and eviction needs no read. The keys of the store are (input, slot):

    (i, first slot)          rows of input i whose t_max is in the slots of the segment
    (MARKS - i, first slot)  marks of these rows, row by row: small, and rewritten when they change. Of an input in
                             `Layout.marked_later` only the segments that the directory lists have them
    (WAITING - i, number)    a block of input i that waits to be correlated
    (DIRECTORY, 0)           JSON: fingerprint, slot width, segments (end, rows, first open row), waiting blocks,
                             floors, how long rows are kept, rows numbered, segments that were marked later
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.runtime.protocol import END_OF_TIME
from whenabouts.core.state.segment_codec import fingerprint

DIRECTORY = -1
WAITING = -2
MARKS = -16
LEAST_SLOT_US = 250_000
"""The least width of a slot, however short the condition: a segment should hold many rows."""

SEGMENTS_PER_STEP = 4
"""About how many new segments of an input hold rows that arrive together: a segment is only dropped as a whole."""

SLOTS_PER_SPAN = 256
"""How fine slots are where segments grow: in a span, after which a segment takes no later rows."""

GROWING_BYTES, GROWING_PART = 1 << 18, 256
"""A segment grows up to so many bytes, or to this part of its input's rows if that is more: few enough that a step of
few rows rewrites little, enough that the directory stays short."""

NONE_OPEN = END_OF_TIME
"""The time of the first open row of a segment without open rows."""


@dataclass(frozen=True)
class Layout:
    """What an operator keeps.

    `schemas`: of the rows of every input; the operator's own inputs follow those of the query. `marks`: by input, the
    schema of the marks of its rows. `marked_later`: inputs whose rows come without marks; a segment has them once
    `SegmentedState.mark` gave them, null for rows that come afterwards. `axes`: by input, the column by which its rows
    are ordered, by default `T_MAX`. `opens`: by input, which rows (with marks) are open, that is, the operator has to
    emit something when they expire; other inputs have none. `needed`: by input, which rows (with marks) are still
    needed; of other inputs all are. `held_for`: by an operator's own input, the query's input whose rows it has.
    `template_lengths`: by input whose times have templates, if these may change, their lengths. `purpose`: further text
    that the state depends on.
    """

    schemas: Sequence[pa.Schema]
    marks: dict[int, pa.Schema] = field(default_factory=dict)
    axes: dict[int, str] = field(default_factory=dict)
    opens: dict[int, Callable[[pa.RecordBatch], BoolArray]] = field(default_factory=dict)
    purpose: str = ""
    needed: dict[int, Callable[[pa.RecordBatch], BoolArray]] = field(default_factory=dict)
    marked_later: frozenset[int] = frozenset()
    held_for: dict[int, int] = field(default_factory=dict)
    template_lengths: dict[int, tuple[int, ...]] = field(default_factory=dict)

    @cached_property
    def fingerprint(self) -> str:
        """What the directory says of the columns and the purpose, so that no other ones are read from it."""
        columns = [f"{f.name}:{f.type}" for schema in self.schemas for f in schema]
        return fingerprint(*columns, *filter(None, [self.purpose]))


def every_row(rows: pa.RecordBatch | pa.Table) -> BoolArray:
    """All rows are open: a value of `Layout.opens`."""
    return np.ones(rows.num_rows, bool)


class SegmentRows(NamedTuple):
    """Rows of one segment with their marks, and their indices in it."""

    input: int
    first: int
    at: IntArray
    rows: pa.RecordBatch


class Segment(NamedTuple):
    """Slots `[first, stop)` of an input, disjoint from its other segments; `open_us`: the time of its first open row.

    `size`: bytes of the rows, 0 if an earlier release wrote them. The directory holds the fields in this order.
    """

    first: int
    stop: int
    rows: int
    open_us: int = NONE_OPEN
    size: int = 0


def with_room(held: Sequence[Segment], span: int, more: int) -> list[Segment]:
    """Segments of an input in order, those that stay small with `more` rows with all the slots that they may grow over:
    up to the next segment, and at most `span` slots."""
    most = most_bytes(held)
    stops = [*(segment.first for segment in held[1:]), END_OF_TIME][: len(held)]
    return [
        segment._replace(stop=max(segment.stop, min(segment.first + span, before)))
        if segment.size * (segment.rows + more) <= most * segment.rows
        else segment
        for segment, before in zip(held, stops, strict=True)
    ]


def most_bytes(held: Sequence[Segment]) -> int:
    """How many bytes a segment of an input may grow to."""
    return max(GROWING_BYTES, sum(segment.size for segment in held) // GROWING_PART)


def segments_wanted(held: Sequence[Segment], slots: IntArray, size: int, span: int) -> int:
    """How many new segments rows of so many bytes go to: each is at most a quarter of what one may grow to, in bytes
    and in slots, since obsolete rows are freed with their segment."""
    if not len(slots):
        return 1
    return 1 + max(4 * size // most_bytes(held), 4 * int(slots.max() - slots.min()) // max(span, 1))


def segments_for(
    held: Sequence[Segment], slots: IntArray, at_most: int = SEGMENTS_PER_STEP
) -> Iterator[tuple[int, int, IntArray]]:
    """The segments that rows in these slots go to: (first slot, stop, row indices), of existing segments and new ones.

    `held`: the existing segments in order. `at_most`: about how many new ones. Rows between two segments stay between
    them, so segments never overlap.
    """
    if len(slots) and (not held or held[-1].first <= slots[0]) and bool((slots[1:] >= slots[:-1]).all()):
        inside = int(np.searchsorted(slots, held[-1].stop)) if held else 0
        if inside:
            yield held[-1].first, held[-1].stop, np.arange(inside)
        if inside < len(slots):
            yield from _after_all(slots, inside, at_most)
        return
    firsts = np.array([segment.first for segment in held], np.int64)
    stops = np.array([segment.stop for segment in held], np.int64)
    before = np.searchsorted(firsts, slots, side="right")  # how many segments begin at or before the slot
    inside = (before > 0) & (slots < np.append(stops, 0)[before - 1])
    for count in _distinct(before[inside]):
        yield held[count - 1].first, held[count - 1].stop, np.flatnonzero(inside & (before == count))
    outside = np.flatnonzero(~inside)
    if not len(outside):
        return
    low, high = int(slots[outside].min()), int(slots[outside].max())
    width = _width(low, high, at_most)
    new = (slots[outside] - low) // width * (len(held) + 1) + before[outside]
    for number in _distinct(new):
        at = outside[new == number]
        yield int(slots[at].min()), int(slots[at].max()) + 1, at


def _after_all(slots: IntArray, start: int, at_most: int) -> Iterator[tuple[int, int, IntArray]]:
    """New segments for rows with ascending slots from row `start` on, after all existing segments."""
    low, high = int(slots[start]), int(slots[-1])
    edges = np.searchsorted(slots, low + _width(low, high, at_most) * np.arange(at_most + 1)).tolist()
    for begin, end in pairwise([start, *edges[1:]]):
        if begin < end:
            yield int(slots[begin]), int(slots[end - 1]) + 1, np.arange(begin, end)


def _width(low: int, high: int, at_most: int) -> int:
    """How many slots each of the new segments from `low` to `high` spans."""
    return -(-(high - low + 1) // at_most)


def _distinct(numbers: IntArray) -> list[int]:
    """The distinct values of small numbers, ascending. O(numbers)."""
    found: list[int] = np.flatnonzero(np.bincount(numbers)).tolist()
    return found

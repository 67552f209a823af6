"""The rows of segments in the store, with their marks. A step reads each segment at most once.

Which segments there are, the directory of `state.segmented_state` says.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.record_batches import (
    one_batch,
    select_columns,
    table_of,
    with_columns_of,
    with_null_columns,
)
from whenabouts.core.errors import Code, EngineError
from whenabouts.core.runtime.blocks import T_MAX, T_MIN, TEMPLATE
from whenabouts.core.runtime.protocol import SegmentStore
from whenabouts.core.state.segment_codec import decode, encode
from whenabouts.core.state.segment_layout import MARKS, Layout, SegmentRows

Key = tuple[int, int]
"""A segment: its input and its first slot."""


class StoredSegments:
    """Reads and writes segments. Marks that `mark` replaced are written by `save`.

    `marked_later`: the directory's set of the segments of `Layout.marked_later` that have marks; it changes.
    """

    def __init__(self, store: SegmentStore, layout: Layout, marked_later: set[Key]) -> None:
        self._store, self._layout = store, layout
        self._schemas = tuple(layout.schemas)
        self._loaded: dict[Key, pa.RecordBatch] = {}
        self._unsaved: set[Key] = set()
        self.marked_later = marked_later

    @property
    def unsaved(self) -> list[Key]:
        """The segments with marks that were replaced and are not written yet."""
        return sorted(self._unsaved)

    def was_read(self, input: int, first: int) -> bool:
        """Whether this step has read or written the segment."""
        return (input, first) in self._loaded

    def read(self, input: int, first: int, *, keep: bool = True) -> pa.RecordBatch:
        """All rows of a segment, with their marks as further columns. `keep`: this step may need them again."""
        if (input, first) not in self._loaded:
            rows = self.decoded(input, present(self._store.get(input, first), input, first))
            if self._has_marks(input, first):
                data = present(self._store.get(MARKS - input, first), MARKS - input, first)
                rows = with_columns_of(rows, decode(data, self._layout.marks[input]))
            if not keep:
                return rows
            self._loaded[input, first] = rows
        return self._loaded[input, first]

    def decoded(self, input: int, data: bytes) -> pa.RecordBatch:
        """Stored rows of an input. Where their templates have other lengths now, they begin accordingly."""
        rows = decode(data, self._schemas[input])
        lengths = self._layout.template_lengths.get(input)
        if lengths is None:
            return rows
        t_max, template = (np.asarray(rows.column(name).to_numpy()) for name in (T_MAX, TEMPLATE))
        at = rows.schema.get_field_index(T_MIN)
        return rows.set_column(at, rows.schema.field(at), pa.array(t_max - np.asarray(lengths, np.int64)[template]))

    def write(self, input: int, first: int, rows: pa.RecordBatch) -> int:
        """Write a segment with its marks; returns the bytes of its rows."""
        schema = self._schemas[input]
        plain = rows if len(rows.schema) == len(schema) else select_columns(rows, range(len(schema)))
        data = encode(plain, schema)
        self._store.put(input, first, data)
        self._loaded[input, first] = rows
        if self._has_marks(input, first):
            self._put_marks(input, first)
        self._unsaved.discard((input, first))
        return len(data)

    def mark(self, held: SegmentRows, marks: pa.RecordBatch) -> None:
        """Replace the marks of some rows of a segment."""
        segment = held.input, held.first
        whole = self.read(*segment)
        source = np.arange(whole.num_rows)
        source[held.at] = whole.num_rows + np.arange(len(held.at))
        width = len(self._schemas[held.input])
        rows, schema = select_columns(whole, range(width)), self._layout.marks[held.input]
        old = with_null_columns(select_columns(whole, range(width, len(whole.schema))), schema, whole.num_rows)
        new = one_batch(table_of([old, marks], schema)).take(pa.array(source))
        self._loaded[segment] = with_columns_of(rows, new)
        self._unsaved.add(segment)
        if held.input in self._layout.marked_later:
            self.marked_later.add(segment)

    def forget_marks(self, input: int) -> bool:
        """Drop all marks of an input in `Layout.marked_later`; returns whether it had any."""
        marked = [segment for segment in self.marked_later if segment[0] == input]
        for segment in marked:
            self._store.delete(MARKS - input, segment[1])
            self.marked_later.discard(segment)
            self._unsaved.discard(segment)
            self._loaded.pop(segment, None)
        return bool(marked)

    def drop(self, input: int, first: int) -> None:
        """Delete a segment and its marks."""
        self._store.delete(input, first)
        if self._has_marks(input, first):
            self._store.delete(MARKS - input, first)
        self.marked_later.discard((input, first))
        self._loaded.pop((input, first), None)
        self._unsaved.discard((input, first))

    def save(self) -> None:
        """Write the marks that were replaced."""
        for input, first in self.unsaved:
            self._put_marks(input, first)

    def _has_marks(self, input: int, first: int) -> bool:
        later = input in self._layout.marked_later and (input, first) not in self.marked_later
        return input in self._layout.marks and not later

    def _put_marks(self, input: int, first: int) -> None:
        rows = self._loaded[input, first]
        marks = select_columns(rows, range(len(self._schemas[input]), len(rows.schema)))
        self._store.put(MARKS - input, first, encode(marks))


def present(data: bytes | None, input: int, slot: int) -> bytes:
    """What the store has under a key that the directory lists. Raises EngineError WA-3003 if there is nothing."""
    if data is None:
        raise EngineError(
            Code.STATE_FORMAT,
            f"the state lost segment ({input}, {slot})",
            "the checkpoint is damaged: start a new one",
        )
    return data

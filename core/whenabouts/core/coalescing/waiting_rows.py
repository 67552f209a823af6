"""Rows that the watermark has not passed, as they came, and settled ones that need not be kept in another form.

An index in memory has their order (`coalescing.early_index`), so that the state need not have it: a step appends the
rows that arrive as one block, and reads none back. A block is dropped once none of its rows is needed. Small blocks are
merged as they come, so that blocks are few; each row is written O(log rows) times.
"""

from __future__ import annotations

import json
from typing import NamedTuple

import pyarrow as pa

from whenabouts.core.arrays.record_batches import one_batch, table_of
from whenabouts.core.errors import Code, EngineError
from whenabouts.core.runtime.blocks import times
from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK, SegmentStore
from whenabouts.core.state.memory_store import StampedStore
from whenabouts.core.state.segment_codec import decode, encode, fingerprint, unwrap, wrap
from whenabouts.core.state.segment_layout import DIRECTORY, Layout
from whenabouts.core.state.segmented_state import SegmentedState

LEAST_BYTES = 1 << 12
"""Blocks up to this size are always merged."""
LEAST_ROWS = 256
"""Rows that are not needed are left out of their blocks once there are more of these than others, and than this."""
_PART = 64
"""Larger blocks are merged with an equally large one, up to this part of all."""


class _Block(NamedTuple):
    """The key of a block in the store, its rows, their least and greatest times, its bytes. The directory has these."""

    number: int
    rows: int
    first_us: int
    last_us: int
    size: int


class WaitingRows:
    """The rows of one bucket that wait, during one step. Reads its directory when created (one `get`).

    `layout`: of the rows, and of the segments in which earlier releases kept them, which are read once. Raises
    EngineError WA-3003 if the state has other columns.

    >>> from whenabouts.core.state.memory_store import DictStore
    >>> layout = Layout([pa.schema({"_wa_t_min": pa.int64(), "_wa_t_max": pa.int64()})])
    >>> store = DictStore(); waiting = WaitingRows(store, layout)
    >>> waiting.append(pa.table({"_wa_t_min": [3, 9, 5], "_wa_t_max": [3, 9, 5]}), 0); waiting.save() != ""
    True
    >>> waiting = WaitingRows(store, layout)
    >>> waiting.between(4, 9)["_wa_t_max"].to_pylist(), waiting.settle(10), waiting.rows_held
    ([9, 5], None, 0)
    """

    def __init__(self, store: SegmentStore, layout: Layout) -> None:
        self._store, self._schema = StampedStore(store), layout.schemas[0]
        columns = [f"{field.name}:{field.type}" for field in self._schema]
        self._fingerprint = fingerprint(*columns, "in order of arrival")
        self._blocks: list[_Block] = []
        self._rewritten, self._changed = 0, False
        self.since_us: int | None = None
        """Rows from this time on are needed; None: those that are not settled."""
        found = store.get(DIRECTORY, 0)
        saved = {} if found is None else json.loads(bytes(unwrap(found)))
        if "segments" in saved:
            segments = SegmentedState(self._store, layout, slot_us=1)
            self.append(pa.Table.from_batches(segments.take_before(0, END_OF_TIME), self._schema), NO_WATERMARK)
            self._changed = True
        elif saved:
            if saved["fingerprint"] != self._fingerprint:
                raise EngineError(
                    Code.STATE_FORMAT,
                    "the state was written for other columns or types",
                    "start from a new checkpoint, or restore the columns",
                )
            self._blocks = [_Block(*block) for block in saved["blocks"]]
            self._rewritten, self.since_us = saved["rewritten"], saved.get("since")

    @property
    def rows_held(self) -> int:
        """Rows in the store, with settled ones in blocks that are not dropped yet."""
        return sum(block.rows for block in self._blocks)

    @property
    def bytes_held(self) -> int:
        """Bytes of these rows."""
        return sum(block.size for block in self._blocks)

    def are_between(self, first_us: int, last_us: int) -> bool:
        """Whether all rows are at these times or between them."""
        return all(first_us <= block.first_us and block.last_us <= last_us for block in self._blocks)

    def rows_from(self, us: int) -> int:
        """Rows in blocks that have some at or after an instant."""
        return sum(block.rows for block in self._blocks if block.last_us >= us)

    def between(self, first_us: int, last_us: int) -> pa.Table:
        """The rows at these times and between them. O(rows of blocks that have some)."""
        meeting = [block for block in self._blocks if block.first_us <= last_us and first_us <= block.last_us]
        return table_of((_within(self._read(block), block, first_us, last_us) for block in meeting), self._schema)

    def append(self, rows: pa.Table, since_us: int) -> None:
        """Add rows; blocks that are merged lose their rows before `since_us`. O(rows) amortised."""
        if not rows.num_rows:
            return
        parts, size, most = [rows], rows.nbytes, self.bytes_held // _PART
        while self._blocks and self._blocks[-1].size <= max(LEAST_BYTES, min(size, most)):
            block = self._blocks.pop()
            parts.append(pa.Table.from_batches([_within(self._read(block), block, since_us, END_OF_TIME)]))
            self._store.delete(0, block.number)
            size += block.size
        self._put(self._blocks[-1].number + 1 if self._blocks else 0, pa.concat_tables(reversed(parts)))

    def settle(self, since_us: int, until_us: int | None = None) -> None:
        """Drop the blocks of which all rows are before an instant; and other such rows, if they are many: what is left
        of their blocks becomes one. `until_us`: all rows before it are settled, if it is another instant."""
        needed = None if until_us in (None, since_us) else since_us
        self._changed |= needed != self.since_us
        self.since_us, kept = needed, []
        for block in self._blocks:
            if block.last_us < since_us:
                self._store.delete(0, block.number)
            else:
                kept.append(block)
        self._changed |= len(kept) < len(self._blocks)
        self._blocks = kept
        self._rewritten = min(self._rewritten, self.rows_held)
        if self.rows_held <= 2 * self._rewritten + LEAST_ROWS:
            return
        partly = [block for block in kept if block.first_us < since_us]
        if partly:
            rest = table_of(
                (_within(self._read(block), block, since_us, END_OF_TIME) for block in partly), self._schema
            )
            for block in partly:
                self._store.delete(0, block.number)
            self._blocks = [block for block in kept if block.first_us >= since_us]
            self._put(partly[0].number, rest)
            self._blocks.sort()
        self._rewritten, self._changed = self.rows_held, True

    def save(self) -> str:
        """Write the directory; returns what identifies all that this step has written, empty if that is nothing."""
        if not self._changed:
            return ""
        saved = {"fingerprint": self._fingerprint, "blocks": self._blocks, "rewritten": self._rewritten}
        if self.since_us is not None:
            saved["since"] = self.since_us
        self._store.put(DIRECTORY, 0, wrap(json.dumps(saved).encode()))
        self._changed = False
        return self._store.stamp("")

    def _put(self, number: int, rows: pa.Table) -> None:
        batch = one_batch(rows)
        data, at = encode(batch, self._schema), times(batch)[1]
        self._store.put(0, number, data)
        self._blocks.append(_Block(number, batch.num_rows, int(at.min()), int(at.max()), len(data)))
        self._changed = True

    def _read(self, block: _Block) -> pa.RecordBatch:
        data = self._store.get(0, block.number)
        if data is None:
            raise EngineError(
                Code.STATE_FORMAT,
                f"the state lost block {block.number} of waiting rows",
                "the checkpoint is damaged: start a new one",
            )
        return decode(data, self._schema)


def _within(rows: pa.RecordBatch, block: _Block, first_us: int, last_us: int) -> pa.RecordBatch:
    if first_us <= block.first_us and block.last_us <= last_us:
        return rows
    at = times(rows)[1]
    return rows.filter(pa.array((at >= first_us) & (at <= last_us)))

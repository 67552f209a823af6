"""One bucket's state during one step: rows of every input by slot of event time, and rows that wait.

A directory segment says which slots exist and how many rows each holds, so that a step never has to list the store
and eviction needs no read. Layout, keys of the store being (input, slot):

    (i, slot)              rows of input i whose t_max lies in [slot * slot_us, (slot + 1) * slot_us)
    (WAITING - i, number)  a block of input i that waits to be correlated
    (DIRECTORY, 0)         JSON: version, fingerprint, slot width, rows by slot, waiting blocks, floors
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from whenabouts.core.errors import Code, EngineError
from whenabouts.core.events import T_MAX, times
from whenabouts.core.protocol import NO_WATERMARK, Arrival, SegmentStore
from whenabouts.core.segments import decode, encode, fingerprint, unwrap, wrap

DIRECTORY = -1
WAITING = -2


class SegmentedState:
    """Reads the directory when made (one `get`); `save` writes it back (one `put`) if anything changed.

    `slot_us` counts for a new bucket only: an existing one keeps the width that it was written with, so that query
    options may change over a restart. Raises EngineError WA-3003 if the state holds other columns.

    >>> from whenabouts.core.stores import DictStore
    >>> schema = pa.schema({"_wa_t_min": pa.int64(), "_wa_t_max": pa.int64()})
    >>> store = DictStore(); state = SegmentedState(store, [schema], slot_us=10)
    >>> state.append(0, pa.record_batch({"_wa_t_min": [3, 14], "_wa_t_max": [4, 25]})); state.save()
    >>> state = SegmentedState(store, [schema], slot_us=10)
    >>> [rows.column(1).to_pylist() for rows in state.load(0, 20, 29)], state.evict(0, before_us=10), state.rows_held
    ([[25]], 1, 1)
    """

    def __init__(self, store: SegmentStore, schemas: Sequence[pa.Schema], *, slot_us: int) -> None:
        self._store = store
        self._schemas = tuple(schemas)
        self._fingerprint = fingerprint(*(f"{f.name}:{f.type}" for schema in schemas for f in schema))
        self._changed = False
        self._slots: list[dict[int, int]] = [{} for _ in self._schemas]
        self._waiting: list[list[int]] = []
        self._floors = [NO_WATERMARK] * len(self._schemas)
        self.slot_us = slot_us
        self._read_directory()

    @property
    def rows_held(self) -> int:
        """Rows in slots (waiting rows not counted)."""
        return sum(sum(slots.values()) for slots in self._slots)

    @property
    def rows_waiting(self) -> int:
        """Rows that wait to be correlated."""
        return sum(rows for _, _, rows, _ in self._waiting)

    @property
    def first_waiting_us(self) -> int | None:
        """Least `t_max` of the rows that wait, None if none does."""
        return min((first for *_, first in self._waiting), default=None)

    def first_slot_end_us(self, input: int) -> int | None:
        """End (exclusive) of the input's earliest slot: what eviction must reach to free anything."""
        return min(((slot + 1) * self.slot_us for slot in self._slots[input]), default=None)

    def load(self, input: int, first_us: int, last_us: int) -> list[pa.RecordBatch]:
        """Rows of the slots that meet `[first_us, last_us]` of t_max, without rows already dropped, by slot."""
        loaded = []
        for slot in sorted(self._slots[input]):
            if (slot + 1) * self.slot_us > max(first_us, self._floors[input]) and slot * self.slot_us <= last_us:
                loaded.append(self._alive(input, self._segment(input, slot)))
        return [rows for rows in loaded if rows.num_rows]

    def append(self, input: int, block: pa.RecordBatch) -> None:
        """Add rows to their slots, after the rows that are there."""
        slots = times(block)[1] // self.slot_us
        for slot in np.unique(slots).tolist():
            rows = block.filter(pa.array(slots == slot))
            if slot in self._slots[input]:
                both = pa.Table.from_batches([self._segment(input, slot), rows]).combine_chunks()
                rows = both.to_batches()[0]
            self._store.put(input, slot, encode(rows))
            self._slots[input][slot] = rows.num_rows
            self._changed = True

    def replace(self, input: int, slot: int, rows: pa.RecordBatch) -> None:
        """Put these rows in place of a slot's; no rows drops the slot."""
        self._changed = True
        if rows.num_rows:
            self._store.put(input, slot, encode(rows))
            self._slots[input][slot] = rows.num_rows
        else:
            self._store.delete(input, slot)
            self._slots[input].pop(slot, None)

    def evict(self, input: int, before_us: int) -> int:
        """Drop rows with `t_max < before_us`; returns how many rows left the store.

        Whole segments are deleted unread. The rest of a slot is dropped logically at once (`load` hides it) and
        physically with its slot.
        """
        if before_us <= self._floors[input]:
            return 0
        self._floors[input] = before_us
        self._changed = True
        gone = [slot for slot in self._slots[input] if (slot + 1) * self.slot_us <= before_us]
        for slot in gone:
            self._store.delete(input, slot)
        return sum(self._slots[input].pop(slot) for slot in gone)

    def wait(self, input: int, block: pa.RecordBatch) -> None:
        """Keep a block, in arrival order, until `take_waiting`."""
        number = self._waiting[-1][1] + 1 if self._waiting else 0
        self._store.put(WAITING - input, number, encode(block))
        self._waiting.append([input, number, block.num_rows, int(times(block)[1].min())])
        self._changed = True

    def take_waiting(self) -> list[Arrival]:
        """The waiting blocks in arrival order; none waits afterwards."""
        taken = []
        for input, number, _, _ in self._waiting:
            data = self._store.get(WAITING - input, number)
            taken.append(Arrival(input, decode(_present(data, WAITING - input, number), self._schemas[input])))
            self._store.delete(WAITING - input, number)
            self._changed = True
        self._waiting = []
        return taken

    def save(self) -> None:
        """Write the directory back if this step changed anything."""
        if not self._changed:
            return
        directory = {
            "fingerprint": self._fingerprint,
            "slot_us": self.slot_us,
            "slots": [sorted(slots.items()) for slots in self._slots],
            "waiting": self._waiting,
            "floors": self._floors,
        }
        self._store.put(DIRECTORY, 0, wrap(json.dumps(directory).encode()))
        self._changed = False

    def _read_directory(self) -> None:
        data = self._store.get(DIRECTORY, 0)
        if data is None:
            return
        directory: dict[str, Any] = json.loads(bytes(unwrap(data)))
        if directory["fingerprint"] != self._fingerprint:
            raise EngineError(
                Code.STATE_FORMAT,
                "the state was written for inputs with other columns or types",
                "restart from a new checkpoint, or bring the columns back",
            )
        self.slot_us = directory["slot_us"]
        self._slots = [dict(map(tuple, slots)) for slots in directory["slots"]]
        self._waiting = directory["waiting"]
        self._floors = directory["floors"]

    def _segment(self, input: int, slot: int) -> pa.RecordBatch:
        return decode(_present(self._store.get(input, slot), input, slot), self._schemas[input])

    def _alive(self, input: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        alive = np.asarray(rows.column(T_MAX)) >= self._floors[input]
        return rows if alive.all() else rows.filter(pa.array(alive))


def _present(data: bytes | None, input: int, slot: int) -> bytes:
    if data is None:
        raise EngineError(
            Code.STATE_FORMAT,
            f"the state lost segment ({input}, {slot})",
            "the checkpoint is damaged: start a new one",
        )
    return data

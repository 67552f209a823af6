"""What a bucket's state holds besides rows: the directory, which says which segments there are. One entry of the store.

A step reads it first, and writes it last.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from whenabouts.core.errors import Code, EngineError
from whenabouts.core.runtime.protocol import NO_WATERMARK, SegmentStore
from whenabouts.core.state.segment_codec import unwrap, wrap
from whenabouts.core.state.segment_layout import DIRECTORY, Layout, Segment


@dataclass
class Directory:
    """The directory of one bucket during a step, which changes it.

    `segments`: by input and first slot. `waiting`: of each block that waits its input, number, rows and first `t_max`.
    `floors`: by input, the time before which rows have been dropped. `kept`: `SegmentedState.set_retention`, None where
    an earlier release did not say. `rows_numbered`, `progress_us`, `notes`: numbers of the operator. `marked_later`:
    the segments of `Layout.marked_later` that have marks. `lengths`: `SegmentedState.lengths`, None as for `kept`.
    """

    slot_us: int
    segments: list[dict[int, Segment]]
    waiting: list[list[int]]
    floors: list[int]
    kept: list[int] | None = None
    rows_numbered: int = 0
    progress_us: int = NO_WATERMARK
    notes: list[int] = field(default_factory=list)
    marked_later: set[tuple[int, int]] = field(default_factory=set)
    lengths: list[tuple[int, int]] | None = None

    @classmethod
    def empty(cls, layout: Layout, slot_us: int) -> Directory:
        """The directory of a new bucket."""
        inputs = len(layout.schemas)
        return cls(slot_us, [{} for _ in range(inputs)], [], [NO_WATERMARK] * inputs)

    @classmethod
    def read(cls, store: SegmentStore, layout: Layout) -> Directory | None:
        """The stored directory, None in a new bucket. One `get`. Raises EngineError WA-3003 for another layout."""
        found = _stored(store)
        if found is None:
            return None
        if found["fingerprint"] != layout.fingerprint:
            raise EngineError(
                Code.STATE_FORMAT,
                "the state was written for other columns, types, names of templates, another mode of the query, or "
                "other time slots",
                "start from a new checkpoint, or restore the columns, the template names and the mode; time slots "
                "follow from the condition, tolerance and max_uncertainty",
            )
        return cls(
            found["slot_us"],
            [{row[0]: Segment(*row) for row in segments} for segments in found["segments"]],
            found["waiting"],
            found["floors"],
            found.get("kept"),
            found.get("rows_numbered", 0),
            found.get("progress_us", NO_WATERMARK),
            found.get("notes", []),
            {(input, first) for input, first in found.get("marked_later", [])},
            [(least, most) for least, most in found["lengths"]] if "lengths" in found else None,
        )

    def write(self, store: SegmentStore, layout: Layout) -> None:
        """Store it. One `put`."""
        found = {
            "fingerprint": layout.fingerprint,
            "slot_us": self.slot_us,
            "segments": [sorted(segments.values()) for segments in self.segments],
            "waiting": self.waiting,
            "floors": self.floors,
            "kept": self.kept,
            "rows_numbered": self.rows_numbered,
            "progress_us": self.progress_us,
        }
        found |= {"notes": self.notes} if self.notes else {}
        found |= {} if self.lengths is None else {"lengths": self.lengths}
        found |= {"marked_later": sorted(self.marked_later)} if self.marked_later else {}
        store.put(DIRECTORY, 0, wrap(json.dumps(found).encode()))


def rows_in_state(store: SegmentStore, inputs: int, own: Collection[int] = ()) -> int:
    """Rows of an operator's first `inputs` inputs in a bucket's state, including waiting rows. One `get`.

    `own`: inputs of the operator's own that count, too (`Layout.held_for`).
    """
    directory = _stored(store)
    if directory is None:
        return 0
    segments = directory["segments"]
    held = sum(Segment(*row).rows for input in (*range(inputs), *own) for row in segments[input])
    return held + sum(int(rows) for _, _, rows, _ in directory["waiting"])


def notes_in_state(store: SegmentStore) -> list[int]:
    """The numbers that an operator keeps beside its rows, empty in a new bucket. One `get`."""
    notes: list[int] = (_stored(store) or {}).get("notes", [])
    return notes


def _stored(store: SegmentStore) -> dict[str, Any] | None:
    data = store.get(DIRECTORY, 0)
    return None if data is None else json.loads(bytes(unwrap(data)))

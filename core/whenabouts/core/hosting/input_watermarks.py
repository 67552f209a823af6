"""The progress of each input, kept in a bucket's own state: for hosts whose engine has a single watermark.

An engine's watermark is the minimum over its inputs, so that a silent or ended input holds it back for ever. If a query
says when an input is idle, or if inputs signal their own end, packers report the progress of each input to every
bucket, and a watermark is computed from the reports of earlier steps (`runtime.watermarks`). It is part of the state,
so that a replayed step has the same one, and so that it never goes back, though a restart may bring settings by which
it would: rows have been dropped by it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK, Query, SegmentStore
from whenabouts.core.runtime.watermarks import watermark_of, watermark_past_idle
from whenabouts.core.state.segment_codec import unwrap, wrap

CLOCKS = -(1 << 30)
"""The store's input number for these clocks, which no operator uses."""


class InputClocks:
    """The reports that a bucket's steps had of every input: its greatest `t_max`, and the start of its last block; and
    the greatest watermark of the steps.

    One `get` when made.
    """

    def __init__(self, store: SegmentStore, query: Query) -> None:
        self._store, self._query = store, query
        data = store.get(CLOCKS, 0)
        nothing = [NO_WATERMARK] * len(query.inputs)
        stored: list[Any] = [nothing, nothing] if data is None else json.loads(bytes(unwrap(data)))
        self._greatest: list[int] = stored[0]
        self._began: list[int] = stored[1]
        self._watermark_us: int = stored[2] if len(stored) > 2 else NO_WATERMARK  # older states have none

    @property
    def watermark_us(self) -> int:
        """The watermark, unless the engine's own is ahead of it. It never goes back."""
        lateness_us, idle_after_us = self._query.lateness_us, self._query.idle_after_us
        found = max(self._watermark_us, watermark_past_idle(self._began, lateness_us, idle_after_us))
        if max(self._greatest) < END_OF_TIME:  # the engine knows the minimum over all inputs
            return found
        return max(found, watermark_of(self._greatest, lateness_us))

    @property
    def ended(self) -> bool:
        """Whether all inputs have ended."""
        return min(self._greatest) == END_OF_TIME

    def take(self, greatest_us: Mapping[int, int], began_us: Mapping[int, int]) -> None:
        """Record this step's reports by input, and its watermark; one `put` if anything is new."""
        watermark_us = self.watermark_us
        greatest = [max(us, greatest_us.get(input, NO_WATERMARK)) for input, us in enumerate(self._greatest)]
        began = [max(us, began_us.get(input, NO_WATERMARK)) for input, us in enumerate(self._began)]
        if (greatest, began, watermark_us) != (self._greatest, self._began, self._watermark_us):
            self._greatest, self._began, self._watermark_us = greatest, began, watermark_us
            self._store.put(CLOCKS, 0, wrap(json.dumps([greatest, began, watermark_us]).encode()))

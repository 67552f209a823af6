"""How far each input has come, kept in a bucket's own state: for hosts whose engine has one watermark and no more.

An engine's watermark is the least over its inputs, so that a silent or ended input holds it back for ever. Where a
query says when an input is idle, or where inputs tell their own end, packers tell every bucket how far each input has
come, and the watermark in force follows from what earlier steps were told (`lateness.watermark_of`). It is part of the
state, so that a replayed step has the same one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from whenabouts.core.lateness import watermark_of
from whenabouts.core.protocol import END_OF_TIME, NO_WATERMARK, Query, SegmentStore
from whenabouts.core.segments import unwrap, wrap

CLOCKS = -(1 << 30)
"""The store's input under which they are kept: far from the book-keeping of any operator."""


class InputClocks:
    """The greatest `t_max` of every input that earlier steps of a bucket were told of. One `get` when made."""

    def __init__(self, store: SegmentStore, query: Query) -> None:
        self._store, self._query = store, query
        data = store.get(CLOCKS, 0)
        self._us: list[int] = [NO_WATERMARK] * len(query.inputs) if data is None else json.loads(bytes(unwrap(data)))

    @property
    def watermark_us(self) -> int:
        """The watermark in force."""
        return watermark_of(self._us, self._query.lateness_us, self._query.idle_after_us)

    @property
    def ended(self) -> bool:
        """Whether all inputs have."""
        return min(self._us) == END_OF_TIME

    def take(self, told_us: Mapping[int, int]) -> None:
        """What this step was told, by input; one `put` if it is news."""
        now = [max(us, told_us.get(input, NO_WATERMARK)) for input, us in enumerate(self._us)]
        if now != self._us:
            self._us = now
            self._store.put(CLOCKS, 0, wrap(json.dumps(now).encode()))

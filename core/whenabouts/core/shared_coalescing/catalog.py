"""What a shared operator stores about its queries: schemes, timers, and the segments of their own operators."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from whenabouts.core.coalescing.schedule import FIRST, Progress
from whenabouts.core.runtime.protocol import NO_WATERMARK, SegmentStore
from whenabouts.core.shared_coalescing.scheme_policy import Observed
from whenabouts.core.state.segment_codec import unwrap, wrap

EAGER, LAZY = "eager", "lazy"

FIRST_OWN = 2
PARTS = 4096
"""Parts of a shared operator's store: the catalog, the shared extent, and from `FIRST_OWN` on one for each query."""


@dataclass(slots=True)
class Entry:
    """One query. Checkpoints hold the fields under their names.

    `number`: its part of the store; `scheme`: the one in force; `definition`: identifies the query. `own`: the scheme
    under which its own operator has stored its state; None while it reads the shared extent, and in checkpoints of
    releases that did not write it. `timer_us`, `segments` and `rows`: when its own operator wants to be called, the
    segments of that operator, and their row count. `wish`: the scheme that the policy decided.

    Of a row-count window in the shared extent: `floor_us`, before which no row matters, and `counted`, the number of
    settled tuples if it slides by rows.
    """

    number: int
    scheme: str
    definition: str
    timer_us: int | None = None
    segments: list[list[int]] = field(default_factory=list)
    rows: int = 0
    wish: str | None = None
    own: str | None = None
    floor_us: int = FIRST
    counted: int = 0


@dataclass(slots=True)
class Catalog:
    """The catalog of one bucket.

    `covered_us`: the shared extent has every row from this time on. `shared`: whether the shared extent is in use.
    `trimmed`: the rows that it had when the floors of row-count windows were last computed. `observed`: what a policy
    decides from.
    """

    store: SegmentStore
    progress: Progress = field(default_factory=Progress)
    covered_us: int = NO_WATERMARK
    shared: bool = False
    trimmed: int = 0
    queries: dict[str, Entry] = field(default_factory=dict)
    observed: Observed = field(default_factory=Observed)

    @classmethod
    def read(cls, store: SegmentStore) -> Catalog:
        """The catalog as the last step saved it, or an empty one."""
        data = store.get(0, 0)
        if data is None:
            return cls(store)
        found = json.loads(bytes(unwrap(data)))
        queries = {name: Entry(**entry) for name, entry in found.pop("queries").items()}
        observed = Observed(**found.pop("observed", {}))  # older releases wrote none
        return cls(store, Progress(*found.pop("clock")), queries=queries, observed=observed, **found)

    def write(self) -> None:
        """Save it for the next step."""
        saved = {
            "clock": self.progress,
            "covered_us": self.covered_us,
            "shared": self.shared,
            "trimmed": self.trimmed,
            "queries": {name: asdict(entry) for name, entry in self.queries.items()},
            "observed": asdict(self.observed),
        }
        self.store.put(0, 0, wrap(json.dumps(saved).encode()))

    def add(self, name: str, scheme: str, definition: str, own: str | None) -> Entry:
        """Add a new query, in the first free part of the store."""
        taken = {entry.number for entry in self.queries.values()}
        free = next(number for number in range(FIRST_OWN, PARTS) if number not in taken)
        self.queries[name] = Entry(free, scheme, definition, own=own)
        return self.queries[name]


class TrackedStore:
    """A store that lists its segments, so that all of them can be deleted.

    >>> from whenabouts.core.state.memory_store import DictStore
    >>> whole, segments = DictStore(), []
    >>> TrackedStore(whole, segments).put(0, 7, b"rows"); segments
    [[0, 7]]
    >>> TrackedStore(whole, segments).clear(); whole.bytes_held, segments
    (0, [])
    """

    def __init__(self, store: SegmentStore, segments: list[list[int]]) -> None:
        self._store, self._segments = store, segments

    def get(self, input: int, slot: int) -> bytes | None:
        """The segment's bytes, or None."""
        return self._store.get(input, slot)

    def put(self, input: int, slot: int, data: bytes) -> None:
        """Create or replace the segment."""
        if [input, slot] not in self._segments:
            self._segments.append([input, slot])
        self._store.put(input, slot, data)

    def delete(self, input: int, slot: int) -> None:
        """Drop the segment if it is there."""
        if [input, slot] in self._segments:
            self._segments.remove([input, slot])
        self._store.delete(input, slot)

    def clear(self) -> None:
        """Drop all segments."""
        for input, slot in list(self._segments):
            self.delete(input, slot)

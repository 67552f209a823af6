"""The one contract between operators and the engines that host them.

A *query* (frozen, validated, serialisable) builds an *operator*: a deterministic state machine without wall clock,
randomness or I/O. A host - a Spark or Flink adapter, or the local engine - does the same for every operator:

1. reads raw batches with `operator.readers[i]` into blocks, and rows that cannot be used into rejects;
2. sends the rows of each block to buckets, `operator.keys.places(input, block, n)`, as `Arrival` or, where a place is
   marked so, as `Copied`;
3. per bucket calls `step` with the blocks that arrived, the watermark in force when they entered, and a `SegmentStore`
   that holds that bucket's state;
4. emits `output` and `rejected`, and calls `step` again, without blocks, once the watermark reaches `timer_us`;
5. tells a bucket how far time has come in the others, where the operator `needs_latest`.

What arrives together may be one step or several, of rows or of news alone, and a bucket's timer may be a step of its
own: an operator gives the same for all of them.

A host knows nothing else of an operator. If a new kind of operator needs a new branch in a host, this file is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from whenabouts.core.errors import Code

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from whenabouts.core.runtime.time_slots import Place, Slots
    from whenabouts.core.times.time_specs import TimeSpec
    from whenabouts.core.times.time_units import DoubtfulTimes

NO_WATERMARK = -(2**63)
"""Nothing is known of the future: no row is late, nothing can be dropped."""

END_OF_TIME = 2**63 - 1
"""The watermark when the input has ended."""


class SegmentStore(Protocol):
    """State of one bucket, held by the host: bytes by (input, slot), where a slot is a stretch of event time.

    An operator reads and writes only the segments that a step touches. Negative inputs are the operator's own
    book-keeping; to a host they are keys like any other.
    """

    def get(self, input: int, slot: int) -> bytes | None:
        """The segment's bytes, or None where there is none."""

    def put(self, input: int, slot: int, data: bytes) -> None:
        """Create or replace the segment."""

    def delete(self, input: int, slot: int) -> None:
        """Drop the segment; dropping one that does not exist does nothing."""


class FlushMode(Enum):
    """What the host wants of a step besides taking in the blocks."""

    NOTHING = "nothing"
    """Rows may wait until a block is full or their time is up (the lazy strategies)."""
    FLUSH = "flush"
    """Nothing may wait: the host's own batch is the block (a Spark micro-batch)."""
    END = "end"
    """The input has ended: final results come out and no state is written."""


class Arrival(NamedTuple):
    """A block of one input: an Arrow record batch in `Reader.block_schema`, rows in arrival order."""

    input: int
    block: pa.RecordBatch


class Copied(Arrival):
    """An arrival whose rows are accounted for in another bucket: they are not counted here, nor rejected if late."""

    __slots__ = ()


class Rejected(NamedTuple):
    """Rows of one input that were not processed, and why; `rows` has the input's original columns."""

    input: int
    code: Code
    rows: pa.RecordBatch


@dataclass(slots=True)
class Step:
    """What a step gives back: output in the operator's `output_schema`, rejects, and the next call it wants.

    `timer_us`: the least watermark at which the operator has work to do without new rows, None if there is none.
    `rows_waiting`: rows taken in that no work has been done on (a host with a clock may ask for it: `FlushMode.FLUSH`).
    `metrics`: additive counts of this step (names in `metrics.py`). `gauges`: what the bucket holds after it.
    """

    output: list[pa.RecordBatch] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    timer_us: int | None = None
    rows_waiting: int = 0
    metrics: Counter[str] = field(default_factory=Counter)
    gauges: dict[str, int] = field(default_factory=dict)


class Events(NamedTuple):
    """What a raw batch became: rows in = block rows + rejected rows."""

    block: pa.RecordBatch
    rejected: list[Rejected]


class Reader(Protocol):
    """Turns raw batches of one input into blocks and rejects (`event_reader.EventReader`)."""

    @property
    def input(self) -> int:
        """The number of the input."""

    @property
    def name(self) -> str:
        """The name of the input."""

    @property
    def time(self) -> TimeSpec:
        """How its rows say when they happened."""

    @property
    def schema(self) -> pa.Schema:
        """The user's columns."""

    @property
    def block_schema(self) -> pa.Schema:
        """The columns of a block: times in microseconds, then the user's columns."""

    @property
    def units(self) -> DoubtfulTimes:
        """Integer times that look as if they were in another unit than microseconds."""

    def read(self, rows: pa.RecordBatch) -> Events:
        """Split a raw batch into a block and rejects with their codes."""

    def ends(self, rows: pa.RecordBatch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """`t_min` and `t_max` of a raw batch in microseconds; only those that `read` does not reject mean anything."""

    def raw(self, block: pa.RecordBatch) -> pa.RecordBatch:
        """The user's columns of a block."""


class Placement(Protocol):
    """Which bucket each row belongs to (`keys.Keys`)."""

    def of(self, input: int) -> tuple[str, ...]:
        """The key columns of an input."""

    @property
    def slots(self) -> Slots | None:
        """How the rows of a key are spread over buckets; None: they are not."""

    def places(self, input: int, block: pa.RecordBatch, n: int) -> list[Place]:
        """Where the rows of a block of an input belong, of `n` buckets."""


class Operator(Protocol):
    """A deterministic state machine over blocks; see the module's text for how a host drives it."""

    @property
    def readers(self) -> tuple[Reader, ...]:
        """One per input: raw batches to blocks and rejects."""

    @property
    def keys(self) -> Placement:
        """The key columns: where a row's bucket comes from."""

    @property
    def output_schema(self) -> pa.Schema:
        """Schema of every output batch."""

    @property
    def event_time(self) -> str | None:
        """The output column that carries event time, where there is one (on streams).

        No value in it may be below the watermark of its step: an engine drops such a row further down the plan. What
        comes out only once the watermark has passed it has no event time to offer.
        """

    @property
    def needs_latest(self) -> bool:
        """Whether what comes out at the end hangs on how far time has come in other buckets too.

        If so, the host tells every bucket `latest_us`, and calls `step` with `FlushMode.END` for each.
        """

    def step(
        self,
        store: SegmentStore,
        arrivals: Sequence[Arrival],
        watermark_us: int,
        demand: FlushMode = FlushMode.NOTHING,
        latest_us: int = NO_WATERMARK,
    ) -> Step:
        """Take in `arrivals` under `watermark_us`: no row that is not late has `t_max` below it, now or later.

        `latest_us`: the greatest `t_max` in any bucket that the host knows of in this step, where the operator
        `needs_latest`; what it was told before, it remembers itself.

        A row with `t_max < watermark_us` is late and rejected (WA-1010). The watermark never goes back between the
        calls for one store: where an engine forgets it over a restart, its host keeps it with the store. Equal calls
        on equal stores give equal results: a host may replay a step.
        """

    def rows_held(self, store: SegmentStore) -> int:
        """Rows of all inputs in a bucket's state, those included that wait (what a bound on the state looks at)."""


class Query(Protocol):
    """What a user registers: immutable, validated when made, and without any engine in it."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs, in order: what rejects and errors call them."""

    @property
    def lateness_us(self) -> tuple[int, ...]:
        """Per input, how far behind its greatest `t_max` the watermark follows; 0 where nobody has said."""

    @property
    def says_lateness(self) -> bool:
        """Whether the query says how late rows may come, be it not at all: a host may refuse a stream without."""

    @property
    def idle_after_us(self) -> int | None:
        """How far an input may be behind the most advanced one and still hold the watermark back; None: however far."""

    @property
    def described(self) -> str:
        """The query in one line, for an engine's plans and screens: its kind, its keys, and its conditions."""

    def operator(self, schemas: Sequence[pa.Schema], *, streaming: bool) -> Operator:
        """The operator for inputs of these schemas. Raises InputError or QueryError for what cannot work."""

"""The contract between operators and the engines that host them.

A *query* (frozen, validated, serialisable) builds an *operator*: a deterministic state machine without wall clock,
randomness or I/O. A host (a Spark or Flink adapter, or the local engine) does the same for every operator:

1. reads raw batches with `operator.readers[i]` into blocks, and unusable rows into rejects;
2. partitions each block over buckets (`operator.keys.partition(input, block, n)`), as `Arrival`, or as `Copied` where
   `BucketRows.copied` is set;
3. calls `step` for each bucket with the blocks that arrived, the watermark that was in force when they entered, and a
   `SegmentStore` with the bucket's state;
4. emits `output` and `rejected`, and calls `step` again, without blocks, once the watermark reaches `timer_us`;
5. if the operator `needs_latest`, passes each bucket the progress of the other buckets.

A host may split what arrives together into several steps, and may call a bucket's timer as a step of its own: the
operator's results are the same.

A host knows nothing else of an operator. If a new kind of operator needs a new branch in a host, this file is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from whenabouts.core.errors import Code
from whenabouts.core.times.limits import ALWAYS_US, NEVER_US

if TYPE_CHECKING:
    import pyarrow as pa

    from whenabouts.core.arrays.typing import IntArray
    from whenabouts.core.runtime.time_slots import BucketRows, Slots
    from whenabouts.core.times.time_specs import TimeSpec
    from whenabouts.core.times.time_units import DoubtfulTimes

NO_WATERMARK = NEVER_US
"""No watermark yet: no row is late, nothing can be evicted."""

END_OF_TIME = ALWAYS_US
"""The watermark when the input has ended."""


class SegmentStore(Protocol):
    """The state of one bucket, held by the host: bytes by (input, slot), where a slot is an interval of event time.

    An operator reads and writes only the segments that a step touches. Negative inputs are the operator's own metadata;
    hosts treat them like any other key.
    """

    def get(self, input: int, slot: int) -> bytes | None:
        """The segment's bytes, or None if it does not exist."""

    def put(self, input: int, slot: int, data: bytes) -> None:
        """Create or replace the segment."""

    def delete(self, input: int, slot: int) -> None:
        """Delete the segment, if it exists."""


class FlushMode(Enum):
    """What a step must emit."""

    NOTHING = "nothing"
    """Rows may wait until a block is full or their time is up (the lazy strategies)."""
    FLUSH = "flush"
    """No row may wait: its time by the host's clock is up, or the host's batch is all that the operator gets."""
    BATCH = "batch"
    """The host's own batch (a Spark micro-batch) is a block: rows wait beyond it only if the query says how many or how
    long."""
    END = "end"
    """The input has ended: all final results are emitted, and no state is written."""


class Arrival(NamedTuple):
    """A block of one input: an Arrow record batch in `Reader.block_schema`, rows in arrival order."""

    input: int
    block: pa.RecordBatch


class Copied(Arrival):
    """An arrival whose rows are counted in another bucket: here they are neither counted nor rejected if late."""

    __slots__ = ()


class Rejected(NamedTuple):
    """Rows of one input that were not processed, and why; `rows` has the input's original columns."""

    input: int
    code: Code
    rows: pa.RecordBatch


@dataclass(slots=True)
class Step:
    """The result of a step: output in the operator's `output_schema`, rejects, and the next timer.

    `timer_us`: the least watermark at which the operator has work to do without new rows, None if there is none.
    `rows_waiting`: rows that wait to be processed (a host with a clock may flush them: `FlushMode.FLUSH`). `metrics`:
    additive counts of this step (names in `metrics.py`). `gauges`: the size of the bucket's state after it.
    """

    output: list[pa.RecordBatch] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    timer_us: int | None = None
    rows_waiting: int = 0
    metrics: Counter[str] = field(default_factory=Counter)
    gauges: dict[str, int] = field(default_factory=dict)


class Events(NamedTuple):
    """A raw batch after reading: rows in = block rows + rejected rows."""

    block: pa.RecordBatch
    rejected: list[Rejected]


class Reader(Protocol):
    """Turns raw batches of one input into blocks and rejects (`event_reader.EventReader`)."""

    @property
    def input(self) -> int:
        """The input's number."""

    @property
    def name(self) -> str:
        """The input's name."""

    @property
    def time(self) -> TimeSpec:
        """The time specification of its rows."""

    @property
    def schema(self) -> pa.Schema:
        """The user's columns."""

    @property
    def block_schema(self) -> pa.Schema:
        """The columns of a block: times in microseconds, then the user's columns."""

    @property
    def units(self) -> DoubtfulTimes:
        """Integer times that look like another unit than microseconds."""

    def read(self, rows: pa.RecordBatch) -> Events:
        """Split a raw batch into a block and rejects with their codes."""

    @property
    def time_columns(self) -> tuple[str, ...]:
        """The columns of a raw batch that `ends` reads."""

    def ends(self, rows: pa.RecordBatch) -> tuple[IntArray, IntArray]:
        """`t_min` and `t_max` of a raw batch in microseconds, meaningful only for rows that `read` accepts. The batch
        may have the `time_columns` alone."""

    def raw(self, block: pa.RecordBatch) -> pa.RecordBatch:
        """The user's columns of a block."""


class Partitioner(Protocol):
    """Assigns rows to buckets (`keys.Keys`)."""

    def of(self, input: int) -> tuple[str, ...]:
        """The key columns of an input."""

    @property
    def slots(self) -> Slots | None:
        """How the rows of a key are spread over buckets; None if they are not."""

    def partition(self, input: int, block: pa.RecordBatch, n: int) -> list[BucketRows]:
        """Partition a block of an input over `n` buckets."""


class Operator(Protocol):
    """A deterministic state machine over blocks; the module's docstring describes how a host drives it."""

    @property
    def readers(self) -> tuple[Reader, ...]:
        """One per input: raw batches to blocks and rejects."""

    @property
    def keys(self) -> Partitioner:
        """The key columns, which determine a row's bucket."""

    @property
    def output_schema(self) -> pa.Schema:
        """The schema of every output batch."""

    @property
    def event_time(self) -> str | None:
        """The output column that carries event time on streams, None if there is none.

        No value in it may be below the watermark of its step, because the engine's later operators would drop such a
        row. Rows that are emitted only after the watermark has passed them have no event time in this sense.
        """

    @property
    def needs_latest(self) -> bool:
        """Whether the final output depends on other buckets' progress.

        If so, the host passes `latest_us` to every bucket, and calls `step` with `FlushMode.END` for each.
        """

    def step(
        self,
        store: SegmentStore,
        arrivals: Sequence[Arrival],
        watermark_us: int,
        demand: FlushMode = FlushMode.NOTHING,
        latest_us: int = NO_WATERMARK,
    ) -> Step:
        """Process `arrivals` at the watermark `watermark_us`; a row with a lesser `t_max` is late: rejected (WA-1010).

        `latest_us`: if the operator `needs_latest`, the greatest `t_max` in any bucket that the host knows of in this
        step; the operator stores earlier values itself.

        The watermark must not decrease between the calls for one store: if an engine loses it over a restart, its host
        keeps it with the store. Equal calls on equal stores give equal results, so a host may replay a step.
        """

    def rows_held(self, store: SegmentStore) -> int:
        """The rows of all inputs in a bucket's state, waiting ones included, for a limit on state."""


class Query(Protocol):
    """What a user registers: immutable, validated when built, and independent of any engine."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs, in order, as rejects and errors use them."""

    @property
    def lateness_us(self) -> tuple[int, ...]:
        """Per input, how far the watermark is behind its greatest `t_max`; 0 if not given."""

    @property
    def says_lateness(self) -> bool:
        """Whether lateness was given, even as 0: a host may refuse a stream without it."""

    @property
    def idle_after_us(self) -> int | None:
        """How far behind the most advanced input an idle one is, in microseconds; None: no input is ever idle."""

    @property
    def described(self) -> str:
        """The query in one line, for an engine's plans and user interface: its kind, keys and conditions."""

    def operator(self, schemas: Sequence[pa.Schema], *, streaming: bool) -> Operator:
        """The operator for inputs with these schemas. Raises InputError or QueryError if they do not fit the query."""

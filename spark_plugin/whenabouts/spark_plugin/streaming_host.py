"""Hosts an operator in a Spark stream: its segments in a MapState, its timer in Spark's, one group per bucket.

Spark's watermark is in milliseconds and inclusive: rows at the watermark itself are late to it. It is 0 both before any
data and while times lie before 1970, so to the operator 0 means that nothing is known yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from whenabouts.core.errors import Code, EngineError
from whenabouts.core.hosting.host import BucketInput, Hosting, tagged_rows
from whenabouts.core.runtime.protocol import NO_WATERMARK, FlushMode, Step
from whenabouts.spark_plugin.bucket_labels import CONTROL
from whenabouts.spark_plugin.packing import ARRIVED
from whenabouts.spark_plugin.tagged_rows import BLOB, TAG
from whenabouts.spark_plugin.workers import begin_task, code_first

if TYPE_CHECKING:
    import pandas as pd

SEGMENT_KEY = StructType([StructField("input", IntegerType()), StructField("slot", LongType())])
SEGMENT = StructType([StructField("data", BinaryType())])
BOOK = StructType([StructField(name, LongType()) for name in ("layout", "buckets", "timer_ms")])
"""What the host itself remembers of a bucket: how it keeps state, into how many buckets the keys were split, and the
timer that is set."""

LAYOUT = 2
"""Version of the host's own state: labels of buckets, names and types of its state variables. 1 was never released."""

IDENTITY = "identity"
IDENTITY_SCHEMA = StructType([StructField("text", StringType())])
"""`core.hosting.query_identity`, noted once by the control group: `checkpoints` reads it before a restart."""

NO_TIMER = -1


class MapStateStore:
    """`SegmentStore` over Spark's MapState. Every call is a round trip to the JVM."""

    def __init__(self, state: Any) -> None:  # Any: pyspark does not export MapState's type
        self._state = state

    def get(self, input: int, slot: int) -> bytes | None:
        """The segment's bytes, or None."""
        row = self._state.getValue((input, slot))
        return None if row is None else bytes(row[0])

    def put(self, input: int, slot: int, data: bytes) -> None:
        """Create or replace the segment."""
        self._state.updateValue((input, slot), (data,))

    def delete(self, input: int, slot: int) -> None:
        """Drop the segment if it is there."""
        self._state.removeKey((input, slot))

    def clear(self) -> None:
        """Drop all segments of the bucket."""
        self._state.clear()


@dataclass(frozen=True, slots=True)
class EngineWatermark:
    """The watermark of a micro-batch."""

    ms: int

    @property
    def us(self) -> int:
        """The operator's watermark, exclusive and in microseconds; `NO_WATERMARK` where Spark knows nothing yet.

        `delay_ms` puts Spark's watermark one millisecond back, so that this one is true: a row that is not late lies
        after Spark's watermark, and so does everything computed from it (or Spark would drop it further down).
        """
        return (self.ms + 1) * 1000 if self.ms > 0 else NO_WATERMARK

    def timer_ms(self, timer_us: int | None) -> int:
        """The Spark timer for the least watermark `timer_us`; what is due already comes with the next one.

        Spark fires a timer once its watermark is past it: `ms > timer` is `(ms + 1) * 1000 >= (timer + 2) * 1000`.
        """
        if timer_us is None:
            return NO_TIMER
        return max(-(-timer_us // 1000) - 2, self.ms, 0)


def delay_ms(lateness_us: int) -> int:
    """What `withWatermark` gets for a lateness: rounded up, as Spark rounds times down, and one more (see
    `EngineWatermark`).

    >>> delay_ms(0), delay_ms(1_500), delay_ms(2_000)
    (1, 3, 3)
    """
    return -(-lateness_us // 1000) + 1


class BucketProcessor(StatefulProcessor):
    """Runs one bucket's operator in `transformWithStateInPandas`; knows no kind of operator."""

    def __init__(self, hosting: Hosting) -> None:
        self._hosting = hosting

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called by Spark before anything else, in every task and once in the driver."""
        begin_task()
        self._handle = handle
        self._store = MapStateStore(handle.getMapState("segments", SEGMENT_KEY, SEGMENT))
        self._book = handle.getValueState("host", BOOK)
        self._identity = handle.getValueState(IDENTITY, IDENTITY_SCHEMA)
        self._operator = self._hosting.operator()

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802  # Spark's
        """A micro-batch's blobs of one bucket."""
        with code_first():
            arrived = BucketInput()
            for frame in rows:
                columns = (frame[name].tolist() for name in ARRIVED)
                arrived.take(self._operator, zip(*columns, strict=True))
            if key[0] == CONTROL:
                return self._control(arrived)
            return self._step(arrived, EngineWatermark(timerValues.getCurrentWatermarkInMs()))

    def handleExpiredTimer(  # noqa: N802  # Spark's name; it calls by keyword
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[pd.DataFrame]:
        """The bucket's timer: the operator has work to do without new rows."""
        with code_first():
            clock = EngineWatermark(timerValues.getCurrentWatermarkInMs())
            return self._step(BucketInput(), clock, expired_ms=expiredTimerInfo.getExpiryTimeInMs())

    def close(self) -> None:
        """Nothing to close."""

    def _control(self, arrived: BucketInput) -> Iterator[pd.DataFrame]:
        """The group that every micro-batch has: the checkpoint is judged before any bucket's work is committed."""
        if self._timer_set() is None:
            self._note_timer(NO_TIMER)
            self._identity.update((self._hosting.identity.to_json(),))
        return self._out(Step(), arrived)

    def _step(
        self, arrived: BucketInput, clock: EngineWatermark, expired_ms: int | None = None
    ) -> Iterator[pd.DataFrame]:
        timer_ms = self._timer_set()
        step = self._hosting.step(self._operator, self._store, arrived, clock.us, FlushMode.FLUSH)
        if arrived.ended:
            self._store.clear()
        self._set_timer(timer_ms, clock.timer_ms(step.timer_us), expired_ms)
        return self._out(step, arrived)

    def _out(self, step: Step, arrived: BucketInput) -> Iterator[pd.DataFrame]:
        import pandas as pd  # takes a CPU-second: not in the driver, where each start of a query makes a processor

        for tag, blob in tagged_rows(step, arrived, self._operator, self._hosting.query.inputs):
            yield pd.DataFrame({TAG: [tag], BLOB: [blob]})

    def _timer_set(self) -> int | None:
        """The timer that is set; None for a new bucket. Refuses state that was written for other buckets."""
        book = self._book.get()
        if book is None:
            return None
        layout, buckets, timer_ms = book
        if layout != LAYOUT:
            raise EngineError(
                Code.STATE_FORMAT,
                f"the checkpoint's layout is version {layout}, this release knows {LAYOUT}",
                "restart with the release that wrote it, or from a new checkpoint",
            )
        if buckets != self._hosting.buckets:
            raise EngineError(
                Code.STATE_FORMAT,
                f"the checkpoint holds {buckets} buckets of keys, the query asks for {self._hosting.buckets}",
                f"give buckets={buckets}, or start from a new checkpoint",
            )
        return int(timer_ms)

    def _set_timer(self, old_ms: int | None, new_ms: int, expired_ms: int | None) -> None:
        """One timer per bucket. Spark drops the expired one itself, but after this call: it must not be set again."""
        if new_ms == expired_ms:
            new_ms += 1
        if new_ms == old_ms:
            return
        if old_ms is not None and old_ms not in (NO_TIMER, expired_ms):
            self._handle.deleteTimer(old_ms)
        if new_ms != NO_TIMER:
            self._handle.registerTimer(new_ms)
        self._note_timer(new_ms)

    def _note_timer(self, timer_ms: int) -> None:
        self._book.update((LAYOUT, self._hosting.buckets, timer_ms))

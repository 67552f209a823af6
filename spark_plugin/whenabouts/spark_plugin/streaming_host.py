"""Hosts an operator in a Spark stream: `core.hosting.micro_batch_host` over Spark's state and timers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from whenabouts.core.hosting.host import Hosting, Tagged
from whenabouts.core.hosting.micro_batch_host import MicroBatchHost
from whenabouts.spark_plugin.packing import ARRIVED
from whenabouts.spark_plugin.tagged_rows import BLOB, TAG
from whenabouts.spark_plugin.workers import begin_task, code_first

if TYPE_CHECKING:
    import pandas as pd

SEGMENT_KEY = StructType([StructField("input", IntegerType()), StructField("slot", LongType())])
SEGMENT = StructType([StructField("data", BinaryType())])
RECORD = StructType([StructField(name, LongType()) for name in ("layout", "buckets", "timer_ms")])
"""`core.hosting.micro_batch_host`'s record of a bucket."""

IDENTITY = "identity"
IDENTITY_SCHEMA = StructType([StructField("text", StringType())])
"""`core.hosting.query_identity`, written once by the control group, which compares it in each
micro-batch; `checkpoints` reads it before a restart."""


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


class GroupState:
    """`micro_batch_host.MicroBatchState`: the state variables of a task; Spark sets the current key."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self.segments = MapStateStore(handle.getMapState("segments", SEGMENT_KEY, SEGMENT))
        self._record = handle.getValueState("host", RECORD)
        self._identity = handle.getValueState(IDENTITY, IDENTITY_SCHEMA)

    def read_record(self) -> Sequence[int] | None:
        """The record, None for a new bucket."""
        record: Sequence[int] | None = self._record.get()
        return record

    def write_record(self, record: Sequence[int]) -> None:
        """Replace the record."""
        self._record.update(tuple(record))

    def read_identity(self) -> str | None:
        """The identity of the query that owns the state, None if there is none."""
        row = self._identity.get()
        return None if row is None else str(row[0])

    def write_identity(self, text: str) -> None:
        """Keep the identity of the query that owns the state."""
        self._identity.update((text,))

    def set_timer(self, ms: int) -> None:
        """Set a timer of the bucket."""
        self._handle.registerTimer(ms)

    def delete_timer(self, ms: int) -> None:
        """Delete a timer of the bucket."""
        self._handle.deleteTimer(ms)


class BucketProcessor(StatefulProcessor):
    """Runs the operator of each bucket in `transformWithStateInPandas`, whatever the operator."""

    def __init__(self, hosting: Hosting) -> None:
        self._hosting = hosting

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called by Spark before anything else, in every task and once in the driver."""
        begin_task()
        self._state = GroupState(handle)
        self._host = MicroBatchHost(self._hosting)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802  # Spark's
        """A micro-batch's blobs of one bucket."""
        with code_first():
            packed = (row for frame in rows for row in zip(*(frame[name].tolist() for name in ARRIVED), strict=True))
            return _frames(self._host.rows(key[0], packed, self._state, timerValues.getCurrentWatermarkInMs()))

    def handleExpiredTimer(  # noqa: N802  # Spark's name; it calls by keyword
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[pd.DataFrame]:
        """The bucket's timer has fired: the operator has work to do without new rows."""
        with code_first():
            expired_ms, watermark_ms = expiredTimerInfo.getExpiryTimeInMs(), timerValues.getCurrentWatermarkInMs()
            return _frames(self._host.expired(expired_ms, self._state, watermark_ms))

    def close(self) -> None:
        """Nothing to close."""


def _frames(tagged: Iterable[Tagged]) -> Iterator[pd.DataFrame]:
    import pandas as pd  # takes a CPU-second: not in the driver, where each query start creates a processor

    for tag, blob in tagged:
        yield pd.DataFrame({TAG: [tag], BLOB: [blob]})

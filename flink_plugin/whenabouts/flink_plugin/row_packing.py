"""How rows that come one by one are gathered: how many at a time, how long they may wait, and what cannot be promised.

Flink hands rows to a vectorised Python function by the bundle. A bundle ends when it is full, when its time is up, and
before a checkpoint: what waits is lost in no failure. Its time is therefore the packer's latency, and is set for the
packer alone, whatever the job's other Python functions have.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyflink.datastream import StreamExecutionEnvironment
from pyflink.table import StreamTableEnvironment

from whenabouts.core.durations import Duration, parse_non_negative
from whenabouts.core.errors import Code, EngineError, QueryError

ROWS = 10_000
"""Rows that are packed together at most."""

WAIT_MS = 1000
"""How long a row waits at most for others, unless `max_latency` asks for less."""

LEAST_LATENCY_MS = 4
"""The least `max_latency`: Flink counts milliseconds, and a row may wait twice, half of it each."""

_SIZE, _TIME = "python.fn-execution.bundle.size", "python.fn-execution.bundle.time"
_BATCH = "python.fn-execution.arrow.batch.size"


@dataclass(frozen=True)
class Packing:
    """`wait_ms`: how long a row waits to be packed. `event_time`: rows must have one of their own, and it is kept."""

    wait_ms: int = WAIT_MS
    event_time: bool = False

    @contextmanager
    def bundles(self, tables: StreamTableEnvironment) -> Iterator[None]:
        """A vectorised function that is translated inside has bundles of its own."""
        config = tables._j_tenv.getConfig().getConfiguration()
        before = {name: config.getString(name, None) for name in (_SIZE, _TIME, _BATCH) if config.containsKey(name)}
        for name, value in ((_SIZE, ROWS), (_TIME, self.wait_ms), (_BATCH, ROWS)):
            config.setString(name, str(value))
        try:
            yield
        finally:
            for name in (_SIZE, _TIME, _BATCH):
                config.removeKey(name)
            for name, value in before.items():
                config.setString(name, value)


def latency_ms(max_latency: Duration | None) -> int | None:
    """`max_latency` in Flink's milliseconds. Raises QueryError WA-2141 for less than a packer can keep.

    >>> latency_ms("100 ms"), latency_ms(None)
    (100, None)
    """
    if max_latency is None:
        return None
    ms = parse_non_negative(max_latency, name="max_latency") // 1000
    if ms < LEAST_LATENCY_MS:
        raise QueryError(
            Code.LATENCY_NOT_KEPT,
            f"max_latency is {ms} ms",
            f"rows are gathered before they are joined: give {LEAST_LATENCY_MS} ms or more, or leave it out",
        )
    return ms


def require_latency(env: StreamExecutionEnvironment, ms: int) -> None:
    """Raise QueryError WA-2141 where a job's own bundles would hold every element longer than `ms`.

    In process mode an element waits in each Python operator until its bundle is full or its time is up. In thread mode
    there are no bundles.
    """
    config = env._j_stream_execution_environment.getConfiguration()
    if config.getString("python.execution-mode", "process").lower() == "thread":
        return
    size, time_ms = int(config.getString(_SIZE, "1000")), int(config.getString(_TIME, "1000"))
    if size > 1 and time_ms * PYTHON_OPERATORS > ms:
        raise QueryError(
            Code.LATENCY_NOT_KEPT,
            f"max_latency is {ms} ms, and each Python function of this job waits {time_ms} ms for bundles of {size}",
            f"set {_SIZE} to 1, as local_environment does, or python.execution-mode to thread",
        )


PYTHON_OPERATORS = 4
"""Python functions one behind the other on a row's way: the packing ones, the operator, and what reads its output."""


LOST_ASSIGNER = "call with_timestamp_assigner last: with_idleness and with_watermark_alignment drop it silently"


def no_event_time(input: str, hint: str) -> EngineError:
    """Event time is wanted of an input that has none."""
    return EngineError(
        Code.NO_EVENT_TIME,
        f"rows of the {input} input carry no event time",
        f"{hint}; or leave out watermarks='inputs', then times and lateness of the query count",
    )

"""How rows that come one by one are gathered: how many at a time, how long they may wait, and what cannot be promised.

Flink hands rows to a vectorised Python function by the bundle. A bundle ends when it is full, when its time is up, and
before a checkpoint: what waits is lost in no failure. Flink knows one size and one time for all Python functions of a
job. In thread mode only vectorised functions have bundles; in process mode all have them, one behind the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyflink.common import Configuration
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.table import StreamTableEnvironment

from whenabouts.core.durations import Duration, parse_non_negative
from whenabouts.core.errors import Code, EngineError, QueryError

ROWS = 10_000
"""Rows that are packed together at most."""

WAIT_MS = 1000
"""How long a row waits at most for others to be packed with, unless `max_latency` asks for less."""

PYTHON_OPERATORS = 4
"""Python functions one behind the other on a row's way: the packing ones, the operator, and what reads its output."""

_SIZE, _TIME = "python.fn-execution.bundle.size", "python.fn-execution.bundle.time"
_BATCH = "python.fn-execution.arrow.batch.size"


@dataclass(frozen=True)
class Latency:
    """How `max_latency` is spent: `bundle_ms` in a bundle, `operator_ms` (None: no bound) waiting in the operator.

    >>> Latency.of("100 ms", threads=True), Latency.of("100 ms", threads=False)
    (Latency(bundle_ms=50, operator_ms=50), Latency(bundle_ms=12, operator_ms=50))
    """

    bundle_ms: int
    operator_ms: int | None

    @staticmethod
    def of(max_latency: Duration | None, *, threads: bool) -> Latency:
        """Half of it for bundles, of which there is one in thread mode, and half for the operator.

        Raises QueryError WA-2141 where less than a millisecond, which is Flink's least, would be left for a bundle.
        """
        if max_latency is None:
            return Latency(WAIT_MS, None)
        ms = parse_non_negative(max_latency, name="max_latency") // 1000
        bundles = 1 if threads else PYTHON_OPERATORS
        if ms < 2 * bundles:
            raise QueryError(
                Code.LATENCY_NOT_KEPT,
                f"max_latency is {ms} ms",
                f"rows are gathered before they are joined: give {2 * bundles} ms or more, or leave it out",
            )
        return Latency(min(WAIT_MS, ms // (2 * bundles)), ms // 2)


def threads(env: StreamExecutionEnvironment) -> bool:
    """Whether the job's Python runs in threads of the JVM."""
    return _option(env, "python.execution-mode", "process").lower() == "thread"


def set_bundles(env: StreamExecutionEnvironment, tables: Iterable[StreamTableEnvironment], wait_ms: int) -> None:
    """Have the job gather rows so long, or shorter if another query of the job asked for that.

    A Table's environment hands its own options to the job's when it translates: both get them.
    """
    if _option(env, _SIZE, "") == str(ROWS):
        wait_ms = min(wait_ms, int(_option(env, _TIME, "1000")))
    options = Configuration()
    for name, value in ((_SIZE, ROWS), (_TIME, wait_ms), (_BATCH, ROWS)):
        options.set_string(name, str(value))
        for each in tables:
            each.get_config().set(name, str(value))
    env.configure(options)


def require_latency(env: StreamExecutionEnvironment, latency: Latency) -> None:
    """Raise QueryError WA-2141 where bundles of the job would hold blocks for longer than `max_latency` allows."""
    size, time_ms = int(_option(env, _SIZE, "1000")), int(_option(env, _TIME, "1000"))
    if latency.operator_ms is not None and not threads(env) and size > 1 and time_ms > latency.bundle_ms:
        raise QueryError(
            Code.LATENCY_NOT_KEPT,
            f"max_latency leaves {latency.bundle_ms} ms for a bundle, and those of this job wait for {time_ms} ms",
            f"set {_SIZE} to 1, as local_environment does, or python.execution-mode to thread",
        )


def _option(env: StreamExecutionEnvironment, name: str, default: str) -> str:
    return str(env._j_stream_execution_environment.getConfiguration().getString(name, default))


LOST_ASSIGNER = "call with_timestamp_assigner last: with_idleness and with_watermark_alignment drop it silently"


def no_event_time(input: str, hint: str) -> EngineError:
    """Event time is wanted of an input that has none."""
    return EngineError(
        Code.NO_EVENT_TIME,
        f"rows of the {input} input carry no event time",
        f"{hint}; or leave out watermarks='inputs', then times and lateness of the query count",
    )

"""How single rows are gathered into blocks: how many at a time, how long they may wait, which latencies are refused.

An operator in Java gathers rows until there are so many, until the first has waited for so long, and before a
checkpoint, so that no failure loses waiting rows. In process mode Flink hands elements to every Python function in
bundles, one after another, which wait as well: all Python functions of a job share one bundle size and one bundle time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyflink.common import Configuration
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.table import StreamTableEnvironment, Table

from whenabouts.core.durations import Duration, parse_non_negative
from whenabouts.core.errors import Code, EngineError, QueryError

ROWS = 1 << 17
"""Rows that are packed together at most, unless the job says otherwise (`python.fn-execution.arrow.batch.size`)."""

GATHER_MS = 1000
"""How long rows are gathered at most, unless `max_latency` requires less. A step of few rows costs as much as one of
thousands: with a quarter of a second a join from Kafka to Kafka had twice as many steps, which cost 1.3 us of CPU a row
instead of 0.7. It is as long as a bundle of Flink's own Python functions."""

WAIT_MS = 250
"""How long a bundle lasts at most, unless `max_latency` requires less. A job whose bundles are shorter than that wants
its rows soon: they are then gathered no longer, either."""

SHARE = 5
"""The waits on a row's path may last a `SHARE`th of `max_latency` together (doubled by Flink's clock), and rows wait
as much before the join."""

BUFFER_SHARE = 20
"""A network buffer is flushed after this part of `max_latency`."""

_SIZE, _TIME = "python.fn-execution.bundle.size", "python.fn-execution.bundle.time"
_BATCH = "python.fn-execution.arrow.batch.size"


def hops(*, threads: bool) -> int:
    """The number of places on a row's path where rows are gathered.

    In thread mode this is the operator that gathers rows. In process mode Python functions have bundles, too: the one
    that packs, the operator, which a timer enters once more, and the reader of its output.
    """
    return 1 if threads else 5


@dataclass(frozen=True)
class Latency:
    """How `max_latency` is divided (None: no limit): `gather_ms` for gathering rows, `bundle_ms` for each bundle, at
    most `operator_ms` before the join, `buffer_ms` for a network buffer.

    A bundle can last twice its time: a clock with that period ends it, but only if it is that old. The output of all
    inputs' bundles is gathered again before the join: each bundle would be a step of few rows, and if steps took longer
    than bundles, rows would pile up.

    >>> Latency.of("100 ms", hops=1)
    Latency(gather_ms=20, bundle_ms=20, operator_ms=20, buffer_ms=5)
    """

    gather_ms: int
    bundle_ms: int
    operator_ms: int | None
    buffer_ms: int | None

    @staticmethod
    def of(max_latency: Duration | None, *, hops: int) -> Latency:
        """Two fifths for bundles, at most a fifth before the join, the rest for buffers and for the work itself.

        Raises QueryError WA-2141 if less than a millisecond, Flink's minimum, would be left for a bundle.
        """
        if max_latency is None:
            return Latency(GATHER_MS, WAIT_MS, None, None)
        ms = parse_non_negative(max_latency, name="max_latency") // 1000
        if ms < SHARE * hops:
            raise QueryError(
                Code.LATENCY_NOT_KEPT,
                f"max_latency is {ms} ms",
                f"rows are gathered before they are joined: give {SHARE * hops} ms or more, or leave it out",
            )
        fifth = ms // SHARE
        bundle_ms = min(WAIT_MS, fifth // hops)
        return Latency(bundle_ms, bundle_ms, fifth, ms // BUFFER_SHARE)


def threads(env: StreamExecutionEnvironment) -> bool:
    """Whether the job's Python runs in threads of the JVM."""
    return _option(env, "python.execution-mode", "process").lower() == "thread"


def set_bundles(env: StreamExecutionEnvironment, tables: Iterable[StreamTableEnvironment], wait_ms: int) -> None:
    """Set the job's bundle time to `wait_ms`, or keep a shorter one that the job or another query of it has set.

    A Table environment copies its own options to the job's when it translates, so both are set.
    """
    wait_ms = min(wait_ms, int(_option(env, _TIME, "1000")))
    options, batch = Configuration(), _option(env, _BATCH, str(ROWS))
    for name, value in ((_SIZE, str(ROWS)), (_TIME, str(wait_ms)), (_BATCH, batch)):
        options.set_string(name, value)
        for each in tables:
            config = each.get_config()
            config.set(name, config.get(name, value) if name == _BATCH else value)
    env.configure(options)


def bundle_of(table: Table, gather_ms: int = GATHER_MS) -> tuple[int, int]:
    """The most rows of a Table that are packed together, and for how many milliseconds the first of them may wait:
    `gather_ms`, or as long as a bundle if the job has short ones."""
    env = StreamExecutionEnvironment(table._t_env._j_tenv.execEnv())
    rows = table._t_env.get_config().get(_BATCH, _option(env, _BATCH, str(ROWS)))
    bundle_ms = int(_option(env, _TIME, str(WAIT_MS)))
    return int(rows), min(gather_ms, bundle_ms) if bundle_ms < WAIT_MS else gather_ms


def require_latency(env: StreamExecutionEnvironment, latency: Latency) -> None:
    """Raise QueryError WA-2141 if the job's bundles would hold blocks for longer than `max_latency` allows."""
    size, time_ms = int(_option(env, _SIZE, "1000")), int(_option(env, _TIME, "1000"))
    if latency.operator_ms is not None and not threads(env) and size > 1 and time_ms > latency.bundle_ms:
        raise QueryError(
            Code.LATENCY_NOT_KEPT,
            f"max_latency leaves {latency.bundle_ms} ms for a bundle, but bundles of this job wait {time_ms} ms",
            f"set {_SIZE} to 1, as local_environment does, or python.execution-mode to thread",
        )
    if latency.operator_ms is not None:  # for later operators: a Table of these blocks has bundles
        options = Configuration()
        options.set_string(_TIME, str(min(latency.bundle_ms, time_ms)))
        env.configure(options)


def _option(env: StreamExecutionEnvironment, name: str, default: str) -> str:
    return str(env._j_stream_execution_environment.getConfiguration().getString(name, default))


LOST_ASSIGNER = "call with_timestamp_assigner last: with_idleness and with_watermark_alignment drop it silently"


def no_event_time(input: str, hint: str) -> EngineError:
    """The error for an input without event time where event time is needed."""
    return EngineError(
        Code.NO_EVENT_TIME,
        f"rows of the {input} input carry no event time",
        f"{hint}; or leave out watermarks='source', and the query's times and lateness are used",
    )

"""Calls to every bucket when its task starts, from an operator of the JVM in front of ours, in the same task.

In process mode a checkpoint may lack timers that the last bundle has set (`bucket_host`, decision 0021). A bucket that
is called sets them again; but Python is called only with an element, and there may be none any more. So that no row,
no watermark and no end of the input comes before, the calls are made where these pass: `BucketCalls.java`. What is
called reads its record, and so a checkpoint of another query or other buckets is refused (decision 0036).

The same operator ends a job that is a batch after all, by an environment of Tables with another mode that the job got
after the query: where Flink has the state of one key at a time, a query that was built as a stream would lose rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyflink.datastream import DataStream
from pyflink.datastream.data_stream import KeyedStream

from whenabouts.core.errors import Code, QueryError
from whenabouts.core.hosting.packed_kinds import PRESENT
from whenabouts.flink_plugin.java_operators import followed_by
from whenabouts.flink_plugin.wire import by_bucket

CLASS = "BucketCalls"

_BUILT_AS_STREAM = QueryError(
    Code.BAD_OPTION,
    "the query was built as a stream, and the job runs as a batch",
    "give its Table environments and execution.runtime-mode one mode before anything is built",
)


def with_calls(rows: DataStream, labels: Sequence[int], uid: str) -> KeyedStream:
    """A stream of `packed_type` by bucket (`labels`: the key of each), calls in front of it. Cost: one element for each
    bucket when a task starts, and one hand-over within the JVM for every other element."""
    env = rows._j_data_stream.getExecutionEnvironment()
    given = (PRESENT, str(_BUILT_AS_STREAM), *labels)
    called = followed_by(by_bucket(rows)._j_data_stream, CLASS, given, uid, parallelism=env.getParallelism())
    return by_bucket(called, spread=True)

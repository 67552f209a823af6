"""Calls to every bucket when its task starts, from an operator of the JVM in front of ours, in the same task.

In process mode a checkpoint may lack timers that the last bundle has set (`bucket_host`, decision 0021). A bucket that
is called sets them again; but Python is called only with an element, and there may be none any more. So that no row,
no watermark and no end of the input comes before, the calls are made where these pass: `BucketCalls.java`, which Flink
compiles on its workers as it does the code of its own Tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from pyflink.datastream import DataStream
from pyflink.datastream.data_stream import KeyedStream
from pyflink.java_gateway import get_gateway

from whenabouts.core.hosting.packed_kinds import PRESENT
from whenabouts.flink_plugin.wire import by_bucket, packed_type

CLASS = "BucketCalls"


def with_calls(rows: DataStream, labels: Sequence[int], uid: str) -> KeyedStream:
    """A stream of `packed_type` by bucket (`labels`: the key of each), calls in front of it. Cost: one element for each
    bucket when a task starts, and one hand-over within the JVM for every other element."""
    jvm = get_gateway().jvm.org.apache.flink.streaming.api
    env, spread = rows._j_data_stream.getExecutionEnvironment(), by_bucket(rows)._j_data_stream.getTransformation()
    called = jvm.transformations.OneInputTransformation(
        spread, uid, _operator((PRESENT, *labels)), packed_type().get_java_type_info(), env.getParallelism(), False
    )
    called.setUid(uid)
    env.addOperator(called)
    return by_bucket(DataStream(jvm.datastream.DataStream(env, called)), spread=True)


def _operator(references: Sequence[int]) -> object:
    gateway = get_gateway()
    jvm, given = gateway.jvm, gateway.new_array(gateway.jvm.Object, len(references))
    for place, reference in enumerate(references):
        given[place] = reference
    code = files(__package__).joinpath(f"{CLASS}.java").read_text(encoding="utf-8")
    table = jvm.org.apache.flink.table.runtime
    options = jvm.org.apache.flink.configuration.Configuration()
    return table.operators.CodeGenOperatorFactory(table.generated.GeneratedOperator(CLASS, code, given, options))

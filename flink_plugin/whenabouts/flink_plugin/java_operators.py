"""Operators in Java: their text is in this package, and Flink compiles it on its workers as it does the code of its own
Tables."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from pyflink.datastream import DataStream
from pyflink.java_gateway import get_gateway


def followed_by(
    stream: Any,
    name: str,
    references: Sequence[object],
    uid: str,
    *,
    parallelism: int,
    gives: Any = None,
    folder: Traversable | None = None,
) -> DataStream:
    """A Java stream followed by the operator in `name`.java, which gets the references.

    `gives`: Java's type information of what it gives, by default the stream's. `folder`: where the text is, by default
    in this package.
    """
    gateway = get_gateway()
    jvm, given = gateway.jvm, gateway.new_array(gateway.jvm.Object, len(references))
    for place, reference in enumerate(references):
        given[place] = reference
    code = (folder or files(__package__)).joinpath(f"{name}.java").read_text(encoding="utf-8")
    table, api = jvm.org.apache.flink.table.runtime, jvm.org.apache.flink.streaming.api
    options = jvm.org.apache.flink.configuration.Configuration()
    operator = table.operators.CodeGenOperatorFactory(table.generated.GeneratedOperator(name, code, given, options))
    env, before = stream.getExecutionEnvironment(), stream.getTransformation()
    type_ = before.getOutputType() if gives is None else gives
    made = api.transformations.OneInputTransformation(before, uid, operator, type_, parallelism, False)
    made.setUid(uid)
    env.addOperator(made)
    return DataStream(api.datastream.DataStream(env, made))

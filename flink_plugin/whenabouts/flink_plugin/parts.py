"""Rows that end, as rows in parts, to which core applies functions where they are: each block is a part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyflink.common import Types
from pyflink.datastream import DataStream, RuntimeContext, StreamExecutionEnvironment
from pyflink.java_gateway import get_gateway
from pyflink.table import Table
from pyflink.table.expressions import col
from pyflink.util.java_utils import get_field, is_instance_of

from whenabouts.core.errors import Code, InputError
from whenabouts.core.frames.scattered import PartFunction, Scattered
from whenabouts.flink_plugin.blocks import BatchFunction, Blocks, Read, behind
from whenabouts.flink_plugin.collecting import pieces, whole
from whenabouts.flink_plugin.column_types import arrow_schema_of_rows, arrow_schema_of_table
from whenabouts.flink_plugin.row_streams import blocks_of, environment_of
from whenabouts.flink_plugin.worker_imports import import_numba

INPUT = "profiled"

_WITH_END = "org.apache.flink.streaming.api.transformations.WithBoundedness"


def scattered(source: Blocks | Table | DataStream) -> Scattered:
    """The rows of an input that ends, in no order of arrival. Each application is a job of its own, beside which
    nothing of the user's job runs.

    Raises InputError WA-1062, before a job starts, for one that does not end; WA-1002 and WA-1065 as `blocks_of`.
    """
    schema = _schema(source)

    def apply(names: Sequence[str], function: PartFunction) -> Iterator[bytes]:
        env = environment_of(source)
        with _alone(env):
            with _that_end():
                blocks = blocks_of(_only(source, names), INPUT)
            require_end(blocks.stream)
            parts = blocks.stream.flat_map(_Parts(function, blocks.read, names), Types.PICKLED_BYTE_ARRAY())
            found = behind(parts, "parts", like=blocks.stream).execute_and_collect("a profile of " + ", ".join(names))
        yield from whole(found)

    def count() -> int:
        return sum(int.from_bytes(rows, "little") for rows in apply(schema.names[:1], _count))

    return Scattered(schema, count, apply, ordered=False)


def require_end(stream: DataStream) -> None:
    """Raise InputError WA-1062 for a stream some source of which is unbounded."""
    for each in stream._j_data_stream.getTransformation().getTransitivePredecessors():
        if is_instance_of(each, _WITH_END) and str(each.getBoundedness()) != "BOUNDED":
            raise _endless(each.getName())


@contextmanager
def _that_end() -> Iterator[None]:
    """Where a Table becomes a stream: raises InputError WA-1062 as `require_end` if Flink refuses it for a batch."""
    try:
        yield
    except Exception as error:  # the planner's, which has no class or code of its own
        if "Querying an unbounded table" not in str(error):
            raise
        raise _endless("its source") from error


def _endless(source: str) -> InputError:
    return InputError(
        Code.NOT_AN_INPUT,
        f"the rows do not end: {source} is unbounded",
        "read those so far, as Kafka's option 'scan.bounded.mode' = 'latest-offset' does, or the files",
    )


def _schema(source: Blocks | Table | DataStream) -> pa.Schema:
    if isinstance(source, Blocks):
        return source.schema
    return arrow_schema_of_table(source) if isinstance(source, Table) else arrow_schema_of_rows(source)


def _only(source: Blocks | Table | DataStream, names: Sequence[str]) -> Blocks | Table | DataStream:
    """A Table with the named columns only; Flink does not read the others."""
    return source.select(*map(col, dict.fromkeys(names))) if isinstance(source, Table) else source


@contextmanager
def _alone(env: StreamExecutionEnvironment) -> Iterator[None]:
    """A job that is started meanwhile has no operators of before, nor has a later one operators of this."""
    job = env._j_stream_execution_environment
    operators = get_field(job.getClass(), "transformations")
    before = operators.get(job)
    operators.set(job, get_gateway().jvm.java.util.ArrayList())
    try:
        yield
    finally:
        operators.set(job, before)


def _count(batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    yield sum(batch.num_rows for batch in batches).to_bytes(8, "little")


class _Parts(BatchFunction):
    """What a function yields of the rows of each element. (PyFlink does not call a function at its end.)"""

    def __init__(self, function: PartFunction, read: Read, names: Sequence[str]) -> None:
        super().__init__(read)
        self._function, self._names = function, list(names)

    def open(self, runtime_context: RuntimeContext) -> None:
        """Called by Flink in every task before anything else."""
        import_numba()
        super().open(runtime_context)

    def flat_map(self, value: Any) -> Iterator[bytes]:
        """What is yielded of one element, in pieces."""
        for part in self._runner.run(lambda: list(self._function(self._named(value)))):
            yield from pieces(part)

    def _named(self, value: Any) -> Iterator[pa.RecordBatch]:
        for batch in self._read(value):
            columns = [batch.column(name) for name in self._names]
            yield pa.RecordBatch.from_arrays(columns, names=self._names)

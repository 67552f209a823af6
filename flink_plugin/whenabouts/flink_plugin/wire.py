"""Packed and tagged rows as Flink tuples of numbers and bytes, which Flink does not look into."""

from __future__ import annotations

from collections.abc import Sequence

from pyflink.common import Row, Types
from pyflink.common.typeinfo import TypeInformation
from pyflink.datastream import DataStream
from pyflink.datastream.data_stream import KeyedStream
from pyflink.java_gateway import get_gateway

from whenabouts.core.hosting.host import Packed


def blob_type() -> TypeInformation:
    """Arrow bytes."""
    return Types.PRIMITIVE_ARRAY(Types.BYTE())


def packed_type() -> TypeInformation:
    """`core.hosting.Packed` as `keyed` gives it."""
    return Types.ROW([Types.INT(), _packed_value()])


def keyed(packed: Packed, labels: Sequence[int]) -> Row:
    """A packed row in PyFlink's form of a keyed stream's elements: the key, then the value.

    `labels`: the key of each bucket. `key_by` would do the same by another Python operator, through which all bytes
    would have to pass.
    """
    return Row(labels[packed.bucket], (packed.kind, packed.rows, packed.blob))


def by_bucket(rows: DataStream, *, spread: bool = False) -> KeyedStream:
    """A stream of `packed_type` as one that is keyed by bucket; its elements are (kind, rows, blob).

    `spread`: the rows are already in the subtasks of their keys.
    """
    jvm = get_gateway().jvm
    selector, key = jvm.KeyByKeySelector(), Types.ROW([Types.INT()]).get_java_type_info()
    if spread:
        utils = jvm.org.apache.flink.streaming.api.datastream.DataStreamUtils
        by_key = utils.reinterpretAsKeyedStream(rows._j_data_stream, selector, key)
    else:
        by_key = rows._j_data_stream.keyBy(selector, key)
    return KeyedStream(by_key, _packed_value(), rows)


def _packed_value() -> TypeInformation:
    return Types.TUPLE([Types.INT(), Types.LONG(), blob_type()])


def tagged_type() -> TypeInformation:
    """`core.hosting.Tagged`."""
    return Types.TUPLE([Types.INT(), blob_type()])

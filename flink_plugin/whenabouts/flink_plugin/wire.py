"""Packed and tagged rows as Flink tuples: numbers and bytes, which Flink carries without looking inside."""

from __future__ import annotations

from pyflink.common import Types
from pyflink.common.typeinfo import TypeInformation


def blob_type() -> TypeInformation:
    """Arrow bytes."""
    return Types.PRIMITIVE_ARRAY(Types.BYTE())


def packed_type() -> TypeInformation:
    """`core.hosting.Packed`."""
    return Types.TUPLE([Types.INT(), Types.INT(), Types.LONG(), Types.LONG(), blob_type()])


def tagged_type() -> TypeInformation:
    """`core.hosting.Tagged`."""
    return Types.TUPLE([Types.INT(), blob_type()])

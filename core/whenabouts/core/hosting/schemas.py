"""Schemas as users have them: Arrow's own, and those of engines, which their adapters know how to read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whenabouts.core.errors import Code, QueryError

if TYPE_CHECKING:
    import pyarrow as pa

_readers: dict[str, Callable[[Any], pa.Schema]] = {}


def reads_schemas(package: str, reader: Callable[[Any], pa.Schema]) -> None:
    """Let `reader` read what is of a class of this package, such as `pyspark`. Adapters say so when they are loaded."""
    _readers[package] = reader


def arrow_schema_of(schema: Any, name: str) -> pa.Schema:
    """The Arrow schema of the stream `name`, given as such or as an engine has it.

    Raises: QueryError WA-2006 for objects that are not schemas, or schemas of an engine whose adapter is not loaded;
    and what the reader raises.

    >>> import pyarrow as pa
    >>> arrow_schema_of(pa.schema({"t": pa.int64()}), "s").names
    ['t']
    """
    import pyarrow as pa  # not by those who only import an adapter

    if isinstance(schema, pa.Schema):
        return schema
    package = type(schema).__module__.partition(".")[0]
    if package not in _readers:
        raise QueryError(
            Code.BAD_OPTION,
            f"the schema of {name!r} is a {type(schema).__module__}.{type(schema).__name__}",
            "give a pyarrow.Schema; for those of Spark and Flink import whenabouts.spark_plugin or "
            "whenabouts.flink_plugin first",
        )
    return _readers[package](schema)

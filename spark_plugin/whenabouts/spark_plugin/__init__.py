"""Timing joins and other operators of `whenabouts.core` on Spark, in batch and in structured streams.

Importing this package loads no Spark; the first use of a name does, and says what to install where it is missing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from whenabouts.core.hosting.java import java_version
from whenabouts.core.hosting.operation_names import OPERATION_NAMES
from whenabouts.core.hosting.schemas import reads_schemas
from whenabouts.core.hosting.worker_archive import archive
from whenabouts.spark_plugin.environment import check_environment, check_packages, spark_version

if TYPE_CHECKING:
    from whenabouts.core.operations import *  # noqa: F403  # every operation, whatever there will be
    from whenabouts.spark_plugin.api import counts, run, write_stream, write_with_rejects
    from whenabouts.spark_plugin.observing import PrintProgress, observed
    from whenabouts.spark_plugin.sessions import local_session
    from whenabouts.spark_plugin.sql_functions import register

__all__ = [
    "PrintProgress",
    "archive",
    "check_environment",
    "counts",
    "java_version",
    "local_session",
    "observed",
    "register",
    "run",
    "spark_version",
    "write_stream",
    "write_with_rejects",
]
__all__ += OPERATION_NAMES

_HOMES = dict.fromkeys(("ENGINE", "counts", "run", "write_stream", "write_with_rejects"), "api")
_HOMES |= {"local_session": "sessions", "observed": "observing", "PrintProgress": "observing"}
_HOMES |= {"register": "sql_functions"}


def _read_schema(schema: Any) -> Any:
    return import_module(f"{__name__}.schemas").arrow_schema_of(schema)


reads_schemas("pyspark", _read_schema)


def __getattr__(name: str) -> Any:
    if name not in _HOMES and name not in OPERATION_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    check_packages()
    if name in OPERATION_NAMES:
        return getattr(import_module(f"{__name__}.api").OPERATIONS, name)
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

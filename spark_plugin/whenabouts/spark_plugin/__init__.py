"""Timing joins and other operators of `whenabouts.core` on Spark, in batch and in structured streams.

Importing this package loads no Spark; the first use of a name does, and says what to install where it is missing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from whenabouts.core.deprecation import renamed
from whenabouts.core.hosting.java import java_version
from whenabouts.core.hosting.operation_names import OPERATION_NAMES
from whenabouts.core.hosting.schemas import reads_schemas
from whenabouts.core.hosting.worker_archive import build_worker_archive

if TYPE_CHECKING:
    from whenabouts.core.operations import *  # noqa: F403  # every operation, whatever there will be
    from whenabouts.spark_plugin.api import metrics, run, write_stream, write_with_rejects
    from whenabouts.spark_plugin.environment import check_environment, spark_version
    from whenabouts.spark_plugin.observing import PrintProgress, metrics_of
    from whenabouts.spark_plugin.sessions import local_session
    from whenabouts.spark_plugin.sql_functions import register_sql

    archive, counts, observed, register = build_worker_archive, metrics, metrics_of, register_sql  # deprecated

__all__ = [
    "PrintProgress",
    "build_worker_archive",
    "check_environment",
    "java_version",
    "local_session",
    "metrics",
    "metrics_of",
    "register_sql",
    "run",
    "spark_version",
    "write_stream",
    "write_with_rejects",
]
__all__ += OPERATION_NAMES

_HOMES = dict.fromkeys(("ENGINE", "metrics", "run", "write_stream", "write_with_rejects"), "api")
_HOMES |= {"local_session": "sessions", "metrics_of": "observing", "PrintProgress": "observing"}
_HOMES |= {"register_sql": "sql_functions"}

_OF_ENVIRONMENT = ("check_environment", "spark_version")


def _read_schema(schema: Any) -> Any:
    return import_module(f"{__name__}.schemas").arrow_schema_of(schema)


reads_schemas("pyspark", _read_schema)


_old_name = renamed(
    __name__,
    {"archive": "build_worker_archive", "counts": "metrics", "observed": "metrics_of", "register": "register_sql"},
)

if not TYPE_CHECKING:  # type checkers take a module with `__getattr__` to have every name

    def __getattr__(name: str) -> Any:
        if name not in _HOMES and name not in _OF_ENVIRONMENT and name not in OPERATION_NAMES:
            return _old_name(name)
        environment = import_module(f"{__name__}.environment")
        if name in _OF_ENVIRONMENT:
            return getattr(environment, name)
        environment.check_packages()
        if name in OPERATION_NAMES:
            return getattr(import_module(f"{__name__}.api").OPERATIONS, name)
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

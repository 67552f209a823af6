"""Timing joins and other operators of `whenabouts.core` on Flink, in streams and in batch.

Importing this package loads no Flink; the first use of a name does, and says what to install where it is missing.
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
    from whenabouts.flink_plugin.api import metrics, run
    from whenabouts.flink_plugin.blocks import Blocks
    from whenabouts.flink_plugin.collecting import collect
    from whenabouts.flink_plugin.environment import check_environment, flink_version
    from whenabouts.flink_plugin.file_source import read_files
    from whenabouts.flink_plugin.mini_cluster import local_environment
    from whenabouts.flink_plugin.row_streams import rows_of
    from whenabouts.flink_plugin.table_rows import table_of

    archive, counts = build_worker_archive, metrics  # deprecated

__all__ = [
    "Blocks",
    "build_worker_archive",
    "check_environment",
    "collect",
    "flink_version",
    "java_version",
    "local_environment",
    "metrics",
    "read_files",
    "rows_of",
    "run",
    "table_of",
]
__all__ += OPERATION_NAMES

_HOMES = dict.fromkeys(("ENGINE", "metrics", "run"), "api")
_HOMES |= {"collect": "collecting", "rows_of": "row_streams", "table_of": "table_rows"}
_HOMES |= {"Blocks": "blocks", "read_files": "file_source", "local_environment": "mini_cluster"}

_OF_ENVIRONMENT = ("check_environment", "flink_version")


def _read_schema(schema: Any) -> Any:
    return import_module(f"{__name__}.schemas").arrow_schema_of(schema)


reads_schemas("pyflink", _read_schema)


_old_name = renamed(__name__, {"archive": "build_worker_archive", "counts": "metrics"})

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

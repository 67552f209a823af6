"""Timing joins and other operators of `whenabouts.core` on Flink, in streams and in batch.

Importing this package loads no Flink; the first use of a name does, and says what to install where it is missing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from whenabouts.core.java import java_version
from whenabouts.core.shipping import archive
from whenabouts.flink_plugin.environment import check_environment, check_packages, flink_version

if TYPE_CHECKING:
    from whenabouts.flink_plugin.api import counts, rejects, run, timing_join, window_join
    from whenabouts.flink_plugin.blocks import Blocks
    from whenabouts.flink_plugin.coalescing import coalesce, temporal_aggregate, temporal_join
    from whenabouts.flink_plugin.file_source import read_files
    from whenabouts.flink_plugin.mini_cluster import local_environment

__all__ = [
    "Blocks",
    "archive",
    "check_environment",
    "coalesce",
    "counts",
    "flink_version",
    "java_version",
    "local_environment",
    "read_files",
    "rejects",
    "run",
    "temporal_aggregate",
    "temporal_join",
    "timing_join",
    "window_join",
]

_HOMES = dict.fromkeys(("counts", "rejects", "run", "timing_join", "window_join"), "api")
_HOMES |= dict.fromkeys(("coalesce", "temporal_aggregate", "temporal_join"), "coalescing")
_HOMES |= {"Blocks": "blocks", "read_files": "file_source", "local_environment": "mini_cluster"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    check_packages()
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

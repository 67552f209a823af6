"""Imports that need care in a PyFlink worker."""

from __future__ import annotations

import builtins
from importlib import import_module
from threading import Lock
from types import BuiltinFunctionType

from whenabouts.core.hosting.preflight import check_worker

_ONE_AT_A_TIME = Lock()


def import_numba() -> None:
    """Import numba under Python's own `print`. Raises EngineError WA-3002 if it, or another package, is missing.

    A worker process of PyFlink (on a cluster; local jobs run in the client) replaces `print` with a method of its own.
    numba looks up built-in functions by their modules when it is imported, and then fails: "module
    'pyflink.fn_execution.beam.beam_sdk_worker_main' has no attribute 'print'". If `print` is Python's own, numba is
    imported later, when it is needed.
    """
    check_worker()
    with _ONE_AT_A_TIME:  # tasks of a process begin at the same time, each in a thread of its own
        replaced = builtins.print
        own = getattr(getattr(replaced, "__self__", None), "_print", None)
        if isinstance(replaced, BuiltinFunctionType) or not isinstance(own, BuiltinFunctionType):
            return
        builtins.print = own
        try:
            import_module("numba")
        finally:
            builtins.print = replaced

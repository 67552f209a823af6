"""The process from which Spark forks Python workers, with all that a worker needs already loaded.

A worker spends two to three CPU-seconds on loading pandas, numba and the compiled kernels, and a streaming query on two
cores has eight of them; Spark sends those away that were idle for a minute, and starts new ones. Forked from here they
find everything in memory that they share. `spark.python.daemon.module` names this module where whenabouts is installed
on the machines of the workers; `local_session` sets it.
"""

from __future__ import annotations

import gc

import pandas  # noqa: F401  # as the next: workers need it
from pyspark import daemon

import whenabouts.spark_plugin.api  # noqa: F401
from whenabouts.core.hosting.warm_up import load_kernels

if __name__ == "__main__":
    load_kernels()
    gc.collect()
    gc.freeze()  # a worker's collections leave what is loaded alone, so that its pages stay shared
    daemon.manager()  # type: ignore[no-untyped-call,unused-ignore]  # not typed before Spark 4.3

"""The process from which Spark forks Python workers, with everything that a worker needs already loaded.

A worker spends two to three CPU-seconds on loading pandas, numba and the compiled kernels. A streaming query on two
cores has eight workers, and Spark stops those that were idle for a minute and starts new ones. Workers forked from this
process share its memory and load nothing. Set `spark.python.daemon.module` to this module if whenabouts is installed on
the workers' machines; `local_session` does.
"""

from __future__ import annotations

import gc
import sys

from whenabouts.spark_plugin.pyspark_archive import without_archive

sys.path[:] = without_archive(sys.path)

import pandas  # noqa: E402, F401  # loaded for the workers, like the next but one
from pyspark import daemon  # noqa: E402

import whenabouts.spark_plugin.api  # noqa: E402, F401
from whenabouts.core.hosting.warm_up import load_kernels  # noqa: E402

if __name__ == "__main__":
    load_kernels()
    gc.collect()
    gc.freeze()  # a worker's collections skip what is loaded, so that its pages stay shared
    daemon.manager()  # type: ignore[no-untyped-call,unused-ignore]  # not typed before Spark 4.3

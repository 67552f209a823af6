"""What every function that Spark calls in a Python worker needs besides its work.

It avoids repeated work that Spark asks of a worker, which is most of the cost of small micro-batches; it has a name
that plans show; and its errors begin with their codes.
"""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from itertools import count
from zipimport import zipimporter

import pyarrow as pa
import pyspark

from whenabouts.core import errors
from whenabouts.core.errors import WhenaboutsError
from whenabouts.core.hosting.preflight import check_worker

_tasks = count(1)
_UNFREEZES = 256


def begin_task() -> None:
    """Check that the worker has what the operators need, and make its next tasks cheaper.

    Raises EngineError WA-3002.

    Before each task Spark invalidates Python's import caches. Every importer of a zip file then reads the whole
    directory of its archive again, some 50 ms of CPU until Python 3.12. Importers are a cache, so they are dropped: a
    later import creates them again.

    After each task Spark collects garbage and traverses all long-lived objects of numba, pandas and Spark itself: some
    80 ms. So these objects are frozen in a worker's second task, and whenever the number of its tasks has doubled. From
    task `_UNFREEZES` on, those that have become garbage in the meantime are collected then. Earlier it would not pay:
    a traversal of all costs as much again, and a forked worker then no longer shares their memory.

    >>> begin_task()
    """
    with code_first():
        check_worker()
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[path]
    task = next(_tasks)
    if task > 1 and task.bit_count() == 1:
        if task >= _UNFREEZES:
            gc.unfreeze()
        gc.collect()
        gc.freeze()


Batches = Iterable[pa.RecordBatch]


class Stage:
    """A function for `mapInArrow`. `__name__` is what `explain()` and Spark's UI call it."""

    def __init__(self, name: str, function: Callable[[Batches], Iterator[pa.RecordBatch]]) -> None:
        self.__name__ = name
        self._function = function

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """The function's batches."""
        begin_task()
        with code_first():
            yield from self._function(batches)


@contextmanager
def code_first() -> Iterator[None]:
    """Make Spark's report of one of our errors begin with its code instead of a traceback of thirty lines.

    Spark reads this setting when it reports why a worker ends, which is the last thing that the worker does. A driver,
    in which functions for `foreachBatch` run, would pass the setting on to the workers of its next session.
    """
    try:
        yield
    except WhenaboutsError:
        if not _in_driver():
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def _in_driver() -> bool:
    context = getattr(pyspark, "SparkContext", None)  # the package of Connect's client has none
    return context is not None and context._active_spark_context is not None


_OURS = re.compile(r"whenabouts\.core\.errors\.(\w+Error): (WA-\d{4}): (.*)")


@contextmanager
def code_of_worker_first() -> Iterator[None]:
    """The same in a function for `foreachBatch`, of an error of ours that ended a worker.

    Such a function fails with all that Spark says of it, and Spark shows where: after what the error came from.
    """
    try:
        with code_first():
            yield
    except WhenaboutsError:
        raise
    except Exception as error:
        found = _OURS.search(str(error))
        if found is None:
            raise
        name, code, problem = found.groups()
        ours: WhenaboutsError = getattr(errors, name)(errors.Code(code), problem)
        with code_first():
            raise ours from copy(ours)

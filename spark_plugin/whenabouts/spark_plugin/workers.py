"""What every function that Spark calls in a Python worker does first: it spares the worker what Spark has it do again
and again, which in small micro-batches is most of what a worker does."""

from __future__ import annotations

import gc
import sys
from itertools import count
from zipimport import zipimporter

_tasks = count(1)


def begin_task() -> None:
    """Make a worker's next tasks cheaper.

    Before each task Spark invalidates Python's import caches, and then every importer of a zip file reads the whole
    directory of its archive again: until Python 3.12 in Python itself, some 50 ms of CPU. Importers are a cache: a
    later import makes them anew.

    After each task Spark collects garbage, and looks through all objects that numba, pandas and Spark itself have left
    in memory for good: some 80 ms. So these are set aside, in a worker's first task and whenever it has done twice as
    many; what has become garbage among them meanwhile is collected then.

    >>> begin_task()
    """
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[path]
    if next(_tasks).bit_count() == 1:
        gc.unfreeze()
        gc.collect()
        gc.freeze()

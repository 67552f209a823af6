"""What every function that Spark calls in a Python worker does first."""

from __future__ import annotations

import sys
from zipimport import zipimporter


def begin_task() -> None:
    """Spare the next task of this worker the archives of Spark's own Python sources.

    Before each task Spark invalidates Python's import caches, and then every importer of a zip file reads the whole
    directory of its archive again: until Python 3.12 in Python itself, some 50 ms of CPU a task, two thirds of what a
    worker did in small micro-batches (py-spy, Spark 4.1). Importers are a cache: a later import makes them anew.

    >>> begin_task()
    """
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[path]

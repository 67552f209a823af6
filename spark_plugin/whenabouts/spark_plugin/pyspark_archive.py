"""Where a Python process that Spark starts finds pyspark."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def without_archive(path: Iterable[str]) -> list[str]:
    """`sys.path` without Spark's archive of pyspark, where the package that it lies in would be imported instead.

    Spark puts `python/lib/pyspark.zip` first. It has no bytecode: each process that imports pyspark from it compiles
    what it imports, 0.7 CPU-s. A pyspark from PyPI is installed as a package as well, with its bytecode.
    """
    entries = list(path)
    package = next((there for entry in entries if (there := Path(entry) / "pyspark" / "__init__.py").exists()), None)
    return [entry for entry in entries if package is None or Path(entry) != package.parent / "python/lib/pyspark.zip"]

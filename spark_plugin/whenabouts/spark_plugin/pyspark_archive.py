"""Where a Python process that Spark starts finds pyspark."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def without_archive(path: Iterable[str]) -> list[str]:
    """`sys.path` without Spark's archive of pyspark, where the package that the archive is part of can be imported.

    Spark puts `python/lib/pyspark.zip` first. It has no bytecode: each process that imports pyspark from it compiles
    what it imports, 0.7 CPU-s. A pyspark from PyPI is installed as a package as well, with its bytecode.
    """
    entries = list(path)
    return [entry for entry in entries if not (entry.endswith("pyspark.zip") and _is_installed(entry, entries))]


def _is_installed(archive: str, path: list[str]) -> bool:
    package = Path(archive).parent.parent.parent
    return package.name == "pyspark" and (package / "__init__.py").exists() and str(package.parent) in path

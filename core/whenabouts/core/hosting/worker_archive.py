"""The package as one file that an engine sends to its workers, if it is not installed there.

The file is laid out like a wheel, without the metadata.
"""

from __future__ import annotations

import os
import zipfile
from importlib.util import find_spec
from pathlib import Path

from whenabouts.core.deprecation import renamed
from whenabouts.core.errors import Code, QueryError

PARTS = ("cli", "conformance", "core", "flink_plugin", "planner", "spark_plugin")
"""The packages of `whenabouts`; an installation may have some of them."""

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of every file in an archive: equal packages give equal bytes."""


SHIPPED = (".py", ".typed", ".json", ".java")
"""The kinds of files that workers need."""


def build_worker_archive(folder: str | os.PathLike[str] = ".") -> str:
    """Write `whenabouts.zip` into a folder and return its path: for `spark-submit --py-files`, `spark.addArtifacts`
    and `flink run -pyfs`.

    It contains all parts of `whenabouts` that are installed here, but no dependencies: numba, numpy, pyarrow and pandas
    must be installed on the workers, like the engine. Raises QueryError WA-2006 for what is no folder. Cost: half a
    second.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with zipfile.ZipFile(build_worker_archive(folder)) as file:
    ...         "whenabouts/__init__.py" in file.namelist(), "whenabouts/core/__init__.py" in file.namelist()
    (True, True)
    """
    given: object = folder  # users may pass any type
    if not isinstance(given, str | os.PathLike) or not os.path.isdir(given):
        raise QueryError(Code.BAD_OPTION, f"folder is {folder!r}", "give the path of an existing folder")
    path = Path(folder) / "whenabouts.zip"
    entries: dict[str, bytes] = {}
    root = [file for folder in _folders("whenabouts") for file in folder.glob("*.*")]
    stubs = _folders("pyspark_whenabouts")  # lets Spark find the data source
    for base, files in [
        *((file.parents[1], [file]) for file in root),
        *((part.parents[1], part.rglob("*")) for part in parts()),
        *((stub.parent, stub.rglob("*")) for stub in stubs),
    ]:
        for file in files:
            if file.suffix in SHIPPED:
                entries[file.relative_to(base).as_posix()] = file.read_bytes()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as written:
        for entry in sorted(entries):
            written.writestr(zipfile.ZipInfo(entry, EPOCH), entries[entry])
    return str(path)


def parts() -> list[Path]:
    """The folders of the packages of `whenabouts` that Python finds here, each in a folder `whenabouts`.

    They are asked for one by one: in an editable install each has a source root of its own.
    """
    return [folder for part in PARTS for folder in _folders(f"whenabouts.{part}")]


def import_roots() -> list[str]:
    """The folders in which the parts of `whenabouts` lie, for the Python path of workers on this machine."""
    return list(dict.fromkeys(str(part.parents[1]) for part in parts()))


def _folders(package: str) -> list[Path]:
    spec = find_spec(package)
    return [Path(folder) for folder in (spec.submodule_search_locations if spec else None) or ()]


__getattr__ = renamed(__name__, {"archive": "build_worker_archive"})

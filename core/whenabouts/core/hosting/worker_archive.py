"""The package as one file that an engine hands to its workers, where it is not installed there.

It serves where there is no wheel at hand. `whenabouts` is a namespace package, and Python imports one from an archive
only if there are entries for its folders: `setup.py` gives them to our wheels, this module to the file that it writes.
"""

from __future__ import annotations

import os
import zipfile
from importlib.util import find_spec
from pathlib import Path

PARTS = ("cli", "conformance", "core", "flink_plugin", "planner", "spark_plugin")
"""The packages of `whenabouts`, of which an installation may have some."""

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of every file in an archive: equal packages give equal bytes."""


def archive(folder: str | os.PathLike[str] = ".") -> str:
    """Write `whenabouts.zip` into a folder and return its path: for `spark-submit --py-files`, `spark.addArtifacts`
    and `flink run -pyfs`.

    It holds all parts of `whenabouts` that are installed here, and nothing that they need: numba, numpy, pyarrow and
    pandas must be on the workers, as the engine is. Cost: half a second.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with zipfile.ZipFile(archive(folder)) as file:
    ...         "whenabouts/" in file.namelist(), "whenabouts/core/__init__.py" in file.namelist()
    (True, True)
    """
    path = Path(folder) / "whenabouts.zip"
    entries: dict[str, bytes | None] = {}
    stubs = [(folder, folder.parent) for folder in _folders("pyspark_whenabouts")]  # makes Spark find the data source
    for part, root in [*((part, part.parents[1]) for part in parts()), *stubs]:
        for file in sorted(part.rglob("*")):
            if file.suffix in (".py", ".typed", ".json", ".java"):
                name = file.relative_to(root)
                entries |= {f"{parent.as_posix()}/": None for parent in name.parents if parent != Path(".")}
                entries[name.as_posix()] = file.read_bytes()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as written:
        for entry in sorted(entries):
            written.writestr(zipfile.ZipInfo(entry, EPOCH), entries[entry] or b"")
    return str(path)


def parts() -> list[Path]:
    """The folders of the packages of `whenabouts` that Python finds here, each in a folder `whenabouts`.

    They are asked for one by one: an editable install has no folder that holds all of them, and `whenabouts.__path__`
    then names a hook.
    """
    return [folder for part in PARTS for folder in _folders(f"whenabouts.{part}")]


def _folders(package: str) -> list[Path]:
    spec = find_spec(package)
    return [Path(folder) for folder in (spec.submodule_search_locations if spec else None) or ()]

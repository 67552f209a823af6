"""archive_bytecode.py: give the archive from which Spark's Python processes import pyspark its bytecode.

Without it each of them compiles the modules that it imports, 0.7 CPU-s; Spark starts one for every streaming query, and
tests start hundreds. Does nothing where there is no such archive.
"""

from __future__ import annotations

import py_compile
import tempfile
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile


def with_bytecode(archive: Path) -> None:
    """Replace the archive by one that has a `.pyc` beside each module, except for pyspark's own tests."""
    new = archive.with_suffix(".new")
    with ZipFile(archive) as old, ZipFile(new, "w") as target, tempfile.TemporaryDirectory() as name:
        if any(member.endswith(".pyc") for member in old.namelist()):
            new.unlink()
            return
        source, compiled = Path(name) / "source.py", Path(name) / "compiled.pyc"
        for member in old.infolist():
            content = old.read(member)
            target.writestr(member, content)
            if member.filename.endswith(".py") and "/tests/" not in member.filename:
                source.write_bytes(content)
                py_compile.compile(
                    str(source), str(compiled), f"{archive}/{member.filename}", doraise=True,
                    invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
                )  # fmt: skip
                target.write(compiled, f"{member.filename}c")
    new.replace(archive)


if spec := find_spec("pyspark"):
    for archive in Path(str(spec.origin)).parent.glob("python/lib/*.zip"):
        with_bytecode(archive)

"""Wheels with entries for their folders, and editable installs with plain paths; all else is in pyproject.toml.

`whenabouts` is a namespace package, and Python imports one from an archive only if there are such entries. With them
the wheel itself can be shipped to workers: `flink run -pyfs`, `spark-submit --py-files`.

Spread over several source roots, it gets an import hook of setuptools' in an editable install, which type checkers do
not see. They do see a `.pth` file with the roots.
"""

from __future__ import annotations

import tomllib
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

A_FOLDER = 0o40755 << 16 | 0x10
"""What Unix and DOS call one."""


def add_folders(path: str) -> None:
    """Give an archive an entry for each folder of its files."""
    with zipfile.ZipFile(path, "a") as archive:
        parents = {parent.as_posix() for name in archive.namelist() for parent in PurePosixPath(name).parents}
        for folder in sorted(parents - {"."}):
            entry = zipfile.ZipInfo(f"{folder}/")
            entry.external_attr = A_FOLDER
            archive.writestr(entry, b"")


def source_roots() -> list[Path]:
    """The folders in which packages are looked for."""
    here = Path(__file__).resolve().parent
    project = tomllib.loads((here / "pyproject.toml").read_text(encoding="utf-8"))
    return [here / root for root in project["tool"]["setuptools"]["packages"]["find"]["where"]]


class PathFile:
    """What setuptools asks to fill the wheel of an editable install."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> PathFile:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to tidy up."""

    def __call__(self, wheel: Any, files: object, mapping: object) -> None:
        """Write the one file."""
        wheel.writestr(f"__editable__.{self._name}.pth", "".join(f"{root}\n" for root in source_roots()))


def main() -> None:
    """What setuptools calls."""
    from setuptools import setup
    from setuptools.command.bdist_wheel import bdist_wheel
    from setuptools.command.editable_wheel import editable_wheel

    class EditableRoots(editable_wheel):
        def _select_strategy(self, name: str, tag: str, build_lib: Any) -> Any:
            del tag, build_lib
            return PathFile(name)

    class WheelWithFolders(bdist_wheel):
        def run(self) -> None:
            super().run()
            for kind, _, path in self.distribution.dist_files:
                if kind == "bdist_wheel":
                    add_folders(path)

    setup(cmdclass={"bdist_wheel": WheelWithFolders, "editable_wheel": EditableRoots})


if __name__ == "__main__":
    main()

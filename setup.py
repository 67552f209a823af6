"""Wheels with entries for their folders; all else is in pyproject.toml.

`whenabouts` is a namespace package, and Python imports one from an archive only if there are such entries. With them
the wheel itself can be shipped to workers: `flink run -pyfs`, `spark-submit --py-files`.
"""

from __future__ import annotations

import zipfile
from pathlib import PurePosixPath

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


def main() -> None:
    """What setuptools calls."""
    from setuptools import setup
    from setuptools.command.bdist_wheel import bdist_wheel

    class WheelWithFolders(bdist_wheel):
        def run(self) -> None:
            super().run()
            for kind, _, path in self.distribution.dist_files:
                if kind == "bdist_wheel":
                    add_folders(path)

    setup(cmdclass={"bdist_wheel": WheelWithFolders})


if __name__ == "__main__":
    main()

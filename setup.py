"""Where the packages are, and editable installs with plain paths; all else is in pyproject.toml.

`whenabouts` is spread over several source roots. Its `__init__.py` is in the first one; a wheel holds all of it in one
folder, so that the wheel itself can be shipped to workers (docs/shipping.md).

A module of `whenabouts` itself in another root (cli/whenabouts/__main__.py) lies in no folder that setuptools looks
into for it, and is added.

In an editable install setuptools would use an import hook, which type checkers do not see. They do see a `.pth` file
with the roots.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOTS = ("core", "cli", "planner", "spark_plugin", "flink_plugin", "conformance")


def packages() -> dict[str, str]:
    """The folder of each package."""
    folders = [file.parent for root in ROOTS for file in (HERE / root).glob("*whenabouts*/**/__init__.py")]
    by_root = [(folder, HERE / folder.relative_to(HERE).parts[0]) for folder in folders]
    return {
        ".".join(folder.relative_to(root).parts): folder.relative_to(HERE).as_posix()
        for folder, root in sorted(by_root)
    }


def modules() -> list[tuple[str, str, str]]:
    """The modules beside the packages: package, name and file of each."""
    beside = [file for root in ROOTS for file in (HERE / root).glob("*whenabouts*/*.py")]
    alone = [file for file in beside if not file.with_name("__init__.py").exists()]
    return [(file.parent.name, file.stem, file.relative_to(HERE).as_posix()) for file in sorted(alone)]


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
        wheel.writestr(f"__editable__.{self._name}.pth", "".join(f"{HERE / root}\n" for root in ROOTS))


def main() -> None:
    """What setuptools calls."""
    from setuptools import setup
    from setuptools.command.build_py import build_py
    from setuptools.command.editable_wheel import editable_wheel

    class AllModules(build_py):
        def find_package_modules(self, package: str, folder: str) -> list[tuple[str, str, str]]:
            found: list[tuple[str, str, str]] = super().find_package_modules(package, folder)
            return found + [module for module in modules() if module[0] == package]

    class EditableRoots(editable_wheel):
        def _select_strategy(self, name: str, tag: str, build_lib: Any) -> Any:
            del tag, build_lib
            return PathFile(name)

    found = packages()
    setup(packages=list(found), package_dir=found, cmdclass={"build_py": AllModules, "editable_wheel": EditableRoots})


if __name__ == "__main__":
    main()

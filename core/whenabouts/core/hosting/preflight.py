"""Versions of installed packages, and whether they are sufficient. Nothing is imported for this."""

from __future__ import annotations

import re
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from whenabouts.core.errors import Code, EngineError

Release = tuple[int, int]
"""The first two numbers of a version."""

OF_WORKERS: dict[str, Release] = {"numba": (0, 61), "numpy": (2, 0), "pyarrow": (16, 0)}
"""What the Python of an engine's workers needs besides the engine, and from which version on: as in pyproject.toml."""


def installed_version(package: str) -> str | None:
    """The version of an installed package, None if there is none.

    >>> installed_version("no-such-package") is None
    True
    """
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def require_version(package: str, found: str | None, hint: str, *, least: Release, below: int | None = None) -> None:
    """Raise EngineError WA-3002 with `hint` unless `found` is a version from `least` on, of a major below `below`.

    `found`: the version of the package where it runs, None if it is missing.

    >>> require_version("engine", "2.3.1.dev0", "install it", least=(2, 3), below=3)
    >>> require_version("engine", "2.2.9", "install it", least=(2, 3))
    Traceback (most recent call last):
    whenabouts.core.errors.EngineError: WA-3002: engine is 2.2.9, at least 2.3 is needed (hint: install it)
    """
    if found is None:
        raise EngineError(Code.ENGINE_VERSION, f"{package} is not installed", hint)
    numbers = tuple(int(part) for part in re.findall(r"\d+", found)[:2])
    if numbers < least or (below is not None and numbers[0] >= below):
        wanted = f"at least {least[0]}.{least[1]}" + ("" if below is None else f" and below {below}")
        raise EngineError(Code.ENGINE_VERSION, f"{package} is {found}, {wanted} is needed", hint)


@cache
def check_worker() -> None:
    """Raise EngineError WA-3002 in a worker whose Python lacks a package that the operators need, or has an old one.

    The package itself may come with the job, its dependencies do not. A process is checked once.
    """
    needed = ", ".join(f"{package}>={least[0]}.{least[1]}" for package, least in OF_WORKERS.items())
    hint = f"install {needed} for {sys.executable} on every machine, or ship an environment with them: docs/shipping.md"
    for package, least in OF_WORKERS.items():
        found = installed_version(package)
        if found is not None or find_spec(package) is None:  # a package may be there without its metadata
            require_version(package, found, hint, least=least)

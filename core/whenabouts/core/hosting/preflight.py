"""Versions of installed packages, and whether they are sufficient. Nothing is imported for this."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

from whenabouts.core.errors import Code, EngineError

Release = tuple[int, int]
"""The first two numbers of a version."""


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

"""Whether this machine can run Flink, and what to install where it cannot.

Importing this module loads neither Flink nor a JVM.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, version

from whenabouts.core import java
from whenabouts.core.errors import Code, EngineError

LEAST_FLINK = (2, 3)
PYTHONS = ((3, 11), (3, 12))
"""Versions of Python that there is an apache-flink for."""


def flink_version() -> str | None:
    """Version of the installed apache-flink, None if there is none."""
    try:
        return version("apache-flink")
    except PackageNotFoundError:
        return None


def check_environment() -> None:
    """Raise EngineError WA-3001 (Java) or WA-3002 (Python, Flink) with what to install."""
    check_java()
    check_packages()


def check_java() -> None:
    """Raise EngineError WA-3001 unless Flink would find Java 17 or later."""
    java.check_java("Flink")


def check_packages() -> None:
    """Raise EngineError WA-3002 unless an apache-flink is there that is recent enough."""
    found, least = flink_version(), ".".join(map(str, LEAST_FLINK))
    if found is None:
        fit = sys.version_info[:2] in PYTHONS
        hint = "pip install 'whenabouts[flink]'"
        if not fit:
            hint = (
                f"apache-flink has no release for Python {sys.version_info[0]}.{sys.version_info[1]}: use 3.11 or 3.12"
            )
        raise EngineError(Code.ENGINE_VERSION, "apache-flink is not installed", hint)
    numbers = tuple(int(part) for part in re.findall(r"\d+", found)[:2])
    if numbers < LEAST_FLINK or numbers[0] != LEAST_FLINK[0]:
        raise EngineError(
            Code.ENGINE_VERSION,
            f"apache-flink is {found}, at least {least} and below {LEAST_FLINK[0] + 1} is needed",
            "pip install 'whenabouts[flink]'",
        )

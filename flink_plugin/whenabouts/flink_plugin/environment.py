"""Whether this machine can run Flink, and what to install where it cannot.

Importing this module loads neither Flink nor a JVM.
"""

from __future__ import annotations

import sys

from whenabouts.core.hosting import java
from whenabouts.core.hosting.preflight import installed_version, require_version

LEAST_FLINK = (2, 3)
PYTHONS = ((3, 11), (3, 12))
"""Python versions that apache-flink supports."""


def flink_version() -> str | None:
    """Version of the installed apache-flink, None if there is none."""
    return installed_version("apache-flink")


def check_environment() -> None:
    """Raise EngineError WA-3001 (Java) or WA-3002 (Python, Flink) with what to install."""
    check_java()
    check_packages()


def check_java() -> None:
    """Raise EngineError WA-3001 unless Flink would find Java 17 or later."""
    java.check_java("Flink")


def check_packages() -> None:
    """Raise EngineError WA-3002 unless a recent enough apache-flink is installed."""
    found, hint = flink_version(), "pip install 'whenabouts[flink]'"
    if found is None and sys.version_info[:2] not in PYTHONS:
        major, minor = sys.version_info[:2]
        hint = f"apache-flink has no release for Python {major}.{minor}: use 3.11 or 3.12"
    require_version("apache-flink", found, hint, least=LEAST_FLINK, below=LEAST_FLINK[0] + 1)

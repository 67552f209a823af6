"""The release of this package, which plans and calibrated costs record."""

from __future__ import annotations

from importlib import metadata


def release() -> str:
    """The release, as installed."""
    try:
        return metadata.version("whenabouts")
    except metadata.PackageNotFoundError:
        return "from its sources"

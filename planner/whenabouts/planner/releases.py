"""Which release of this package it is: plans and calibrated costs say by which one they were made."""

from __future__ import annotations

from importlib import metadata


def release() -> str:
    """The release, as installed."""
    try:
        return metadata.version("whenabouts")
    except metadata.PackageNotFoundError:
        return "from its sources"

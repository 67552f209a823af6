"""The resources of this machine."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Cores that this process may use; all cores of the machine if the system does not say.

    >>> usable_cores() >= 1
    True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

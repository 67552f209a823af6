"""Socket files, through which Spark can speak with Python instead of through TCP.

Through TCP the second message of Spark to a Python worker waits for the receipt of the first, which the kernel holds
back for 40 ms, in each task that runs Python. A micro-batch of few rows takes a fraction of a second.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from functools import cache

LONGEST_PATH = 103
"""Bytes of a socket's path: 107 on Linux, 103 on macOS."""

_NAME = len("/.01234567-89ab-cdef-0123-456789abcdef.sock")


def socket_file_options(master: str) -> dict[str, str]:
    """The options of a Spark on this machine, whose files are in a folder that goes when this process ends.

    None for other masters, where there are no such files (Windows), and where paths would be too long.
    """
    folder = _folder() if master.startswith("local") and os.name == "posix" else None
    if folder is None:
        return {}
    return {"spark.python.unix.domain.socket.enabled": "true", "spark.python.unix.domain.socket.dir": folder}


@cache
def _folder() -> str | None:
    # Spark removes its files when it is stopped. A process that ends without that leaves one.
    folder = tempfile.mkdtemp(prefix="wa-")
    atexit.register(_remove, folder, os.getpid())
    return folder if len(os.fsencode(folder)) + _NAME <= LONGEST_PATH else None


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # not in a process that was forked
        shutil.rmtree(folder, ignore_errors=True)

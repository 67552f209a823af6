"""What the processes of an engine print: kept from the user's terminal, and shown where it explains a failure."""

from __future__ import annotations

import os
import tempfile
from typing import IO

TRACEBACK = "WHENABOUTS_TRACEBACK"
"""Environment variable: if it is set, failures show the whole traceback, and engines print what they print."""

_SHOWN = 2000


def output_file() -> IO[bytes] | None:
    """A file for what an engine prints, which goes with this process; None where it is to be seen (`TRACEBACK`).

    The file has no name, so that nothing is left of it, however the process ends.
    """
    return None if os.environ.get(TRACEBACK) else tempfile.TemporaryFile(prefix="whenabouts-")


def last_words(file: IO[bytes] | None) -> str:
    r"""The end of what was printed into the file, in one line; empty for None.

    >>> import io
    >>> last_words(io.BytesIO(b"Error: no memory\n  at all\n"))
    'Error: no memory at all'
    """
    if file is None:
        return ""
    file.seek(max(0, file.seek(0, os.SEEK_END) - _SHOWN))
    return " ".join(file.read().decode(errors="replace").split())

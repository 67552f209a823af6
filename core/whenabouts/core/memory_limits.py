"""Limits of memory that environment variables set."""

from __future__ import annotations

import os

from whenabouts.core.errors import Code, QueryError


def bytes_set(name: str, instead: str) -> int | None:
    """The bytes that an environment variable gives, as a number of mebibytes; None if it is not set.

    `instead`: what an error proposes. Raises QueryError WA-2151 for anything but a number.
    """
    given = os.environ.get(name)
    if given is None:
        return None
    if not given.isascii() or not given.isdigit():
        raise QueryError(Code.BAD_SETTING, f"{name} is {given!r}", f"give a number of mebibytes, {instead}")
    return int(given) << 20

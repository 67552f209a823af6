"""Amounts of memory as text."""

from __future__ import annotations

import re

from whenabouts.core.errors import Code, QueryError

_UNITS: dict[str, int] = {"": 1, "b": 1} | {
    prefix + suffix: base**power
    for suffix, base in (("b", 1000), ("ib", 1024))
    for power, prefix in enumerate("kmgt", start=1)
}
_AMOUNT = re.compile(r"\s*(\d+(?:\.\d+)?(?:e\d+)?)\s*([a-z]*)\s*")


def parse_bytes(value: float | str, *, name: str = "memory") -> float:
    """Bytes of an amount: a number, or text with kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (of 1024).

    Raises: QueryError WA-2006 for anything else.

    >>> parse_bytes("2 GiB"), parse_bytes("1.5kB"), parse_bytes(64)
    (2147483648.0, 1500.0, 64.0)
    """
    found = _AMOUNT.fullmatch(str(value).lower())
    if found is None or found[2] not in _UNITS:
        raise QueryError(Code.BAD_OPTION, f"{name} is {value!r}", 'give bytes, or text such as "2 GiB"')
    return float(found[1]) * _UNITS[found[2]]


def format_bytes(size: float) -> str:
    """An amount of memory as text.

    >>> format_bytes(1536), format_bytes(12)
    ('1.5 KiB', '12 B')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{size:.4g} {unit}"

"""Comparison of names without regard to case, letter by letter as in Java: no letter becomes two."""

from __future__ import annotations


def same(one: str, other: str) -> bool:
    """Whether names are equal except for case.

    >>> same("Region", "REGION"), same("Straße", "STRASSE")
    (True, False)
    """
    return folded(one) == folded(other)


def folded(name: str) -> str:
    """A form that is equal for all names that differ only in case."""
    return "".join(_fold(letter) for letter in name)


def _fold(letter: str) -> str:
    upper = letter.upper()
    return (upper if len(upper) == 1 else letter).lower()[0]

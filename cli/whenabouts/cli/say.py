"""Printing for people: control characters in data, names and messages never reach a terminal."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any

import click

from whenabouts.cli.spelled_hints import spelled

_COMMANDS = re.compile(
    r"[\x00-\x1f\x7f-\x9f"  # control characters
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # change the direction of writing
    r"\u2028\u2029\ufff9-\ufffb\U000e0000-\U000e007f"  # line ends, annotations and tags
    r"\ud800-\udfff]"  # surrogates, which cannot be encoded
)


def printable(text: str, kept: str = "\n\t") -> str:
    r"""The text with control characters, and those that change the direction of writing, as escapes.

    >>> print(printable("\x1b[31mred\u202e"))
    \x1b[31mred\u202e
    """
    return _COMMANDS.sub(lambda found: found[0] if found[0] in kept else _escaped(found[0]), text)


def say(text: str = "", *, err: bool = False, file: IO[Any] | None = None) -> None:
    """Print lines on stdout or stderr."""
    click.echo(printable(text), err=err, file=file)


def say_all(lines: Iterable[str], before: str = "") -> None:
    """Print lines for the user on stderr: stdout carries data only."""
    for line in lines:
        say(before + line, err=True)


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Print what is warned of inside as notes on stderr, deprecated names too."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    say_all([spelled(str(warning.message)) for warning in caught], "note: ")


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode()

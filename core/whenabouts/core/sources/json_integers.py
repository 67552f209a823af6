"""Finds integers in JSON lines that no column can hold: Arrow would round them, so that different ones become equal."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from whenabouts.core.errors import Code, InputError

_LONG = re.compile(rb"(?<![0-9.eE+\-])-?[0-9]{16,}(?![0-9.eE])")


def check_integers(file: Path, schema: pa.Schema) -> None:
    """Refuse integers that the columns read by Arrow round (InputError WA-1067, with the row, from 0, and the column).

    Only lines with a number of 16 digits or more are parsed.
    """
    with pa.input_stream(str(file), compression="detect") as stream:
        for row, line in enumerate(line for line in stream.read().splitlines() if line.strip()):
            if not _LONG.search(line):
                continue
            for name, number in _rounded(line, schema):
                raise InputError(
                    Code.VALUE_DOES_NOT_FIT,
                    f"{number} in row {row} of column {name!r} of {file} does not fit "
                    + ("int64" if abs(number) >= 2**63 else "a double, the type that the column's fractions need"),
                    'write such numbers as text, "..."',
                )


def _rounded(line: bytes, schema: pa.Schema) -> Iterator[tuple[str, int]]:
    try:
        members = json.loads(line)
    except (ValueError, RecursionError):
        return  # an object that spans several lines
    for name, value in members.items() if isinstance(members, dict) else ():
        has_integers = name in schema.names and "int64" in str(schema.field(name).type)
        for number in _integers(value):
            if not -(2**63) <= number < 2**63 or (not has_integers and int(float(number)) != number):
                yield name, number


def _integers(value: Any) -> Iterator[int]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _integers(each)
    elif isinstance(value, int):
        yield value

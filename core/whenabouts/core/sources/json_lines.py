"""Refuses invalid JSON lines before Arrow reads them, because some of them crash Arrow's parser and the process.

A row that is `null`, and values nested thousands deep, crash it; other invalid text is silently misread.
"""

from __future__ import annotations

import codecs
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.jit import INT64, READ_UINT8, WRITE_INT64, compiled
from whenabouts.core.errors import Code, InputError

DEEPEST = 64
"""The deepest nesting of objects and lists, counting the row itself: the limit of Arrow's own files."""

_BYTES_AT_ONCE = 1 << 24
_FIRST_BYTES = 1 << 16
_TOO_DEEP, _NO_OBJECT = 1, 2
_DEPTH, _IN_TEXT, _ESCAPED, _LINE, _BEGAN = range(5)
_TAB, _NEWLINE, _RETURN, _SPACE, _QUOTE, _BACKSLASH = b'\t\n\r "\\'
_BRACKET, _BRACKET_END, _BRACE, _BRACE_END = b"[]{}"
_KINDS = {bool: "a truth value", int: "a number", float: "a number", str: "text", dict: "an object", list: "a list"}


def check_json_lines(file: Path) -> None:
    """Check that a file is a sequence of JSON objects in UTF-8 (InputError WA-1008, with the line, from 1).

    A row may span lines, a line may have several rows, and lines may be blank. Cost: a nanosecond or two per byte.
    """
    state = np.array([0, 0, 0, 1, 1], np.int64)
    utf8 = codecs.getincrementaldecoder("utf-8")()
    with pa.input_stream(str(file), compression="detect") as stream:
        first = True
        while chunk := stream.read(_BYTES_AT_ONCE):
            line = int(state[_LINE])
            if first:
                chunk = chunk.removeprefix(codecs.BOM_UTF8)
                first = False
            _check_text(utf8, chunk, file, line)
            found = _scan(np.frombuffer(chunk, np.uint8), state)  # type: ignore[no-untyped-call]  # compiled
            if found == _TOO_DEEP:
                raise _bad(file, int(state[_LINE]), f"nests more than {DEEPEST} objects and lists", "flatten it")
            if found == _NO_OBJECT:
                raise _bad(
                    file, int(state[_LINE]), "has something that is not an object", 'a row is {"column": value, …}'
                )
        _check_text(utf8, b"", file, int(state[_LINE]))
    if state[_DEPTH] or state[_IN_TEXT]:
        raise _bad(file, int(state[_BEGAN]), "begins an object that does not end", "is the file complete?")


def _check_text(utf8: codecs.IncrementalDecoder, chunk: bytes, file: Path, line: int) -> None:
    try:
        utf8.decode(chunk, final=not chunk)
    except UnicodeDecodeError as error:
        line += error.object[: error.start].count(b"\n")
        near = error.object[max(error.start - 10, 0) : error.end + 10]
        raise _bad(file, line, f"is not UTF-8 at {near!r}", "save it as UTF-8") from error


@compiled(INT64(READ_UINT8, WRITE_INT64))
def _scan(data, state):  # type: ignore[no-untyped-def]  # compiled
    """Follow quotes and brackets. Returns 0, or the kind of error, with its line in the state."""
    depth, in_text, escaped, line = state[_DEPTH], state[_IN_TEXT], state[_ESCAPED], state[_LINE]
    found = 0
    for byte in data:
        if byte == _NEWLINE:
            line += 1
        if in_text:
            if escaped:
                escaped = 0
            elif byte == _BACKSLASH:
                escaped = 1
            elif byte == _QUOTE:
                in_text = 0
        elif depth == 0:
            if byte == _BRACE:
                depth = 1
                state[_BEGAN] = line
            elif byte != _SPACE and byte != _NEWLINE and byte != _RETURN and byte != _TAB:
                found = _NO_OBJECT
                break
        elif byte == _QUOTE:
            in_text = 1
        elif byte in (_BRACE, _BRACKET):
            depth += 1
            if depth > DEEPEST:
                found = _TOO_DEEP
                break
        elif byte in (_BRACE_END, _BRACKET_END):
            depth -= 1
    state[_DEPTH], state[_IN_TEXT], state[_ESCAPED], state[_LINE] = depth, in_text, escaped, line
    return found


def names_of_first_row(file: Path) -> list[str]:
    """The columns that the first row of a checked file has, in their order; none if the row is longer than 64 KiB."""
    with pa.input_stream(str(file), compression="detect") as stream:
        text = stream.read(_FIRST_BYTES).decode("utf-8-sig", "ignore")
    try:
        return list(json.JSONDecoder().raw_decode(text.lstrip())[0])
    except ValueError:
        return []


def explain_failure(file: Path) -> InputError | None:
    """Why Arrow cannot read a checked file, by line and column; None if no reason is found.

    Parses the whole file with Python's own parser, so use it only after a failure.
    """
    with pa.input_stream(str(file), compression="detect") as stream:
        text = stream.read().decode("utf-8-sig")
    decoder = json.JSONDecoder(object_pairs_hook=_Members)
    at, line, kinds = 0, 1, dict[str, tuple[str, int]]()
    while True:
        begin = at + len(text[at : at + 1024]) - len(text[at : at + 1024].lstrip())
        line += text.count("\n", at, begin)
        if begin > at:
            at = begin
            continue
        if at == len(text):
            return None
        try:
            row, end = decoder.raw_decode(text, at)
        except ValueError as error:
            where = error.pos if isinstance(error, json.JSONDecodeError) else at
            return _bad(file, line + text.count("\n", at, where), f"is not JSON: {getattr(error, 'msg', error)}", "")
        for name, value in row:
            if value is None:
                continue
            kind = _KINDS[dict if isinstance(value, _Members) else type(value)]
            before, where = kinds.setdefault(name, (kind, line))
            if before != kind:
                return _bad(
                    file, line, f"has {kind} in column {name!r}, which is {before} in line {where}", "write one kind"
                )
        names = [name for name, _ in row]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            return _bad(file, line, f"has column {twice!r} twice", "")
        line += text.count("\n", at, end)
        at = end


class _Members(list[tuple[str, Any]]):
    """The members of a JSON object, in order."""


def _bad(file: Path, line: int, problem: str, hint: str) -> InputError:
    return InputError(Code.UNREADABLE_FILE, f"{file}: line {line} {problem}", hint)

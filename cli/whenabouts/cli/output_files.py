"""Where a command writes to: targets are checked before the work, and a file is complete or absent."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import IO

import pyarrow as pa

from whenabouts.core.errors import Code, EngineError, QueryError
from whenabouts.core.sources.found_files import same_file
from whenabouts.core.sources.whole_files import whole_file

STDOUT = "-"


def check_files(
    targets: Sequence[tuple[str | None, str]], extensions: Collection[str] | None = None, hint: str = ""
) -> None:
    """Refuse targets (path and option) that cannot be written, or that are one file (QueryError WA-2006).

    `extensions`: those that the targets may have, None: any. `-` is stdout, which can be written.
    """
    files = [(target, option) for target, option in targets if target is not None and target != STDOUT]
    for target, _ in files:
        if "\0" in target:
            raise QueryError(Code.BAD_OPTION, f"{target!r} is not a path", "paths have no NUL characters")
    for (one, option), (other, second) in combinations(files, 2):
        if same_file(Path(one), Path(other)):
            raise QueryError(
                Code.BAD_OPTION, f"{option} {one} and {second} {other} are the same file", "name two files"
            )
    for target, option in files:
        if extensions is not None and Path(target).suffix.lower() not in extensions:
            raise QueryError(Code.BAD_OPTION, f"{option} {target}: unknown extension", hint)
        _check_place(target, option)


def check_page(html: str | None) -> None:
    """Refuse stdout, which has the report, as the file of its page (QueryError WA-2006)."""
    if html == STDOUT:
        raise QueryError(Code.BAD_OPTION, "--html - is not possible", "stdout is reserved for the report: name a file")


def _check_place(target: str, option: str) -> None:
    path = Path(target)
    if path.is_dir():
        raise QueryError(Code.BAD_OPTION, f"{option} {target} is a folder", "give the name of a file")
    if _is_device(path):
        return
    if path.is_symlink():
        path = Path(os.path.realpath(path))
    if not path.parent.is_dir():
        raise QueryError(Code.BAD_OPTION, f"{option} {target}: there is no folder {path.parent}", "create it first")
    if not os.access(path.parent, os.W_OK):
        raise QueryError(Code.BAD_OPTION, f"{option} {target}: the folder is not writable", "write elsewhere")


def _is_device(path: Path) -> bool:
    """Whether it is a named pipe, a terminal or the like, which no file may replace."""
    return path.exists() and not path.is_file()


@contextmanager
def output_file(target: str | Path) -> Iterator[IO[bytes]]:
    """The file of an output, under its name only when it is complete. A link is followed; what is no file, such as a
    named pipe, is written to as it is. Raises: EngineError WA-3005 for failed writes."""
    path = Path(target)
    with reported_if_not_written(target):
        if _is_device(path):
            with path.open("wb") as file:
                yield file
        else:
            with whole_file(Path(os.path.realpath(path))) as file:
                yield file


@contextmanager
def reported_if_not_written(target: str | Path) -> Iterator[None]:
    """Turn failed writes into EngineError WA-3005."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise EngineError(Code.ENGINE_FAILED, f"{target} could not be written: {error}", "is the disk full?") from error

"""Which files a path means: a file, all files below a folder, or a glob. What cannot be looked into is an error."""

from __future__ import annotations

import os
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from stat import S_ISDIR

from whenabouts.core.errors import Code, InputError

_MAGIC = frozenset("*?[")


def check_path(path: str, what: str = "input") -> None:
    """Refuse a path that is empty, which the system would take for the working directory (InputError WA-1008)."""
    if not path.strip():
        raise InputError(Code.UNREADABLE_FILE, f"the path of the {what} is empty", "write . for the working directory")
    if "\0" in path:
        raise InputError(Code.UNREADABLE_FILE, f"{path!r}: a path holds no NUL character", "")


def files_below(root: Path) -> list[Path]:
    """All that is no folder below a folder, in order of their names; links to folders are followed.

    Names that begin with `_` or `.` are other programs' markers and passed over. Raises: InputError WA-1008 for a
    folder that cannot be read, a link that leads nowhere, and a link to a folder in which it lies itself.
    """
    return sorted(_below(root, ()))


def _below(folder: Path, above: tuple[tuple[int, int], ...]) -> Iterator[Path]:
    place = place_of(folder)
    if place in above:
        raise _refused(folder, "the link leads to a folder that it lies in", "remove it, or name the files by a glob")
    for path in _inside(folder):
        if path.name.startswith(("_", ".")):
            continue
        if is_folder(path):
            yield from _below(path, (*above, place))
        else:
            yield path


def matching(pattern: str) -> list[Path]:
    """All that a glob matches, in order of their text; `**` is any number of folders, links among them.

    Names that begin with a dot need a pattern that does. Raises: as `files_below`.

    >>> matching("no-such-folder/*.csv")
    []
    """
    path = Path(pattern)
    start = Path(path.anchor) if path.anchor else Path()
    return sorted(set(_matches(start, list(path.parts[1:] if path.anchor else path.parts), ())))


def _matches(folder: Path, parts: list[str], above: tuple[tuple[int, int], ...]) -> Iterator[Path]:
    if not parts:
        yield folder
        return
    part, rest = parts[0], parts[1:]
    if part == "**":
        yield from _matches(folder, rest or ["*"], ())
        place = place_of(folder)
        for inner in _inside(folder) if place not in above else ():
            if not inner.name.startswith(".") and is_folder(inner):
                yield from _matches(inner, parts, (*above, place))
    elif not _MAGIC & set(part):
        if os.path.lexists(folder / part):
            yield from _matches(folder / part, rest, ())
        else:
            _look_into(folder)
    else:
        for inner in _inside(folder):
            hidden = inner.name.startswith(".") and not part.startswith(".")
            if not hidden and fnmatchcase(inner.name, part) and (not rest or is_folder(inner)):
                yield from _matches(inner, rest, ())


def _inside(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return sorted(folder / entry.name for entry in entries)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise _refused(folder, f"the folder cannot be read: {error.strerror or error}", "") from error


def _look_into(folder: Path) -> None:
    """A name that is not there may be there in a folder that cannot be entered."""
    if folder.is_dir() and not os.access(folder, os.X_OK):
        raise _refused(folder, "the folder cannot be entered", "")


def place_of(path: Path) -> tuple[int, int]:
    """By what a file system knows a file or a folder, whatever it is called."""
    found = _status(path)
    return found.st_dev, found.st_ino


def is_folder(path: Path) -> bool:
    """Whether it is a folder, also by a link. Raises: InputError WA-1008 for a link that leads nowhere."""
    return S_ISDIR(_status(path).st_mode)


def _status(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except FileNotFoundError as error:
        raise _refused(path, "the link leads nowhere", "remove it, or bring back what it leads to") from error
    except OSError as error:
        raise _refused(path, f"it cannot be looked at: {error.strerror or error}", "") from error


def same_file(one: Path, other: Path) -> bool:
    """Whether two paths are one file, also by links; a file that does not exist yet is where its folder is."""
    if one.exists() and other.exists():
        return one.samefile(other)
    return os.path.realpath(one) == os.path.realpath(other)


def _refused(path: Path, problem: str, hint: str) -> InputError:
    return InputError(Code.UNREADABLE_FILE, f"{path}: {problem}", hint)

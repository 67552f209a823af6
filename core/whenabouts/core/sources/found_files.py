"""Finds the files that a path means: a file, all files below a folder, or a glob. Inaccessible folders are errors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from stat import S_ISDIR

from whenabouts.core.errors import Code, InputError

_MAGIC = frozenset("*?[")


def check_path(path: str, what: str = "input") -> None:
    """Refuse an empty path, which the system would read as the working directory (InputError WA-1008)."""
    if not path.strip():
        raise InputError(Code.UNREADABLE_FILE, f"the path of the {what} is empty", "write . for the working directory")
    if "\0" in path:
        raise InputError(Code.UNREADABLE_FILE, f"{path!r}: a path cannot contain a NUL character", "")


def files_below(root: Path) -> list[Path]:
    """All files below a folder, sorted by name; links to folders are followed.

    Names that begin with `_` or `.` are other programs' markers and are skipped. Raises: InputError WA-1008 for a
    folder that cannot be read, a broken link, and a link to a folder that contains it.
    """
    return sorted(_below(root, ()))


def _below(folder: Path, above: tuple[tuple[int, int], ...]) -> Iterator[Path]:
    identity = file_id(folder)
    if identity in above:
        raise _refused(folder, "the link leads to a folder that contains it", "remove it, or name the files by a glob")
    for path in _inside(folder):
        if path.name.startswith(("_", ".")):
            continue
        if is_folder(path):
            yield from _below(path, (*above, identity))
        else:
            yield path


def matching(pattern: str) -> list[Path]:
    """Everything that a glob matches, sorted; `**` matches any number of folders, links included.

    Names that begin with a dot match only patterns that do. Raises: as `files_below`.

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
        identity = file_id(folder)
        for inner in _inside(folder) if identity not in above else ():
            if not inner.name.startswith(".") and is_folder(inner):
                yield from _matches(inner, parts, (*above, identity))
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
    """Raise if the folder cannot be entered: a name in it may then exist although it is not found."""
    if folder.is_dir() and not os.access(folder, os.X_OK):
        raise _refused(folder, "the folder cannot be entered", "")


def file_id(path: Path) -> tuple[int, int]:
    """The file system's identity of a file or folder, which all its names share."""
    found = _status(path)
    return found.st_dev, found.st_ino


def is_folder(path: Path) -> bool:
    """Whether it is a folder or a link to one. Raises: InputError WA-1008 for a broken link."""
    return S_ISDIR(_status(path).st_mode)


def _status(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except FileNotFoundError as error:
        raise _refused(path, "the link leads nowhere", "remove it, or restore its target") from error
    except OSError as error:
        raise _refused(path, f"it cannot be accessed: {error.strerror or error}", "") from error


def same_file(one: Path, other: Path) -> bool:
    """Whether two paths are the same file, also by links; paths that do not exist yet are compared after resolving."""
    if one.exists() and other.exists():
        return one.samefile(other)
    return os.path.realpath(one) == os.path.realpath(other)


def _refused(path: Path, problem: str, hint: str) -> InputError:
    return InputError(Code.UNREADABLE_FILE, f"{path}: {problem}", hint)

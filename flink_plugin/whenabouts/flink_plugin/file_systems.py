"""Where files are: in this machine, or on a file system that pyarrow or fsspec knows."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import fs

from whenabouts.core.errors import Code, InputError

KINDS = (".parquet", ".arrow", ".feather", ".csv", ".csv.gz")
"""Files that are read."""

LOCAL = fs.LocalFileSystem()


class File(NamedTuple):
    """A file by its path on its file system; `size`: its bytes."""

    system: fs.FileSystem
    path: str
    size: int = 0


def listed(paths: str | Path | Sequence[str | Path], filesystem: Any = None) -> list[File]:
    """The files of paths, folders and globs, in the order of the paths and then of their names.

    `filesystem`: of pyarrow or fsspec, that all paths are on; None: a URI says its own (`s3://bucket/folder`), and any
    other path is in this machine. Raises InputError WA-1008 where there is no such file system, no file at all, or one
    of another kind. Cost: one question for each path, two for a folder or a glob.
    """
    paths = [paths] if isinstance(paths, str | Path) else paths
    found = []
    for path in paths:
        try:
            system, at = _placed(os.fspath(path), filesystem)
            found += [File(system, file, size) for file, size in _expanded(system, at)]
        except (OSError, pa.ArrowException, ImportError, ValueError) as error:
            hint = "give files, folders or globs of this machine, or of a file system that pyarrow or fsspec knows"
            raise InputError(Code.UNREADABLE_FILE, f"{shown(path)} cannot be listed: {error}", hint) from error
    for file in found:
        if not file.path.endswith(KINDS):
            raise InputError(
                Code.UNREADABLE_FILE, f"{file.path} is not a kind of file that can be read", f"give {', '.join(KINDS)}"
            )
    if not found:
        given = ", ".join(map(shown, paths))
        raise InputError(Code.UNREADABLE_FILE, f"there is no file at {given}", "give files, folders or globs")
    return found


def shown(path: str | Path) -> str:
    """A path for people: a URI without what it may hold of passwords and options.

    >>> shown("s3://me:secret@bucket/in/*.csv?region=eu-west-1")
    's3://bucket/in/*.csv'
    """
    scheme, mark, rest = str(path).partition("://")
    if not mark:
        return scheme
    host, slash, index = rest.partition("?")[0].partition("/")
    return scheme + mark + host.rpartition("@")[2] + slash + index


def arrow_file_system(given: Any) -> fs.FileSystem:
    """A file system of pyarrow's, also of one of fsspec's."""
    return given if isinstance(given, fs.FileSystem) else fs.PyFileSystem(fs.FSSpecHandler(given))


def _placed(path: str, filesystem: Any) -> tuple[fs.FileSystem, str]:
    """The file system of a path, and the path there."""
    if filesystem is not None:
        return arrow_file_system(filesystem), path
    if "://" not in path:
        if not path:
            raise ValueError("the path is empty")
        return LOCAL, str(Path(path).absolute())
    uri, question, options = path.partition("?")  # the part after it is for the file system
    plain, slash, pattern = _cut(uri)
    system, base = _of_uri(plain + question + options)
    return system, base + slash + pattern


def _of_uri(uri: str) -> tuple[fs.FileSystem, str]:
    try:
        system, path = fs.FileSystem.from_uri(uri)
    except pa.ArrowInvalid as unknown:
        if "nrecognized filesystem type" not in str(unknown):
            raise
        system, path = import_module("fsspec.core").url_to_fs(uri)
    return arrow_file_system(system), path


def _cut(path: str) -> tuple[str, str, str]:
    """A path up to the folder whose names a glob begins to match, a slash, and the glob; or the path alone."""
    parts = path.split("/")
    for index, part in enumerate(parts):
        if glob.has_magic(part):
            return "/".join(parts[:index]), "/", "/".join(parts[index:])
    return path, "", ""


def _expanded(system: fs.FileSystem, path: str) -> list[tuple[str, int]]:
    """Paths of files, and their bytes."""
    (info,) = system.get_file_info([path])
    if info.type is fs.FileType.File:
        return [(path, info.size)]
    if info.type is fs.FileType.Directory:
        inside = [each for each in system.get_file_info(fs.FileSelector(path)) if each.is_file]
        marks = ("_", ".")  # of other programs
        return sorted(
            (each.path, each.size)
            for each in inside
            if each.path.endswith(KINDS) and not each.base_name.startswith(marks)
        )
    folder, _, pattern = _cut(path)
    return sorted(set(_matching(system, folder, pattern.split("/")))) if pattern else []


def _matching(system: fs.FileSystem, folder: str, patterns: list[str]) -> list[tuple[str, int]]:
    """Files of a folder that match a glob, one pattern for each folder on the way; hidden ones only by name. `**`
    stands for any number of folders, links to folders left out."""
    pattern, *rest = patterns
    wanted = fs.FileType.Directory if rest else fs.FileType.File
    found: list[tuple[str, int]] = []
    if pattern == "**":
        found += _matching(system, folder, rest or ["*"])
    for info in system.get_file_info(fs.FileSelector(folder or "/", allow_not_found=True)):
        hidden = info.base_name.startswith(".") and not pattern.startswith(".")
        if pattern == "**":
            if info.type is fs.FileType.Directory and not hidden and not os.path.islink(info.path):
                found += _matching(system, info.path, patterns)
        elif info.type is wanted and not hidden and fnmatchcase(info.base_name, pattern):
            found += _matching(system, info.path, rest) if rest else [(info.path, info.size)]
    return found

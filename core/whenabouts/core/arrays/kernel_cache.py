"""numba's cache of compiled kernels with checksums: a file damaged by a full disk or a power cut is compiled again.

numba unpickles its cache files without a check and passes the code to LLVM, so a damaged file would crash the process.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import os
import pickle
import stat
import sys
import tempfile
from collections.abc import Callable
from functools import update_wrapper
from pathlib import Path
from types import FunctionType
from typing import Any, cast

from numba.core.caching import FunctionCache, IndexDataCacheFile

_LOG = logging.getLogger("whenabouts.kernels")

_DIGEST_BYTES = 16


class KernelCache(FunctionCache):
    """The cache of one kernel, with checked files."""

    def __init__(self, function: Callable[..., Any], parts: bytes) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]  # numba ships no types
        self._cache_file.__class__ = CheckedCacheFile
        self._cache_file._source_stamp = self._cache_file._source_stamp, parts

    @classmethod
    def of(cls, function: Callable[..., Any], parts: bytes) -> KernelCache | None:
        """The cache of a function; None if there is nowhere to keep it. `parts`: a digest of what else the compiled
        code depends on (`kernel_parts`)."""
        # A kernel from a terminal or a doctest has no source file, so it cannot be cached.
        if function.__code__.co_filename.startswith("<"):
            return None
        for placed in (_as_it_is, _in_temporary_file):
            try:
                cache = cls(placed(function, parts), parts)
                if not cache.is_filled():
                    cache._impl.locator.ensure_cache_path()
                return cache
            except (OSError, RuntimeError) as error:
                if isinstance(error, RuntimeError) and "cannot cache" not in str(error):
                    raise
        return None

    @property
    def lock_path(self) -> str:
        """A file that a process locks while it compiles the kernel."""
        return f"{self._cache_file._index_path}.lock"

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store compiled code, which is used all the same if that fails, as on a full disk."""
        try:
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]  # as above
        except OSError as error:
            _LOG.info("%s is not kept: %s", self._name, error)

    def is_filled(self) -> bool:
        """Whether the kernel can be read from here."""
        return bool(self._cache_file._load_index())  # type: ignore[no-untyped-call]  # as above


class CheckedCacheFile(IndexDataCacheFile):
    """Cache files that end with a digest of their contents and of what the code is made of. A file whose digest is
    wrong is ignored: it is damaged, or of another release, which may write at the same time."""

    def _dump(self, obj: Any) -> bytes:
        data: bytes = super()._dump(obj)  # type: ignore[no-untyped-call]  # numba ships no types
        return data + self._digest(data)

    def _load_index(self) -> dict[Any, str]:
        """Data files by signature; empty if the index is damaged, or is from another numba or another source."""
        try:
            with open(self._index_path, "rb") as file:
                content = file.read()
        except FileNotFoundError:
            return {}
        version = pickle.dumps(self._version, protocol=-1)
        data = self._checked(content[len(version) :])
        if data is None or not content.startswith(version):
            return {}
        _, overloads = pickle.loads(data)
        return dict(overloads)

    def _load_data(self, name: str) -> Any:
        """Compiled code. Raises OSError for a damaged file; numba then compiles again."""
        path = self._data_path(name)  # type: ignore[no-untyped-call]  # as above
        with open(path, "rb") as file:
            data = self._checked(file.read())
        if data is None:
            raise OSError(f"{path} is damaged, or of another release")
        return pickle.loads(data)

    def _digest(self, data: bytes) -> bytes:
        key = hashlib.blake2b(pickle.dumps(self._source_stamp)).digest()
        return hashlib.blake2b(data, digest_size=_DIGEST_BYTES, key=key).digest()

    def _checked(self, content: bytes) -> bytes | None:
        """The data before the digest; None if the digest does not match."""
        data = content[:-_DIGEST_BYTES]
        return data if content[-_DIGEST_BYTES:] == self._digest(data) else None


def _as_it_is(function: Callable[..., Any], _: bytes) -> Callable[..., Any]:
    return function


def _in_temporary_file(function: Callable[..., Any], parts: bytes) -> Callable[..., Any]:
    """The function, as if its module were in a private temporary file.

    numba keeps its cache next to the source, or in the user's cache folder. Workers of a cluster may have neither: the
    package may be imported from an archive (`--py-files`), and the user may have no home. The name of the copy is a
    digest of its contents and of `parts`, so each release has its own. The folder is refused if others can write to it,
    because the contents of a cache are executed.
    """
    folder = Path(tempfile.gettempdir()) / f"whenabouts-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise OSError(f"{folder} can be written by others")
    source = inspect.getsource(sys.modules[function.__module__])
    digest = hashlib.blake2b(source.encode() + parts, digest_size=8).hexdigest()
    path = folder / f"{function.__module__.rpartition('.')[2]}_{digest}.py"
    if not path.exists():  # several processes may write it at once, all the same: the last one replaces it
        with tempfile.NamedTemporaryFile("w", dir=folder, encoding="utf-8", delete=False) as file:
            file.write(source)
        os.replace(file.name, path)
    code = function.__code__.replace(co_filename=str(path))
    copy = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    return cast(Callable[..., Any], update_wrapper(copy, function, updated=()))

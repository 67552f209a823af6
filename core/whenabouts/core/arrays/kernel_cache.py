"""numba's cache of compiled kernels with checksums: a file damaged by a full disk or a power cut is compiled again.

numba unpickles its cache files without a check and passes the code to LLVM, so a damaged file would crash the process.
"""

from __future__ import annotations

import hashlib
import pickle
from typing import Any

from numba.core.caching import IndexDataCacheFile

_DIGEST_BYTES = 16


class CheckedCacheFile(IndexDataCacheFile):
    """Cache files that end with a digest of their contents; a file whose digest is wrong is ignored."""

    @classmethod
    def check(cls, dispatcher: Any) -> None:
        """Make a dispatcher use checked files instead of numba's; call it before anything is compiled."""
        dispatcher._cache._cache_file.__class__ = cls

    @staticmethod
    def is_there(dispatcher: Any) -> bool:
        """Whether a dispatcher can be read from the cache."""
        return bool(dispatcher._cache._cache_file._load_index())

    def _dump(self, obj: Any) -> bytes:
        data: bytes = super()._dump(obj)  # type: ignore[no-untyped-call]  # numba ships no types
        return data + _digest(data)

    def _load_index(self) -> dict[Any, str]:
        """Data files by signature; empty if the index is damaged, or is from another numba or another source."""
        try:
            with open(self._index_path, "rb") as file:
                content = file.read()
        except FileNotFoundError:
            return {}
        version = pickle.dumps(self._version, protocol=-1)
        data = _checked(content[len(version) :])
        if data is None or not content.startswith(version):
            return {}
        try:
            stamp, overloads = pickle.loads(data)
        except (AttributeError, ImportError):  # signatures name a class that another version of the source had
            return {}
        return dict(overloads) if stamp == self._source_stamp else {}

    def _load_data(self, name: str) -> Any:
        """Compiled code. Raises OSError for a damaged file; numba then compiles again."""
        path = self._data_path(name)  # type: ignore[no-untyped-call]  # as above
        with open(path, "rb") as file:
            data = _checked(file.read())
        if data is None:
            raise OSError(f"{path} is damaged")
        return pickle.loads(data)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()


def _checked(content: bytes) -> bytes | None:
    """The data before the digest; None if the digest does not match."""
    data = content[:-_DIGEST_BYTES]
    return data if content[-_DIGEST_BYTES:] == _digest(data) else None

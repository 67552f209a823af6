"""numba's cache of compiled kernels, checked: what a full disk or a power cut left of a file is compiled again.

numba unpickles whatever stands in its files and hands it to LLVM, and code with a hole in it ends the process.
"""

from __future__ import annotations

import hashlib
import pickle
from typing import Any

from numba.core.caching import IndexDataCacheFile

_DIGEST_BYTES = 16


class CheckedCacheFile(IndexDataCacheFile):
    """Files with a digest at their end; one without its digest holds nothing."""

    @classmethod
    def check(cls, dispatcher: Any) -> None:
        """Let a dispatcher, of which nothing has been compiled yet, use checked files in place of numba's own."""
        dispatcher._cache._cache_file.__class__ = cls

    def _dump(self, obj: Any) -> bytes:
        data: bytes = super()._dump(obj)  # type: ignore[no-untyped-call]  # numba ships no types
        return data + _digest(data)

    def _load_index(self) -> dict[Any, str]:
        """Data files by signature: none where the index is damaged, of another numba, or of another source."""
        try:
            with open(self._index_path, "rb") as file:
                content = file.read()
        except FileNotFoundError:
            return {}
        version = pickle.dumps(self._version, protocol=-1)
        data = _checked(content[len(version) :])
        if data is None or not content.startswith(version):
            return {}
        stamp, overloads = pickle.loads(data)
        return dict(overloads) if stamp == self._source_stamp else {}

    def _load_data(self, name: str) -> Any:
        """Compiled code. Raises: OSError, upon which numba compiles again."""
        path = self._data_path(name)  # type: ignore[no-untyped-call]  # as above
        with open(path, "rb") as file:
            data = _checked(file.read())
        if data is None:
            raise OSError(f"{path} is damaged")
        return pickle.loads(data)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()


def _checked(content: bytes) -> bytes | None:
    """What a digest stands behind; None where it is another's."""
    data = content[:-_DIGEST_BYTES]
    return data if content[-_DIGEST_BYTES:] == _digest(data) else None

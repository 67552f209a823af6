"""The typed decorator for kernels and their array types; other modules use numba only through it.

Importing numba takes about half a second, so no module that ``import whenabouts.core`` loads may import this one.
Modules with kernels are imported when a query first needs them. Kernels have explicit signatures; they are compiled
once per machine and then read from numba's disk cache. Arrays that a kernel only reads are declared read-only: numba
accepts a writable array for a read-only parameter but not the reverse, and Arrow buffers are read-only.

Cache files are checked before use (`kernel_cache`). The cache depends on the source file of the kernel itself, not on
those of the kernels it calls: after editing ``satisfaction_probability`` delete the ``*.nbi`` files, or callers keep
the old code.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import os
import stat
import sys
import tempfile
from collections.abc import Callable
from functools import update_wrapper
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, cast

import numba
from numba import types

from whenabouts.core.arrays.kernel_cache import CheckedCacheFile

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

_LOG = logging.getLogger("whenabouts.kernels")
"""A message at level INFO for each kernel that is compiled, and not read from the cache."""

INT32 = types.int32
INT64 = types.int64
UINT64 = types.uint64
FLOAT64 = types.float64
BOOL = types.boolean
READ_BOOL = types.Array(types.boolean, 1, "C", readonly=True)
WRITE_BOOL = types.Array(types.boolean, 1, "C")
READ_UINT8 = types.Array(types.uint8, 1, "C", readonly=True)
READ_UINT64 = types.Array(types.uint64, 1, "C", readonly=True)
WRITE_UINT64 = types.Array(types.uint64, 1, "C")
READ_INT64 = types.Array(types.int64, 1, "C", readonly=True)
READ_INT64_2D = types.Array(types.int64, 2, "C", readonly=True)
READ_FLOAT64 = types.Array(types.float64, 1, "C", readonly=True)
READ_INT64_3D = types.Array(types.int64, 3, "C", readonly=True)
WRITE_INT64_3D = types.Array(types.int64, 3, "C")
READ_INT32 = types.Array(types.int32, 1, "C", readonly=True)
READ_INT32_2D = types.Array(types.int32, 2, "C", readonly=True)
WRITE_INT64 = types.Array(types.int64, 1, "C")
WRITE_INT64_2D = types.Array(types.int64, 2, "C")
WRITE_INT32 = types.Array(types.int32, 1, "C")
WRITE_INT32_2D = types.Array(types.int32, 2, "C")
WRITE_FLOAT64 = types.Array(types.float64, 1, "C")
TWO_INT64 = types.Tuple((types.int64,) * 2)  # type: ignore[no-untyped-call]  # numba ships no types
THREE_INT64 = types.Tuple((types.int64,) * 3)  # type: ignore[no-untyped-call]  # as above
FOUR_INT64 = types.Tuple((types.int64,) * 4)  # type: ignore[no-untyped-call]  # as above


def compiled(signature: Any, *, inline: bool = False) -> Callable[[Kernel], Kernel]:
    """Compile a kernel for ``signature``, with IEEE arithmetic: without fast-math every variant of a kernel gives the
    same bits.

    ``inline`` forces LLVM to inline it. Otherwise each call updates the reference counts of its arrays, about 30 ns.

    >>> @compiled(INT64(INT64))
    ... def double(x):
    ...     return 2 * x
    >>> double(21)
    42
    """

    def decorate(function: Kernel) -> Kernel:
        def compile_(source: Kernel, cache: bool) -> Kernel:
            kernel: Any = numba.njit(nogil=True, error_model="numpy", forceinline=inline)(source)
            if cache:
                kernel.enable_caching()
                CheckedCacheFile.check(kernel)
                if not CheckedCacheFile.is_there(kernel):
                    _LOG.info("compiling %s", function.__name__)
            kernel.compile(signature)
            kernel.disable_compile()
            return cast(Kernel, kernel)

        # A kernel from a terminal or a doctest has no source file, so it cannot be cached.
        if function.__code__.co_filename.startswith("<"):
            return compile_(function, cache=False)
        for placed in (_as_it_is, _in_temporary_file):
            try:
                return compile_(placed(function), cache=True)
            except (OSError, RuntimeError) as error:
                if isinstance(error, RuntimeError) and "cannot cache" not in str(error):
                    raise
        return compile_(function, cache=False)

    return decorate


def _as_it_is(function: Kernel) -> Kernel:
    return function


def _in_temporary_file(function: Kernel) -> Kernel:
    """The function, as if its module were in a private temporary file.

    numba keeps its cache next to the source, or in the user's cache folder. Workers of a cluster may have neither: the
    package may be imported from an archive (`--py-files`), and the user may have no home. The name of the copy is a
    digest of its contents, so each release has its own. The folder is refused if others can write to it, because the
    contents of a cache are executed.
    """
    folder = Path(tempfile.gettempdir()) / f"whenabouts-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise OSError(f"{folder} can be written by others")
    source = inspect.getsource(sys.modules[function.__module__])
    digest = hashlib.blake2b(source.encode(), digest_size=8).hexdigest()
    path = folder / f"{function.__module__.rpartition('.')[2]}_{digest}.py"
    if not path.exists():  # several processes may write it at once, all the same: the last one replaces it
        with tempfile.NamedTemporaryFile("w", dir=folder, encoding="utf-8", delete=False) as file:
            file.write(source)
        os.replace(file.name, path)
    code = function.__code__.replace(co_filename=str(path))
    copy = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    return cast(Kernel, update_wrapper(copy, function, updated=()))

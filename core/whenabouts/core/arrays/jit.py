"""The one place that touches numba: a typed decorator and the array types of the kernels.

Importing numba costs about half a second, so nothing that ``import whenabouts.core`` loads may import this
module; the modules with kernels are imported when a query first needs them. Kernels have explicit signatures,
compiled once per machine and then read from numba's disk cache. Arrays that a kernel only reads are declared
read-only: numba passes a writable array for a read-only one but not the other way round, and buffers that
come from Arrow are read-only.

Files of the cache are checked before they are used (`kernel_cache`). The cache looks at the source file of the
kernel itself, not of the kernels it calls: after an edit of ``satisfaction_probability`` delete the ``*.nbi``
files, or callers keep the old code.
"""

from __future__ import annotations

import hashlib
import inspect
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

INT32 = types.int32
INT64 = types.int64
UINT64 = types.uint64
FLOAT64 = types.float64
BOOL = types.boolean
READ_UINT8 = types.Array(types.uint8, 1, "C", readonly=True)
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
    """Compile a kernel for ``signature`` (IEEE arithmetic: no fast-math, so every form of a kernel gives the
    same bits).

    ``inline`` forces LLVM to inline it: a call that passes arrays otherwise counts references, some 30 ns.

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
            kernel.compile(signature)
            kernel.disable_compile()
            return cast(Kernel, kernel)

        # A kernel typed into a terminal (or a doctest) has no file, hence nowhere to cache.
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
    """The function as if its module lay in a file of ours among the temporary files.

    numba keeps its cache beside the source, or in the user's cache folder. Workers of a cluster may have neither: the
    package may be read from an archive (`--py-files`), and the user may have no home. The copy's name tells what is in
    it, so that other releases have other copies, and its folder is refused unless it is ours alone: what is in a cache
    is run.
    """
    folder = Path(tempfile.gettempdir()) / f"whenabouts-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise OSError(f"{folder} can be written by others")
    source = inspect.getsource(sys.modules[function.__module__])
    digest = hashlib.blake2b(source.encode(), digest_size=8).hexdigest()
    path = folder / f"{function.__module__.rpartition('.')[2]}_{digest}.py"
    if not path.exists():  # others may be writing it too: each its own, and whoever is last replaces it by the same
        with tempfile.NamedTemporaryFile("w", dir=folder, encoding="utf-8", delete=False) as file:
            file.write(source)
        os.replace(file.name, path)
    code = function.__code__.replace(co_filename=str(path))
    copy = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    return cast(Kernel, update_wrapper(copy, function, updated=()))

"""The one place that touches numba: a typed decorator and the array types of the kernels.

Importing numba costs about half a second, so nothing that ``import whenabouts.core`` loads may import this
module; the modules with kernels are imported when a query first needs them. Kernels have explicit signatures,
compiled once per machine and then read from numba's disk cache. Arrays that a kernel only reads are declared
read-only: numba passes a writable array for a read-only one but not the other way round, and buffers that
come from Arrow are read-only.

numba's cache looks at the source file of the kernel itself, not of the kernels it calls: after an edit of
``satisfaction_probability`` delete the ``*.nbi`` files, or callers keep the old code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
from numba import types

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

INT32 = types.int32
INT64 = types.int64
UINT64 = types.uint64
FLOAT64 = types.float64
BOOL = types.boolean
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
        # A kernel typed into a terminal (or a doctest) has no file, hence nowhere to cache.
        in_a_file = not function.__code__.co_filename.startswith("<")
        kernel: Kernel = numba.njit(signature, cache=in_a_file, nogil=True, error_model="numpy", forceinline=inline)(
            function
        )
        return kernel

    return decorate

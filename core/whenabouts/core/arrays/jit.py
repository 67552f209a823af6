"""The typed decorator for kernels and their array types; other modules use numba only through it.

Importing numba takes about half a second, so no module that ``import whenabouts.core`` loads may import this one.
Modules with kernels are imported when a query first needs them. Kernels have explicit signatures; they are compiled
once per machine, when they are first needed, and then read from numba's disk cache (`kernel`). Arrays that a kernel
only reads are declared read-only: numba accepts a writable array for a read-only parameter but not the reverse, and
Arrow buffers are read-only.

Cache files are checked before use (`kernel_cache`). A kernel is compiled again when its source file changes, or the
code or a constant of any kernel that it calls (`kernel_parts`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import types

from whenabouts.core.arrays.kernel import Kernel

Function = TypeVar("Function", bound=Callable[..., Any])

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
TWO_FLOAT64 = types.Tuple((types.float64,) * 2)  # type: ignore[no-untyped-call]  # numba ships no types
TWO_INT64 = types.Tuple((types.int64,) * 2)  # type: ignore[no-untyped-call]  # numba ships no types
THREE_INT64 = types.Tuple((types.int64,) * 3)  # type: ignore[no-untyped-call]  # as above
FOUR_INT64 = types.Tuple((types.int64,) * 4)  # type: ignore[no-untyped-call]  # as above


def compiled(signature: Any, *, inline: bool = False) -> Callable[[Function], Function]:
    """Compile a kernel for ``signature``, with IEEE arithmetic: without fast-math every variant of a kernel gives the
    same bits.

    ``inline`` forces LLVM to inline it. Otherwise each call updates the reference counts of its arrays, about 30 ns.

    >>> @compiled(INT64(INT64))
    ... def double(x):
    ...     return 2 * x
    >>> double(21)
    42
    """

    def decorate(function: Function) -> Function:
        return cast(Function, Kernel.declare(function, signature, inline=inline))

    return decorate

"""Requests of kernels for memory that they read soon, at places that a processor cannot foresee.

Reads that follow an index, or one of many cursors, miss the caches; requested early, many of them are under way at once
(decision 0038).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import lower_builtin, type_callable
from numpy.typing import NDArray

_READ, _STAYS, _DATA = 0, 3, 1
"""What LLVM calls the kind of access, the locality, and the cache."""


def prefetch(values: NDArray[Any], index: Any) -> None:
    """Request the line of memory that holds `values[index]`. For kernels; elsewhere it does nothing.

    `index`: of type uint64. It may be beyond the end: a request never fails.

    >>> import numpy as np
    >>> prefetch(np.zeros(2), np.uint64(1))
    """


@type_callable(prefetch)
def _typed(context: Any) -> Any:
    def typer(values: Any, index: Any) -> Any:
        plain = isinstance(values, types.Array) and values.layout == "C" and values.ndim == 1
        return types.none if plain and index == types.uint64 else None

    return typer


@lower_builtin(prefetch, types.Array, types.uint64)  # type: ignore[no-untyped-call]  # numba ships no types
def _lowered(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    values, index = arguments
    data = context.make_array(signature.args[0])(context, builder, values).data
    address = builder.bitcast(builder.gep(data, [index]), ir.IntType(8).as_pointer())
    word = ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [address.type, word, word, word])
    request = builder.module.declare_intrinsic("llvm.prefetch", [address.type], kind)
    builder.call(request, [address, word(_READ), word(_STAYS), word(_DATA)])
    return context.get_dummy_value()

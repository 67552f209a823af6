"""Stores of kernels that go past the caches, for output that is larger than they are.

A usual store first reads the line of memory that it writes a part of, so that memory has twice the work. Values that
are read again soon are better left in the caches.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import lower_builtin, type_callable
from numpy.typing import NDArray


def put(out: NDArray[Any], index: Any, value: Any) -> None:
    """`out[index] = value` for an index of type uint64 and a number of the array's own type. For kernels.

    >>> import numpy as np
    >>> out = np.zeros(2, np.int64)
    >>> put(out, np.uint64(1), 7)
    >>> out.tolist()
    [0, 7]
    """
    out[index] = value


@type_callable(put)
def _typed(context: Any) -> Any:
    def typer(out: Any, index: Any, value: Any) -> Any:
        plain = isinstance(out, types.Array) and out.mutable and out.aligned and out.layout == "C" and out.ndim == 1
        if plain and isinstance(value, (types.Integer, types.Float)) and (index, value) == (types.uint64, out.dtype):
            return types.none
        return None

    return typer


@lower_builtin(put, types.Array, types.uint64, types.Any)  # type: ignore[no-untyped-call]  # numba ships no types
def _lowered(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    out, index, value = arguments
    array = context.make_array(signature.args[0])(context, builder, out)
    store = builder.store(value, builder.gep(array.data, [index]), align=signature.args[0].dtype.bitwidth // 8)
    store.set_metadata("nontemporal", builder.module.add_metadata([context.get_constant(types.int32, 1)]))
    return context.get_dummy_value()

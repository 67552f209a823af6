"""A kernel as plain Python, for calls that are too small to compile it for.

The answers have the same bits as compiled code: kernels use exactly rounded operations only, whole numbers are widened
to 64 bits first as numba does, and division by zero follows numpy's rule in both. Arrays that a kernel writes are
copied, and copied back at the end, so that compiled code can take over from an interpreted call that fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import numpy as np
from numba import types

from whenabouts.core.arrays.kernel_parts import globals_read

MOST_VALUES = 1 << 14
"""Of all arrays of a call. Above it, compiled code is expected to be needed anyway."""

MOST_SECONDS = 0.5
"""That a process spends on interpreted calls, all kernels together, before it compiles: which takes longer for most."""

MOST_SECONDS_CACHED = 0.1
"""The same for kernels in the cache: to read the first of them, LLVM is started."""


_TUPLES = (types.Tuple, types.UniTuple, types.NamedTuple, types.NamedUniTuple)


class Budget:
    """Seconds that this process has spent on interpreted calls."""

    spent = 0.0


class Interpreted:
    """One kernel; call it like the compiled one."""

    def __init__(self, function: Callable[..., Any], kinds: Sequence[Any], is_kernel: Callable[[Any], bool]) -> None:
        self._function = _plain(function, is_kernel, {})
        self._kinds = kinds

    def is_worthwhile(self, arguments: Sequence[Any], most_seconds: float = MOST_SECONDS) -> bool:
        """Whether a call costs less than to have the compiled kernel; False if that would refuse the arguments."""
        if Budget.spent > most_seconds or len(arguments) != len(self._kinds):
            return False
        sizes = [_size(value, kind) for value, kind in zip(arguments, self._kinds, strict=True)]
        return None not in sizes and sum(size for size in sizes if size) <= MOST_VALUES

    def __call__(self, *arguments: Any) -> Any:
        """What the compiled kernel returns; if it raises an error, the arrays of the caller are as before."""
        began = time.perf_counter()
        copies: dict[int, tuple[Any, Any]] = {}
        try:
            with np.errstate(all="ignore"):
                widened = [_widen(value, kind, copies) for value, kind in zip(arguments, self._kinds, strict=True)]
                result = self._function(*widened)
                for array, copy in copies.values():
                    if array.flags.writeable:
                        array[...] = copy
            return _python_value(result)
        finally:
            Budget.spent += time.perf_counter() - began


def _plain(
    function: Callable[..., Any], is_kernel: Callable[[Any], bool], done: dict[Callable[..., Any], FunctionType]
) -> FunctionType:
    """The function with plain functions in place of the kernels that it calls."""
    if function not in done:
        code, names = function.__code__, dict(function.__globals__)
        plain = FunctionType(code, names, function.__name__, function.__defaults__, function.__closure__)
        done[function] = plain
        for name, value in globals_read(function).items():
            if is_kernel(value):
                names[name] = _plain(value.py_func, is_kernel, done)
    return done[function]


def _size(value: Any, kind: Any) -> int | None:
    """How many values the arrays of an argument hold; None if it is not of its kind."""
    if isinstance(kind, _TUPLES):
        if not isinstance(value, tuple) or len(value) != len(kind):
            return None
        sizes = [_size(part, of) for part, of in zip(value, kind, strict=True)]
        return None if None in sizes else sum(size for size in sizes if size)
    if not isinstance(kind, types.Array):
        return 0 if isinstance(value, (int, float, np.generic)) else None
    if not isinstance(value, np.ndarray) or value.ndim != kind.ndim or value.dtype.name != _name(kind.dtype):
        return None
    return value.size if value.flags.c_contiguous and (value.flags.writeable or not kind.mutable) else None


def _name(kind: Any) -> str:
    return "bool" if isinstance(kind, types.Boolean) else str(kind)


def _widen(value: Any, kind: Any, copies: dict[int, tuple[Any, Any]]) -> Any:
    if isinstance(kind, _TUPLES):
        parts = [_widen(part, of, copies) for part, of in zip(value, kind, strict=True)]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(kind, types.Array):
        if id(value) not in copies and (kind.mutable or value.dtype.itemsize < 8):
            wide = value.dtype.kind in "iu" and value.dtype.itemsize < 8
            copies[id(value)] = value, value.astype(np.int64 if wide else value.dtype, copy=True)
        return copies[id(value)][1] if id(value) in copies else value
    if isinstance(kind, types.Boolean):
        return bool(value)
    if isinstance(kind, types.Float):
        return np.float64(value)
    return np.uint64(value) if kind == types.uint64 else np.int64(value)


def _python_value(value: Any) -> Any:
    """As numba returns it: numbers of Python."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple):
        parts = [_python_value(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value

"""What the compiled code of a kernel is made of besides the text of its own module: the kernels, other functions and
classes that it calls, and the constants that it reads.

To tell whether cached code is current, numba looks at the text of the kernel's own module only. A release that changes
a kernel leaves its callers' modules as they are, and a cache outlives an upgrade: the callers would keep the old code.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
from collections.abc import Callable, Iterator
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

from numba import types


def globals_read(function: Callable[..., Any]) -> dict[str, Any]:
    """The values of the global names in a function's code, in the order of the names.

    >>> from math import pi
    >>> globals_read(FunctionType((lambda x: pi * x).__code__, {"pi": pi, "e": 2.72}))
    {'pi': 3.141592653589793}
    """
    names = function.__globals__
    return {name: names[name] for name in sorted(_names(function.__code__)) if name in names}


def digest_of_parts(kernel: Any) -> bytes:
    """A digest of the signatures of a kernel and of all that it calls, of the texts of their modules and of those that
    have the other functions and the classes in them, and of the constants that they read."""
    digest = hashlib.blake2b(digest_size=16)
    for part in _parts(kernel, set()):
        digest.update(len(part).to_bytes(8))
        digest.update(part)
    return digest.digest()


def _parts(kernel: Any, seen: set[Any]) -> Iterator[bytes]:
    seen.add(kernel)
    function = kernel.py_func
    yield repr([function.__qualname__, *map(_described, kernel.kinds)]).encode()
    yield _text(function.__module__, function.__code__)
    for name, value in globals_read(function).items():
        if isinstance(value, type(kernel)):
            if value not in seen:
                yield from _parts(value, seen)
        elif isinstance(value, (FunctionType, type)):  # code that numba is given for it, and named tuples
            yield _text(value.__module__, value)
        elif not isinstance(value, ModuleType):  # constants
            yield pickle.dumps((name, value))


@cache
def _text(module: str, _: CodeType | FunctionType | type) -> bytes:
    """A digest of the text of a module from which a function has its code, or which has a class: a module may be loaded
    again."""
    loader = getattr(sys.modules.get(module), "__loader__", None)
    text = loader.get_source(module) if loader is not None and hasattr(loader, "get_source") else None
    return hashlib.blake2b((text or "").encode(), digest_size=16).digest()


def _described(kind: Any) -> tuple[Any, ...]:
    """A type with the order of its fields: numba takes named tuples to be equal if their classes are."""
    parts: tuple[Any, ...] = tuple(kind) if isinstance(kind, types.BaseTuple) else ()  # type: ignore[arg-type]  # it is
    class_, fields = getattr(kind, "instance_class", None), getattr(kind, "fields", ())
    return str(kind), repr(class_), fields, *map(_described, parts)


def _names(code: CodeType) -> set[str]:
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*(_names(part) for part in inner))

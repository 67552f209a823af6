"""Old names and import paths: they still work, and warn."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from typing import Any, TypeVar, cast

from whenabouts.core.callers import users_level

Function = TypeVar("Function", bound=Callable[..., Any])


def renamed(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a module some of whose names have changed: `names` from old to new.

    >>> import whenabouts.core.hosting.worker_archive as module
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     module.archive is module.build_worker_archive, str(caught[0].message)
    (True, 'whenabouts.core.hosting.worker_archive.archive is deprecated: use build_worker_archive')
    """

    def look_up(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warn_of_old(f"{module}.{name}", names[name])
        return getattr(sys.modules[module], names[name])

    return look_up


def moved(old: str, new: str) -> Callable[[str], Any]:
    """The `__getattr__` of what is left of a module that has moved.

    >>> warnings.simplefilter("ignore")
    >>> moved("whenabouts.core.join_modes", "whenabouts.core.timing_join.modes")("HOWS")[0]
    'inner'
    """

    def look_up(name: str) -> Any:
        if name.startswith("__"):  # what the import system asks every module
            raise AttributeError(name)
        found = getattr(import_module(new), name)
        _warn(f"{old} has moved: import {name} from {new}")
        return found

    return look_up


def takes_old_names(new: str, *old: str) -> Callable[[Function], Function]:
    """A function whose argument `new` may also be given under its names of before.

    >>> @takes_old_names("frame", "table")
    ... def rows(frame: list[int]) -> int:
    ...     return len(frame)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     rows(table=[4, 2]), str(caught[0].message)  # type: ignore[call-arg]
    (2, 'table= is deprecated: use frame=')
    """

    def wrap(function: Function) -> Function:
        @wraps(function)
        def call(*given: Any, **named: Any) -> Any:
            for name in old:
                if name in named and new not in named:
                    warn_of_old(f"{name}=", f"{new}=")
                    named[new] = named.pop(name)
            return function(*given, **named)

        return cast(Function, call)

    return wrap


def warn_of_old(old: str, new: str) -> None:
    """Warn (DeprecationWarning) that something has another name now."""
    _warn(f"{old} is deprecated: use {new}")


def _warn(message: str) -> None:
    """Warn of the user's line: Python shows a DeprecationWarning only where the code of `__main__` is to blame."""
    warnings.warn(message, DeprecationWarning, stacklevel=users_level())

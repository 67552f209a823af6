"""Old import paths of documented modules: they still work, and warn."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any


def moved(old: str, new: str) -> Callable[[str], Any]:
    """What looks names up in a module that has moved: its `__getattr__`.

    >>> warnings.simplefilter("ignore")
    >>> moved("whenabouts.core.join_modes", "whenabouts.core.timing_join.modes")("HOWS")[0]
    'inner'
    """

    def look_up(name: str) -> Any:
        if name.startswith("__"):  # what the import system asks every module
            raise AttributeError(name)
        found = getattr(import_module(new), name)
        warnings.warn(f"{old} has moved: import {name} from {new}", DeprecationWarning, stacklevel=2)
        return found

    return look_up

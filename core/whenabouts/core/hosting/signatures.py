"""Functions take the options of a query and those of a host: declared once, shown in each signature.

A function `f(table, *, own=..., **options: Unpack[SomeOptions])` is typed (PEP 692); `takes_options_of` writes the
fields instead of `**options`, so that `help(f)` and editors show them with their defaults.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def takes_options_of(
    *classes: type, without: tuple[str, ...] = (), **defaults: object
) -> Callable[[Function], Function]:
    """Show the fields of these dataclasses in a function's signature instead of `**options`.

    `without`: fields that the function does not take. `defaults`: those that differ from the class's. The
    function's own arguments stand before them if they are required, else after them. Only the signature changes, never
    the call.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Query:
    ...     on: str
    ...     how: str = "inner"
    >>> @takes_options_of(Query, how="left")
    ... def join(table: object, *, buckets: int = 1, **options: object) -> object: ...
    >>> str(inspect.signature(join))
    "(table: 'object', *, on: 'str', how: 'str' = 'left', buckets: 'int' = 1) -> 'object'"
    """

    def show(function: Function) -> Function:
        own = inspect.signature(function)
        plain = [p for p in own.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        places = [p for p in plain if p.kind is not inspect.Parameter.KEYWORD_ONLY]
        named = [p for p in plain if p.kind is inspect.Parameter.KEYWORD_ONLY]
        shown: dict[str, inspect.Parameter] = {}
        for of in classes:  # where two have a field of one name, the first one's counts
            for name, field in inspect.signature(of).parameters.items():
                if name not in without:
                    default = defaults.get(name, field.default)
                    shown.setdefault(name, field.replace(kind=inspect.Parameter.KEYWORD_ONLY, default=default))
        needed = [p for p in named if p.default is inspect.Parameter.empty]
        parameters = [*places, *needed, *shown.values(), *(p for p in named if p not in needed)]
        function.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        return function

    return show


_MEANT = {"by": "on", "left_by": "on", "right_by": "on", "left_on": "left_time", "right_on": "right_time"}
"""Options of pandas and Polars, and what is nearest to them here."""


def check_known(function: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise TypeError, in Python's words, for an option that a function lacks; it names the one that may be meant.

    >>> check_known("join()", ["by"], ["on", "tolerance"])
    Traceback (most recent call last):
    TypeError: join() got an unexpected keyword argument 'by'; did you mean 'on'?
    """
    names = list(known)
    for name in given:
        if name not in names:
            near = [_MEANT[name]] if _MEANT.get(name) in names else difflib.get_close_matches(name, names, 1)
            meant = "".join(f"; did you mean {each!r}?" for each in near)
            raise TypeError(f"{function} got an unexpected keyword argument {name!r}{meant}")

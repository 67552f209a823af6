"""Which cases of a law run on engines with slow job starts, and when."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def fewer_on_slow_engines(cases: Iterable[Any], kept: Container[Any], canary: Any = None) -> list[Any]:
    """All cases, marked: one may be its operator's `canary`; those not `kept` are `similar` to one that is.

    >>> marked = fewer_on_slow_engines(["a", "b", "c"], kept=["b"], canary="c")
    >>> [case if case == "b" else case.marks[0].name for case in marked]
    ['similar', 'b', 'canary']
    """

    def marked(case: Any) -> Any:
        if case in kept:
            return case
        values = case if isinstance(case, tuple) else (case,)
        return pytest.param(*values, marks=pytest.mark.canary if case == canary else pytest.mark.similar)

    return [marked(case) for case in cases]

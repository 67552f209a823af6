"""Cases that engines with slow job starts run only in `make test-full`."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def fewer_on_slow_engines(cases: Iterable[Any], kept: Container[Any]) -> list[Any]:
    """All cases; those not `kept` are marked `similar` to one that is.

    >>> [getattr(case, "marks", "kept") != "kept" for case in fewer_on_slow_engines(["a", "b"], kept=["b"])]
    [True, False]
    """
    return [
        case
        if case in kept
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.similar)
        for case in cases
    ]

"""What a user's function says of pairs of rows: one boolean for each pair, or an error that tells what it gave.

Window joins, temporal joins and coalescing take functions of two aligned tables. Truthiness is never asked for:
`pa.scalar(False)`, a text and an object without `__bool__` are all true to Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core.errors import Code, QueryError


def answers(told: Any, pairs: int, *, code: Code, what: str, hint: str) -> NDArray[np.bool_]:
    """A function's answer as booleans, null being false; `what` names the function in errors. O(pairs).

    Raises QueryError with `code` unless it is a boolean array (Arrow, numpy, or what numpy makes one of) with an
    element for each pair.

    >>> answers(pa.array([True, None]), 2, code=Code.BAD_PREDICATE, what="it", hint="").tolist()
    [True, False]
    """
    arrow = isinstance(told, pa.Array | pa.ChunkedArray)
    if arrow and (pa.types.is_boolean(told.type) or pa.types.is_null(told.type)):
        told, arrow = np.asarray(told.cast(pa.bool_()).fill_null(False)), False
    mask = np.asarray(told)
    # An empty list has no type of its own in numpy.
    if arrow or mask.shape != (pairs,) or (mask.dtype != np.bool_ and pairs):
        raise QueryError(code, f"{what} gave {_described(told, mask)} for {pairs} pairs of rows", hint)
    return mask.astype(bool, copy=False)


def asked(
    function: Callable[[Any, Any], Any], left: pa.Table, right: pa.Table, *, code: Code, what: str, hint: str
) -> NDArray[np.bool_]:
    """What a function says of the rows of two tables, side by side. Raises as `answers`, also where it fails."""
    try:
        told = function(left, right)
    except Exception as error:
        problem = f"{what} failed for {left.num_rows} pairs of rows with {type(error).__name__}: {error}"
        raise QueryError(code, problem, hint) from error
    return answers(told, left.num_rows, code=code, what=what, hint=hint)


def _described(told: Any, mask: NDArray[Any]) -> str:
    if isinstance(told, pa.Array | pa.ChunkedArray):
        return f"an Arrow array of {len(told)} {told.type}"
    if mask.ndim:
        return f"an array of {mask.dtype} and shape {mask.shape}"
    return f"{told!r}, a single {type(told).__name__}"

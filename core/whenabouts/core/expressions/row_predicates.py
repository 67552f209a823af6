"""Users' predicates on pairs of rows: the result must be one boolean per pair, or an error describes what it was.

Window joins, temporal joins and coalescing take functions of two aligned tables. Truthiness is never used: for Python,
`pa.scalar(False)`, a text and an object without `__bool__` are all true.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core.arrays.typing import BoolArray
from whenabouts.core.errors import Code, QueryError, WhenaboutsError


def as_mask(result: Any, pairs: int, *, code: Code, what: str, hint: str) -> BoolArray:
    """A predicate's result as booleans, with null as false; `what` names the predicate in errors. O(pairs).

    Raises QueryError with `code` unless the result is a boolean array (Arrow, numpy, or something that numpy converts)
    with one element per pair.

    >>> as_mask(pa.array([True, None]), 2, code=Code.BAD_PREDICATE, what="it", hint="").tolist()
    [True, False]
    """
    arrow = isinstance(result, pa.Array | pa.ChunkedArray)
    if arrow and (pa.types.is_boolean(result.type) or pa.types.is_null(result.type)):
        result, arrow = np.asarray(result.cast(pa.bool_()).fill_null(False)), False
    mask = np.asarray(result)
    # The dtype of an empty list says nothing.
    if arrow or mask.shape != (pairs,) or (mask.dtype != np.bool_ and pairs):
        raise QueryError(code, f"{what} gave {_described(result, mask)} for {pairs} pairs of rows", hint)
    return mask.astype(bool, copy=False)


def call_predicate(
    function: Callable[[Any, Any], Any], left: Any, right: Any, *, code: Code, what: str, hint: str
) -> BoolArray:
    """Call a predicate on aligned rows of two inputs. Raises QueryError with `code` if it fails, and as `as_mask`."""
    pairs = len(left)
    try:
        result = function(left, right)
    except WhenaboutsError:  # one that knows what is wrong
        raise
    except Exception as error:
        problem = f"{what} failed for {pairs} pairs of rows with {type(error).__name__}: {error}"
        raise QueryError(code, problem, hint) from error
    return as_mask(result, pairs, code=code, what=what, hint=hint)


def _described(result: Any, mask: NDArray[Any]) -> str:
    if isinstance(result, pa.Array | pa.ChunkedArray):
        return f"an Arrow array of {len(result)} {result.type}"
    if mask.ndim:
        return f"an array of {mask.dtype} and shape {mask.shape}"
    return f"{result!r}, a single {type(result).__name__}"

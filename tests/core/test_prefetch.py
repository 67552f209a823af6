"""Requests for memory: they are made, never fail, and accept nothing else than what they were made for."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from numba import types
from numba.core.errors import TypingError
from numpy.typing import NDArray

from whenabouts.core.arrays.jit import INT64, READ_INT64, READ_INT64_2D, UINT64, compiled
from whenabouts.core.arrays.prefetch import prefetch


def _requesting(array: Any = READ_INT64, index: Any = UINT64) -> Any:
    @compiled(INT64(array, index))
    def requested(values: NDArray[Any], at: Any) -> int:
        prefetch(values, at)
        return len(values)

    return requested


def test_the_request_is_made() -> None:
    kernel = numba.njit((types.int64[::1], types.uint64))(lambda values, at: prefetch(values, at))
    assert "call void @llvm.prefetch" in kernel.inspect_llvm(kernel.signatures[0])


@pytest.mark.parametrize("at", [0, 2, 3, 1 << 40])
def test_it_may_be_beyond_the_end(at: int) -> None:
    kernel = _requesting()
    kernel.make_ready()
    assert kernel(np.arange(3), at) == 3


@pytest.mark.parametrize(
    ("array", "index"), [(READ_INT64_2D, UINT64), (READ_INT64, INT64), (types.Tuple((INT64,)), UINT64)]
)
def test_other_types_are_refused(array: Any, index: Any) -> None:
    with pytest.raises(TypingError):
        _requesting(array, index).make_ready()

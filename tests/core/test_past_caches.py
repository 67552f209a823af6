"""Stores that go past the caches write what others do, and nothing else is accepted than what they were made for."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pyarrow as pa
import pytest
from numba import types
from numba.core.errors import TypingError
from numpy.typing import NDArray

from whenabouts.core.arrays.gather import gather_output
from whenabouts.core.arrays.jit import UINT64, compiled
from whenabouts.core.arrays.past_caches import put
from whenabouts.core.arrays.record_batches import take_columns


def _putting(kind: Any, value: Any = None, index: Any = UINT64) -> Any:
    @compiled((types.Array(kind, 1, "C"), index, value or kind))
    def stored(out: NDArray[Any], at: Any, given: Any) -> None:
        put(out, at, given)

    return stored


@pytest.mark.parametrize("kind", [types.int64, types.int32, types.uint8, types.float64])
def test_one_value_is_stored(kind: Any) -> None:
    out = np.zeros(5, str(kind))
    kernel = _putting(kind)
    kernel.make_ready()
    kernel(out, 3, True)
    assert out.tolist() == [0, 0, 0, 1, 0]


def test_the_stores_are_marked() -> None:
    kernel = numba.njit((types.int64[::1], types.uint64, types.int64))(lambda out, at, given: put(out, at, given))
    assert "!nontemporal" in kernel.inspect_llvm(kernel.signatures[0])


@pytest.mark.parametrize(
    ("kind", "value", "index"),
    [(types.int64, types.int32, UINT64), (types.int64, types.int64, types.int64), (types.boolean, None, UINT64)],
)
def test_other_types_are_refused(kind: Any, value: Any, index: Any) -> None:
    with pytest.raises(TypingError):
        _putting(kind, value, index).make_ready()


@pytest.mark.parametrize("rows", [1, 1_000, 300_001])
def test_large_columns_are_gathered(rows: int) -> None:
    random = np.random.default_rng(rows)
    values, at = random.integers(-(2**60), 2**60, 1_000), random.integers(0, 1_000, rows).astype(np.int32)
    out = np.zeros(rows + 1, np.int64)
    gather_output.make_ready()  # type: ignore[attr-defined]  # a Kernel
    gather_output(values, at, out[:rows])
    assert np.array_equal(out[:rows], values[at])
    assert not out[rows]
    (found,) = take_columns([pa.chunked_array([values])], at)
    assert np.array_equal(found, values[at])

"""Small first calls are interpreted, with the bits of compiled code; others are compiled once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from whenabouts.core.arrays import interpreted_kernel
from whenabouts.core.arrays.interpreted_kernel import MOST_VALUES, Budget
from whenabouts.core.arrays.jit import (
    BOOL,
    FLOAT64,
    INT64,
    READ_INT32,
    READ_INT64,
    READ_UINT64,
    UINT64,
    WRITE_INT32,
    WRITE_INT64,
    compiled,
)
from whenabouts.core.arrays.kernel import Kernel
from whenabouts.core.arrays.kernel_cache import KernelCache

ROOT = Path(__file__).parents[2]

FIRST_CALL = """
import logging, sys
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
import pyarrow as pa
import whenabouts as wa

rows = int(sys.argv[1])
times = {"t": pa.array([1_000_000 * i for i in range(rows)], pa.timestamp("us"))}
minute = wa.from_granularity("t", "1 s")
pairs = wa.timing_join(pa.table(times), pa.table(times), left_time=minute, right_time=minute,
                       condition=wa.within("1 s", confidence=0.6))
print(pairs.num_rows)
"""


@pytest.fixture(autouse=True)
def first_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is spent, and no kernel of a test is in the cache from another run."""
    monkeypatch.setattr(Budget, "spent", 0.0)
    monkeypatch.setattr(KernelCache, "of", lambda function, parts: None)


def kernel(signature: Any, function: Any) -> Any:
    return compiled(signature)(function)


def ready(of: Any) -> bool:
    return cast(Kernel, of).is_ready


@pytest.mark.slow
def test_a_small_first_call_compiles_nothing_and_a_large_one_does(tmp_path: Path) -> None:
    for rows, compiles in ((2, False), (MOST_VALUES, True)):
        done = subprocess.run(
            [sys.executable, "-c", FIRST_CALL, str(rows)],
            env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}, capture_output=True, text=True, timeout=300,
            check=True,
        )  # fmt: skip
        assert done.stdout.endswith(f"\n{rows}\n" if compiles else f"{rows}\n")
        assert ("compiling" in done.stdout) is compiles


def test_the_second_half_second_is_compiled() -> None:
    def twice(x: Any) -> Any:
        return 2 * x

    double = kernel(INT64(INT64), twice)
    assert (double(4), ready(double)) == (8, False)
    assert 0 < Budget.spent < interpreted_kernel.MOST_SECONDS
    Budget.spent = interpreted_kernel.MOST_SECONDS + 1
    assert (double(4), ready(double)) == (8, True)


def test_many_values_are_compiled_for() -> None:
    def total(values: Any) -> Any:
        found = 0
        for value in values:
            found += value
        return found

    add = kernel(INT64(READ_INT64), total)
    assert (add(np.ones(MOST_VALUES, np.int64)), ready(add)) == (MOST_VALUES, False)
    assert (add(np.ones(MOST_VALUES + 1, np.int64)), ready(add)) == (MOST_VALUES + 1, True)


def test_other_arguments_are_refused_as_by_compiled_code() -> None:
    def first(values: Any) -> Any:
        return values[0]

    head = kernel(INT64(WRITE_INT64), first)
    shut = np.ones(2, np.int64)
    shut.flags.writeable = False
    for wrong in (np.ones(2), np.ones((2, 2), np.int64), np.ones(4, np.int64)[::2], shut, None):
        with pytest.raises(TypeError):
            head(wrong)
    assert head(np.ones(2, np.int64)) == 1


def both_forms(signature: Any, function: Any, *arguments: Any) -> Any:
    """What the interpreted kernel gives, held equal to the compiled one, arrays too."""
    form, answers = kernel(signature, function), []
    for compile_first in (False, True):
        own = [value.copy() if isinstance(value, np.ndarray) else value for value in arguments]
        if compile_first:
            form.make_ready()
        answers.append((form(*own), [value.tolist() if isinstance(value, np.ndarray) else value for value in own]))
        assert ready(form) is compile_first
    assert repr(answers[0]) == repr(answers[1])
    return answers[0][0]


def test_narrow_integers_are_widened() -> None:
    def product(values: Any, out: Any) -> Any:
        out[0] = values[1]
        return values[0] * values[1]

    read = np.array([2**30, 7], np.int32)
    assert both_forms(INT64(READ_INT32, WRITE_INT32), product, read, np.zeros(1, np.int32)) == 7 * 2**30


def test_unsigned_integers_wrap() -> None:
    def mixed(values: Any) -> Any:
        return values[0] * np.uint64(0x9E3779B97F4A7C15) + values[1]

    both_forms(UINT64(READ_UINT64), mixed, np.array([2**63 + 5, 2**64 - 1], np.uint64))


def test_division_by_zero_follows_numpy() -> None:
    def ratio(x: Any, y: Any) -> Any:
        return x / y

    assert both_forms(FLOAT64(FLOAT64, FLOAT64), ratio, -1.0, 0.0) == -np.inf
    assert np.isnan(both_forms(FLOAT64(FLOAT64, FLOAT64), ratio, 0.0, 0.0))


def test_answers_are_numbers_of_python() -> None:
    def less(x: Any, y: Any) -> Any:
        return x < y

    assert both_forms(BOOL(INT64, INT64), less, 1, 2) is True


def test_compiled_code_takes_over_where_plain_python_fails() -> None:
    def signs(values: Any, out: Any) -> Any:
        out[0] += 1
        return (values[0] > 0) - (values[0] < 0)  # numpy does not subtract booleans, numba does

    sign, out = kernel(INT64(READ_INT64, WRITE_INT64), signs), np.zeros(1, np.int64)
    assert sign(np.array([-3]), out) == -1
    assert (out[0], ready(sign)) == (1, True)


@pytest.mark.full
@pytest.mark.slow
def test_all_kernels_give_the_same_bits_in_both_forms(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "both_kernel_forms", "-p", "no:cacheprovider",
         "conformance", "--engine", "local", "--hypothesis-profile=fast",
         "-m", "not full and not exhaustive and not slow"],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True, text=True, timeout=1800, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.slow
def test_kernels_are_compiled_though_numba_is_switched_off_for_others() -> None:
    """NUMBA_DISABLE_JIT is for code of the user's, which a debugger or a measure of coverage should see."""
    code = FIRST_CALL + "\nimport numba\nassert not hasattr(numba.njit(lambda x: x), 'py_func')"
    done = subprocess.run(
        [sys.executable, "-c", code, "2"],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    assert done.stdout == "2\n"

"""A pytest plugin: calls of kernels are interpreted and compiled, and must do the same to the last bit.

Of each kernel the first calls, then one in twenty: some are called ten thousand times.
`pytest -p both_kernel_forms` with this folder on the path; it fails the run at its end, with what differed.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import numpy as np
import pytest

from whenabouts.core.arrays.interpreted_kernel import Budget, Interpreted
from whenabouts.core.arrays.kernel import Kernel

FIRST, SHARE = 100, 0.05

SEEN: Counter[str] = Counter()
CHOICE = Random(1)  # not every twentieth call: calls come in periods
CALLS: Counter[str] = Counter()
DIFFERENCES: Counter[str] = Counter()
_TWINS: dict[Kernel, tuple[Interpreted, Kernel]] = {}
_COMPILED: set[Kernel] = set()
_TEMPLATE, _OVERLOAD = Kernel.get_call_template, Kernel.get_overload


def twins(kernel: Kernel) -> tuple[Interpreted, Kernel]:
    """Both forms; `kernel` itself never becomes ready, so that Python's next call comes here, too."""
    if kernel not in _TWINS:
        compiled = Kernel.declare(kernel.py_func, kernel._declared, inline=kernel.is_inlined)
        _COMPILED.add(compiled)
        compiled.make_ready()
        _TWINS[kernel] = Interpreted(kernel.py_func, kernel.kinds, lambda value: isinstance(value, Kernel)), compiled
    return _TWINS[kernel]


def template(kernel: Kernel, args: Any, kws: Any) -> Any:
    """Of a call by another kernel that is being compiled."""
    return _TEMPLATE(kernel if kernel in _COMPILED else twins(kernel)[1], args, kws)


def overload(kernel: Kernel, signature: Any) -> Any:
    """Machine code that another kernel calls, if that is compiled and not read from the cache."""
    return _OVERLOAD(kernel if kernel in _COMPILED else twins(kernel)[1], signature)


def copied(value: Any, memo: dict[int, Any]) -> Any:
    if isinstance(value, np.ndarray):
        if id(value) not in memo:
            memo[id(value)] = value.copy()
            memo[id(value)].flags.writeable = value.flags.writeable
        return memo[id(value)]
    if isinstance(value, tuple):
        parts = [copied(part, memo) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def bits(value: Any) -> object:
    if isinstance(value, np.ndarray):
        return value.dtype.name, value.shape, value.tobytes()
    if isinstance(value, tuple):
        return tuple(map(bits, value))
    return (type(value).__name__, np.float64(value).tobytes() if isinstance(value, float) else value)


def both(kernel: Kernel, *args: Any) -> Any:
    name = f"{kernel.py_func.__module__}.{kernel.py_func.__name__}"
    interpreted, compiled = twins(kernel)
    Budget.spent = 0.0
    SEEN[name] += 1
    if SEEN[name] > FIRST and CHOICE.random() > SHARE:
        return compiled(*args)
    if not interpreted.is_worthwhile(args):
        return compiled(*args)
    own, before = copied(args, {}), bits(args)
    try:
        answer = interpreted(*own)
    except Exception as error:
        DIFFERENCES[f"{name}: {type(error).__name__} {error}"] += 1
        DIFFERENCES[f"{name}: changed by a call that fails"] += bits(own) != before
        return compiled(*args)
    wanted = compiled(*args)
    CALLS[name] += 1
    DIFFERENCES[f"{name}: answers"] += bits(answer) != bits(wanted)
    DIFFERENCES[f"{name}: arrays"] += bits(own) != bits(args)
    return wanted


def pytest_configure() -> None:
    Kernel._compile_for_args = lambda self, *args: lambda *same: both(self, *same)  # type: ignore[method-assign]
    Kernel.get_call_template = template  # type: ignore[method-assign]
    Kernel.get_overload = overload  # type: ignore[method-assign]


def pytest_sessionfinish(session: pytest.Session) -> None:
    if any(DIFFERENCES.values()) or not CALLS:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    found = {name: times for name, times in DIFFERENCES.items() if times}
    terminalreporter.write_line(
        f"{sum(CALLS.values())} calls of {len(CALLS)} kernels in both forms, differences: {found}"
    )

"""Kernels that work for long return now and then: an interrupt ends the call soon, and nothing crashes."""

from __future__ import annotations

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from whenabouts.core.arrays import large_arrays
from whenabouts.core.arrays.jit import INT64
from whenabouts.core.arrays.kernel import Kernel
from whenabouts.core.arrays.large_arrays import large_array
from whenabouts.core.arrays.signals_held import signals_held
from whenabouts.core.asof_join import prevailing as module
from whenabouts.core.asof_join.prevailing import Direction, Side, prevailing
from whenabouts.core.join_aggregate import chance_pieces
from whenabouts.core.join_aggregate.chance_pieces import COUNT_VARIANCE, NONE, Partners, chances, rows_of

PROGRAM = """
import signal, threading
import numpy as np, pyarrow as pa, whenabouts as wa

signal.signal(signal.SIGINT, signal.default_int_handler)
start = np.random.default_rng(0).integers(0, 10**9, 300_000)
rows = pa.table({"s": pa.array(start, pa.timestamp("us")), "e": pa.array(start + 400_000, pa.timestamp("us"))})
time = wa.Interval("s", "e")
few = rows.slice(0, 20)
CALL(few)  # what is compiled does not count
threading.Timer(1.0, signal.raise_signal, [signal.SIGINT]).start()
try:
    CALL(rows)
except KeyboardInterrupt:
    print("interrupted")
"""
CALLS = {
    "asof_join": "lambda t: wa.asof_join(t, t, left_time=time, right_time=time, confidence=0.1, max_candidates=500)",
    "join_aggregate": "lambda t: wa.join_aggregate(t, t, left_time=time, right_time=time, condition=100_000, "
    "aggregates={'p': 'p_none', 'k': 'p_at_least:50'})",
}


@pytest.mark.slow
@pytest.mark.parametrize("operation", CALLS)
def test_an_interrupt_ends_a_call_of_minutes(operation: str) -> None:
    program = PROGRAM.replace("CALL(", f"({CALLS[operation]})(")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr
    assert not done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_a_kernel_is_compiled_counts_when_it_is_there(number: signal.Signals) -> None:
    """Destructors of LLVM's objects would swallow it, or numba's lock would stay taken."""
    kernel = Kernel.declare(lambda i: i + 1, INT64(INT64))
    compile_now, later = kernel.compile, []

    def interrupted(signature: object) -> object:
        signal.raise_signal(number)
        later.append("compiled")
        return compile_now(signature)  # type: ignore[no-untyped-call]

    def handle(_number: int, _frame: object) -> None:
        later.append("handled")
        raise KeyboardInterrupt

    before = signal.signal(number, handle)
    try:
        with patch.object(kernel, "compile", interrupted), pytest.raises(KeyboardInterrupt):
            kernel.make_ready()
        assert later == ["compiled", "handled"]
        assert signal.getsignal(number) is handle
    finally:
        signal.signal(number, before)
    assert kernel.is_ready
    assert kernel(1) == 2


def test_an_interrupt_while_memory_is_given_back_is_not_lost() -> None:
    """An array gives it back when it dies, where Python swallows what is raised."""

    def interrupted(_block: object) -> None:
        signal.raise_signal(signal.SIGINT)

    def let_one_die() -> None:
        large_array(1 << 22, np.int64).fill(1)
        signal.pause()  # ends when this thread gets a signal

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with patch.object(large_arrays, "_offer", interrupted), pytest.raises(KeyboardInterrupt):
            let_one_die()
    finally:
        signal.signal(signal.SIGINT, before)


def test_each_of_several_signals_counts() -> None:
    handled = []

    def handle(number: int, _frame: object) -> None:
        handled.append(number)
        raise KeyboardInterrupt

    def raise_each() -> None:
        with signals_held():
            for number in before:
                signal.raise_signal(number)
            assert not handled

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with pytest.raises(KeyboardInterrupt):
            raise_each()
        assert handled == list(before)
        assert all(signal.getsignal(number) is handle for number in before)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_signal_while_handlers_are_put_back_counts_and_they_are_put_back() -> None:
    set_, pending = signal.signal, [signal.SIGINT, signal.SIGTERM]

    def handle(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    def interrupted(number: int, handler: Any) -> object:
        if handler is handle and pending:  # as one that has just come: Python handles it before it takes the handler
            signal.raise_signal(pending.pop())
        return set_(number, handler)

    before = {number: set_(number, handle) for number in pending}
    try:
        with patch.object(signal, "signal", interrupted), pytest.raises(KeyboardInterrupt), signals_held():
            pass
        assert not pending
        assert all(signal.getsignal(number) is handle for number in before)
    finally:
        for number, handler in before.items():
            set_(number, handler)


def test_in_another_thread_signals_are_left_alone() -> None:
    with ThreadPoolExecutor(1) as threads, signals_held():
        held = signal.getsignal(signal.SIGINT)

        def in_thread() -> object:
            with signals_held():
                return signal.getsignal(signal.SIGINT)

        assert threads.submit(in_thread).result() is held


@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
def test_answers_of_several_calls_of_the_kernel_are_those_of_single_rows(direction: Direction) -> None:
    """Keys take turns, and rows repeat times: what a call knows of earlier rows passes on to the next one."""
    rng = np.random.default_rng(4)

    def side(rows: int) -> Side:
        start = rng.integers(0, 300, rows)
        length = rng.integers(0, 60, rows) * rng.integers(0, 2, rows)
        return Side(start, start + length, rng.integers(-1, 3, rows).astype(np.int32))

    left, right = side(400), side(300)
    calls = []
    fill = module._fill

    def counted(*arguments: object) -> int:
        calls.append(arguments[0])
        return fill(*arguments)  # type: ignore[arg-type]

    with patch.object(module, "_fill", counted):
        whole = prevailing(left, right, direction=direction)
    assert len(calls) > 3, "it returned between rows, and for want of room"
    assert left.key is not None
    for i in range(len(left.t_min)):
        one = Side(left.t_min[i : i + 1], left.t_max[i : i + 1], left.key[i : i + 1])
        alone = prevailing(one, right, direction=direction)
        at = slice(whole.offsets[i], whole.offsets[i + 1])
        assert whole.rows[at].tolist() == alone.rows.tolist()
        assert whole.probability[at].tolist() == alone.probability.tolist()
        for name in ("none_probability", "rejected"):
            assert getattr(whole, name)[i] == getattr(alone, name)[0]


def test_chances_of_several_calls_of_the_kernel_are_those_of_one() -> None:
    rng = np.random.default_rng(5)
    start = rng.integers(0, 1_000, 50)
    left, right = rows_of(start, start + 20), rows_of(start, start + 30)
    sizes = rng.integers(0, 9, 50) * rng.integers(0, 2, 50)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    partners = Partners(offsets, rng.integers(0, 50, offsets[-1]), rng.uniform(0.1, 0.9, offsets[-1]))

    def found() -> list[list[float]]:
        answer = chances(left, right, -10, 10, partners, NONE + COUNT_VARIANCE, at_least=(2,), count_at=(0.5,))
        return [array.tolist() for array in answer]

    expected = found()
    for at_once in (1, 7, 60):
        with patch.object(chance_pieces, "_AT_ONCE", at_once):
            assert found() == expected
    assert chance_pieces._runs(np.zeros(1, np.int64)) == []

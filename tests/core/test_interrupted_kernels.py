"""Kernels that work for long return now and then: an interrupt ends the call soon, and nothing crashes."""

from __future__ import annotations

import subprocess
import sys
from unittest.mock import patch

import numpy as np
import pytest

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
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")


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

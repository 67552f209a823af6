"""A call by several threads: the same rows in the same order, to the last bit; interrupts; who gets threads."""

from __future__ import annotations

import _thread
import signal
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import whenabouts as wa
from whenabouts.core import local
from whenabouts.core.arrays import threads
from whenabouts.core.local import run
from whenabouts.core.timing_join import range_search, strategies
from whenabouts.core.timing_join.query import TimingJoin

INTERVALS: dict[str, Any] = {"left_time": wa.Interval("a", "b"), "right_time": wa.Interval("a", "b")}
SHAPES = {
    "x": wa.Template(((0, 40, "0.25"), (40, 80, "0.5"), (80, 120, "0.25"))),
    "y": wa.Template(((0, 40, "0.75"), (40, 80, "0.25"))),
}
QUERIES: dict[str, dict[str, Any]] = {
    "no key": {},
    "one key": {"on": "k"},
    "text": {"on": "name"},
    "two keys": {"on": ["k", "name"]},
    "outer": {"on": "k", "how": "full_outer"},
    "semi": {"on": "k", "how": "left_semi"},
    "best": {"on": "k", "best": "both"},
    "where": {"on": "k", "where": "right.v > left.v"},
    "papers": {"on": "k", "strategy": "lazy_lookup"},
    "eager": {"on": "k", "strategy": "eager"},
    "all compared": {"on": "k", "strategy": "simple"},
    "points": {"on": "k", "left_time": wa.Point("a"), "right_time": wa.Point("a")},
    "histograms": {
        "on": "k",
        "left_time": wa.Histogram("b", templates=SHAPES, template="shape"),
        "right_time": wa.Histogram("b", templates=SHAPES, template="shape"),
    },
}


def events(rows: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    start = random.integers(0, 40 * rows, rows)
    names = np.array(["p", "q", "rs"])
    return pa.table(
        {
            "a": start,
            "b": start + random.integers(0, 200, rows),
            "k": random.integers(0, 7, rows),
            "name": names[random.integers(0, 3, rows)],
            "shape": np.array(list(SHAPES))[random.integers(0, 2, rows)],
            "v": random.random(rows),
        }
    )


def written(table: pa.Table) -> bytes:
    """The bytes of a table, chunks included."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("name", QUERIES)
def test_rows_are_the_same_by_any_number_of_threads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges of a few rows; shuffled, and in order."""
    monkeypatch.setattr(threads, "LEAST_ROWS", 5)
    range_search.scatter_rows.make_ready()  # type: ignore[attr-defined]  # interpreted, it would copy all that it writes
    query = TimingJoin(**{**INTERVALS, "condition": wa.within(400, confidence=0.6), **QUERIES[name]})
    sides = [events(300, 1), events(280, 2)]
    for given in (sides, [side.sort_by("b") for side in sides]):
        expected = run(query, given)
        assert expected.output.num_rows > 50
        for count in (2, 3, 8):
            found = run(query, given, threads=count)
            assert written(found.output) == written(expected.output), count
            assert found.metrics == expected.metrics


@pytest.mark.parametrize("chunk_pairs", [1, 7, 100])
def test_chunks_of_few_pairs_are_the_same_too(chunk_pairs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks end between rows, except those of a row with more candidates than a chunk has pairs."""
    monkeypatch.setattr(threads, "LEAST_ROWS", 5)
    sides = []
    for seed in (3, 4):
        rows = events(150, seed)
        sides.append(strategies.Times(*(rows.column(name).to_numpy() for name in ("a", "b", "k"))))

    def chunks() -> list[tuple[list[int], list[int]]]:
        found = strategies.correlate(
            *sides, -2_000, 2_000, 0.7, strategy="auto", base_lengths=(0, 200), target_lengths=(0, 200),
            counters=strategies.CorrelationCounters(), chunk_pairs=chunk_pairs,
        )  # fmt: skip
        return [(base.tolist(), target.tolist()) for base, target in found]

    expected = chunks()
    assert max(len(base) for base, _ in expected) <= chunk_pairs < sum(len(base) for base, _ in expected)
    with threads.using(3):
        assert chunks() == expected


def test_an_interrupt_ends_the_work_early() -> None:
    done = []

    def work(item: int) -> None:
        if item == 1:
            _thread.interrupt_main()
        time.sleep(0.005)
        done.append(item)

    # A process that a shell started in the background ignores the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), threads.using(2):
            threads.each(work, range(2_000))
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(done) < 1_000
    with threads.using(2):
        assert threads.each(str, range(3)) == ["0", "1", "2"]


def test_calls_use_all_cores_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    used = []
    using = threads.using
    monkeypatch.setattr(local, "using", lambda count: (used.append(count), using(count))[1])
    given = [events(20, 1), events(20, 2)]
    call = {**INTERVALS, "condition": wa.within(400, confidence=0.6)}
    cores = pa.cpu_count()
    try:
        pa.set_cpu_count(5)
        wa.timing_join(*given, **call)
        pa.set_cpu_count(1)
        wa.timing_join(*given, **call)
    finally:
        pa.set_cpu_count(cores)
    wa.timing_join(*given, **call, threads=3)
    assert used == [5, 1, 3]

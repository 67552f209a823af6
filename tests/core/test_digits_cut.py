"""Times are whole microseconds; where finer digits are cut, a warning says how many times lost some."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from whenabouts.core import DigitsCutWarning, Interval, Lateness, Point, within
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.hosting.host import BlockPacker, Hosting
from whenabouts.core.local import coalesce, run_stream, timing_join, window_join
from whenabouts.core.timing_join.query import TimingJoin

FINE = pa.chunked_array([pa.array([1_000, 2_001, None], pa.timestamp("ns")), pa.array([-1, 5_999], pa.timestamp("ns"))])
WHOLE = pa.array([1_000, 2_000, 3_000], pa.timestamp("ns"))


@contextmanager
def told() -> Iterator[list[str]]:
    found: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield found
    found += [str(each.message) for each in caught if each.category is DigitsCutWarning]


def query(**options: Any) -> TimingJoin:
    return TimingJoin(left_time=Point("t"), right_time=Point("t"), condition=within(1, confidence=1), **options)


def joined(column: Any) -> Any:
    table, time = pa.table({"t": column}), Point("t")
    return timing_join(
        table, pa.table({"t": WHOLE}), left_time=time, right_time=time, condition=within(1, confidence=1)
    )


def intervals(column: Any) -> Any:
    """Both ends count."""
    table = pa.table({"a": column, "b": column})
    time = Interval("a", "b")
    return timing_join(
        table, pa.table({"t": WHOLE}), left_time=time, right_time=Point("t"), condition=within(1, confidence=1)
    )


def windows(column: Any) -> Any:
    tables = {"a": pa.table({"t": column}), "b": pa.table({"t": WHOLE})}
    return window_join(tables, time=Point("t"), windows={("a", "b"): 1})


def runs(column: Any) -> Any:
    return coalesce(pa.table({"t": column, "v": [1] * len(column)}), time="t", values="v")


@pytest.mark.parametrize(("call", "n"), [(joined, 3), (intervals, 6), (windows, 3), (runs, 3)])
def test_one_warning_counts_the_times_that_lost_something(call: Callable[[Any], Any], n: int) -> None:
    with told() as found:
        call(FINE)
    (sentence,) = found
    assert sentence.startswith(f"WA-1075: {n} times are finer than a microsecond: finer digits were cut")


@pytest.mark.parametrize("column", [WHOLE, WHOLE.cast(pa.timestamp("us")), pa.array([1, 2, 3])])
def test_nothing_is_said_where_nothing_is_lost(column: pa.Array) -> None:
    with told() as found:
        joined(column)
    assert not found


def test_a_stream_is_warned_of_once_for_all_its_files() -> None:
    files = [pa.table({"t": FINE}), pa.table({"t": WHOLE}), pa.table({"t": FINE})]
    with told() as found:
        outcome = run_stream(query(lateness=Lateness("1s", "1s")), [files, files])
    assert len(found) == 1
    assert outcome.metrics["times_cut"] == 12


def test_an_engine_that_packs_blocks_is_warned_of_the_first_one() -> None:
    schema = pa.schema({"t": pa.timestamp("ns"), "v": pa.int64()})
    packer = BlockPacker(Hosting(Coalesce(time="t", values="v"), (schema,), 1, streaming=True), 0)
    rows = pa.record_batch({"t": FINE.combine_chunks(), "v": [1] * 5}, schema)
    whole = pa.record_batch({"t": WHOLE, "v": [1] * 3}, schema)
    with told() as found:
        for batch in (whole, rows, rows):
            packer.read(batch)
    (sentence,) = found
    assert "WA-1075: 3 times of the first block of events that has such" in sentence

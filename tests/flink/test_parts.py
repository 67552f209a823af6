"""Parts of the adapter that need no Flink running: clocks, threads, and the packed rows' timestamps."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import types
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyflink.java_gateway import get_gateway

from whenabouts.core import Lateness, Point, QueryError, within
from whenabouts.core.errors import EngineError
from whenabouts.core.hosting.element_host import Here
from whenabouts.core.hosting.element_watermark import LAST_MS, LEAST_MS, ElementWatermark, delay_ms
from whenabouts.core.hosting.host import Hosting
from whenabouts.core.hosting.packed_kinds import REJECTS
from whenabouts.core.hosting.segment_cache import CachedStore, SegmentCache
from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK
from whenabouts.core.state.memory_store import DictStore
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.flink_plugin import environment
from whenabouts.flink_plugin.blocks import Blocks, ClockedPackFunction, PackFunction
from whenabouts.flink_plugin.bucket_host import BucketFunction
from whenabouts.flink_plugin.bucket_labels import labels
from whenabouts.flink_plugin.collecting import _ToBlobs
from whenabouts.flink_plugin.own_thread import OwnThread, runner
from whenabouts.flink_plugin.rows_of_columns import TIME, _ToColumns

SCHEMA = pa.schema({"t": pa.int64(), "k": pa.int64()})
QUERY = TimingJoin(
    left_time=Point("t"), right_time=Point("t"), on="k", condition=within(5, confidence=1), lateness=Lateness()
)
HOSTING = Hosting(QUERY, (SCHEMA, SCHEMA), 4, True)
MICROSECONDS = st.integers(-(10**14), 10**14)


@given(t_max=MICROSECONDS, lateness=st.integers(0, 10**7), late_by=st.integers(0, 10**7))
def test_no_row_inside_the_lateness_is_late(t_max: int, lateness: int, late_by: int) -> None:
    """Flink's bounded out-of-orderness: watermark = greatest timestamp - delay - 1."""
    clock = ElementWatermark(t_max // 1000 - delay_ms(lateness) - 1)
    row = t_max - min(late_by, lateness)
    assert row >= clock.us


@given(now=st.integers(-(10**11), 10**11), timer_us=MICROSECONDS, later=st.integers(1, 10**6))
def test_a_timer_fires_with_the_first_watermark_that_reaches_it(now: int, timer_us: int, later: int) -> None:
    at = ElementWatermark(now).timer_ms(timer_us)
    assert at is not None
    assert at > now
    assert (now + later >= at) == (ElementWatermark(now + later).us >= timer_us) or timer_us <= ElementWatermark(now).us


def test_the_ends_of_time() -> None:
    assert ElementWatermark(LEAST_MS).us == NO_WATERMARK
    assert ElementWatermark(LAST_MS).us == END_OF_TIME
    assert ElementWatermark(7).timer_ms(None) is None


@pytest.mark.parametrize("kind", [OwnThread, Here])
def test_a_step_sees_what_it_wrote_and_leaves_nothing_when_it_fails(kind: type[OwnThread | Here]) -> None:
    store, thread, cache = DictStore(), kind(), SegmentCache()
    store.put(0, 1, b"old")

    def work(segments: Any) -> bytes | None:
        assert segments.get(0, 1) == b"old"
        segments.put(0, 1, b"new")
        segments.delete(0, 2)
        assert segments.get(0, 2) is None
        found: bytes | None = segments.get(0, 1)
        return found

    def fail(segments: Any) -> None:
        segments.put(0, 3, b"lost")
        raise ValueError("it fails")

    assert thread.step(work, store, cache, 7) == store.get(0, 1) == b"new"
    with pytest.raises(ValueError, match="it fails"):
        thread.step(fail, store, cache, 7)
    assert store.get(0, 3) is None
    assert thread.step(lambda segments: (segments.get(0, 1), segments.get(0, 3)), store, cache, 7) == (b"new", None)
    thread.stop()


def test_work_gets_a_thread_of_its_own_in_a_jvm_even_where_the_main_thread_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert isinstance(runner(), Here)
    monkeypatch.setitem(sys.modules, "_pemja", types.ModuleType("_pemja"))
    own = runner()
    assert isinstance(own, OwnThread)
    assert own.run(threading.current_thread) is not threading.main_thread() is threading.current_thread()
    own.stop()


def test_what_failed_work_held_is_freed_in_the_thread_that_did_it() -> None:
    """Flink's own thread would hang if that were Arrow."""
    freed: list[str] = []

    class Held:
        def __del__(self) -> None:
            freed.append(threading.current_thread().name)

    def read(held: Held) -> None:
        raise OSError("it cannot be read")

    def work() -> None:
        held = Held()
        try:
            read(held)
        except OSError as error:
            raise ValueError("it fails") from error

    thread = OwnThread()
    with pytest.raises(ValueError, match="it fails") as raised:
        thread.run(work)
    assert freed == ["whenabouts"]
    assert str(raised.value.__cause__) == "it cannot be read"
    thread.stop()


def test_work_ends_where_a_segment_cannot_be_read() -> None:
    """As when Flink cancels a task. It must not continue as if there were no segment."""
    continued: list[object] = []

    class Cancelled(DictStore):
        def get(self, input: int, slot: int) -> bytes | None:
            raise OSError("the task is cancelled")

    def work(segments: Any) -> None:
        try:
            continued.append(segments.get(0, 1))
        except Exception as error:  # of its own; this is none
            continued.append(error)

    before, thread = set(threading.enumerate()), OwnThread()
    (started,) = set(threading.enumerate()) - before
    with pytest.raises(OSError, match="the task is cancelled"):
        thread.step(work, Cancelled(), SegmentCache(), 7)
    assert thread.run(lambda: "works again") == "works again"
    thread.stop()
    started.join(timeout=10)
    assert not started.is_alive()
    assert not continued


@pytest.mark.parametrize(
    "function",
    [PackFunction(HOSTING, 0, lambda batch: iter([batch]), range(4)), BucketFunction(HOSTING), _ToBlobs(SCHEMA, iter)],
)
def test_what_could_not_be_opened_is_closed_as_flink_does_it(function: Any) -> None:
    """Another error would hide why it could not."""
    function.close()


REPEATED = [1_729_989_000_000_001_999, 1_729_992_600_000_001_999, -1, None]
"""Nanoseconds: half past two in Berlin before and after the clocks were put back, and a time before 1970."""


def test_nanoseconds_are_rounded_down_on_every_way_out_also_in_the_hour_that_clocks_repeat() -> None:
    zoned = pa.record_batch({"t": pa.array(REPEATED, pa.timestamp("ns", "Europe/Berlin"))})
    wanted = [1_729_989_000_000_001, 1_729_992_600_000_001, -1, None]
    (stream,) = _ToColumns(lambda batch: iter([batch]), {"t": TIME}, None).flat_map(zoned)
    assert pa.ipc.open_stream(stream).read_all()["t"].to_pylist() == wanted
    (stream,) = _ToColumns(lambda batch: iter([batch]), {"t": TIME}, "t").flat_map(zoned)
    in_ms = [None if us is None else us // 1000 * 1000 for us in wanted]
    assert pa.ipc.open_stream(stream).read_all()["t"].to_pylist() == in_ms


def test_a_segment_is_read_once_and_a_bucket_knows_its_own_only() -> None:
    asked: list[tuple[int, int]] = []

    def fetch(segment: tuple[int, int]) -> bytes | None:
        asked.append(segment)
        return b"old" if segment == (0, 1) else None

    cache = SegmentCache(most_bytes=8)
    for _ in range(2):
        step = CachedStore(fetch, cache, 7)
        assert (step.get(0, 1), step.get(0, 2)) == (b"old", None)
    assert asked == [(0, 1), (0, 2)]
    step.delete(0, 1)
    step.apply(DictStore())
    assert (CachedStore(fetch, cache, 7).get(0, 1), CachedStore(fetch, cache, 8).get(0, 1)) == (None, b"old")
    cache.put(8, (0, 1), b"too long to remember")
    assert not cache.knows(8, (0, 1))
    cache.forget(7)
    assert CachedStore(fetch, cache, 7).get(0, 1) == b"old"


ALONE: Any = types.SimpleNamespace(get_index_of_this_subtask=lambda: 0, get_number_of_parallel_subtasks=lambda: 1)
"""What Flink tells the only subtask of a function."""


class _Context:
    def __init__(self, timestamp: int | None) -> None:
        self._timestamp = timestamp

    def timestamp(self) -> int | None:
        return self._timestamp


def _read(rows: list[dict[str, Any]]) -> Any:
    yield pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def _packed(function: PackFunction, rows: list[dict[str, Any]], timestamp: int | None) -> list[Any]:
    function.open(ALONE)
    try:
        return list(function.process_element(rows, _Context(timestamp)))
    finally:
        function.close()


@settings(deadline=None)
@given(st.lists(st.tuples(st.none() | st.integers(-(10**9), 10**9), st.integers(0, 9)), max_size=20))
def test_the_watermark_moves_behind_the_last_row_of_a_batch_only(rows: list[tuple[int | None, int]]) -> None:
    given_rows = [{"t": t, "k": k} for t, k in rows]
    packed = _packed(ClockedPackFunction(HOSTING, 0, _read, range(4)), given_rows, None)
    assert all(timestamp == LEAST_MS for _, timestamp in packed[:-1])
    good = [t for t, _ in rows if t is not None]
    if packed:
        assert packed[-1][1] == (max(good) // 1000 if good else LEAST_MS)
    assert sum(row[1][1] for row, _ in packed) == len(rows)
    assert sum(row[1][1] for row, _ in packed if row[1][0] == REJECTS) == len(rows) - len(good)


@pytest.mark.parametrize("timestamp", [None, LEAST_MS])
def test_rows_without_event_time_are_refused_where_it_is_the_inputs_own(timestamp: int | None) -> None:
    rows = [{"t": 1, "k": 1}]
    with pytest.raises(EngineError, match="WA-3021: rows of the right input carry no event time"):
        _packed(PackFunction(HOSTING, 1, _read, range(4)), rows, timestamp)
    assert len(_packed(PackFunction(HOSTING, 1, _read, range(4)), rows, 5)) == 1


def test_options_are_checked_before_anything_is_built() -> None:
    from whenabouts.flink_plugin import run

    side: Any = Blocks(None, SCHEMA, _read)
    with pytest.raises(QueryError, match="WA-2006: the query has 2 inputs"):
        run(QUERY, [side])
    with pytest.raises(QueryError, match="WA-2006: buckets is 0"):
        run(QUERY, [side, side], buckets=0)
    with pytest.raises(QueryError, match="WA-2006: watermarks is 'mine'"):
        run(QUERY, [side, side], watermarks="mine")


def test_unfit_versions_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "flink_version", lambda: "1.20.1")
    with pytest.raises(EngineError, match=r"WA-3002: apache-flink is 1.20.1, at least 2.3 and below 3 is needed"):
        environment.check_packages()
    monkeypatch.setattr(environment, "flink_version", lambda: None)
    with pytest.raises(EngineError, match=r"WA-3002: apache-flink is not installed .*whenabouts\[flink\]"):
        environment.check_packages()
    monkeypatch.setattr(environment, "PYTHONS", ((3, 10),))
    with pytest.raises(EngineError, match="apache-flink has no release for Python 3"):
        environment.check_packages()


def test_numba_can_be_imported_where_print_is_not_pythons_own() -> None:
    """As in a worker process of PyFlink on a cluster (in a fresh Python: this one has imported numba already)."""
    code = """
import builtins, sys
class CustomPrint:
    def __init__(self, own): self._print = own
    def print(self, *args, **options): self._print(*args, **options)
CustomPrint.__module__ = __name__ = "somewhere"
sys.modules["somewhere"] = type(sys)("somewhere")
CustomPrint.print.__module__ = "somewhere"
replaced = builtins.print = CustomPrint(print).print
from whenabouts.flink_plugin.worker_imports import import_numba
import_numba()
import whenabouts.core.arrays.jit
assert "numba" in sys.modules and builtins.print is replaced
"""
    path = os.pathsep.join(path for path in sys.path if path)
    told = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr


def test_buckets_are_spread_evenly_as_flink_sees_them() -> None:
    jvm = get_gateway().jvm
    group_of = jvm.org.apache.flink.runtime.state.KeyGroupRangeAssignment.assignToKeyGroup
    for buckets, groups in ((8, 128), (4, 128), (32, 256), (9, 5)):
        keys = labels(buckets, groups)
        assert len(set(keys)) == buckets
        found = []
        for key in keys:
            row = jvm.org.apache.flink.types.Row(1)
            row.setField(0, key)
            found.append(group_of(row, groups))
        assert found == [(2 * bucket + 1) * groups // (2 * buckets) for bucket in range(buckets)]

"""The function that hosts an operator, over state and timers like Flink's: when it runs steps, and which timers it
sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from whenabouts.core import EngineError, Interval, Lateness, Point, within
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.hosting.element_host import CONTROL
from whenabouts.core.hosting.element_watermark import LAST_MS, LEAST_MS
from whenabouts.core.hosting.host import OUTPUT, BlockPacker, Hosting, Packed
from whenabouts.core.hosting.packed_kinds import PRESENT
from whenabouts.core.metrics import state_rows
from whenabouts.core.runtime.protocol import NO_WATERMARK, Query
from whenabouts.core.state.segment_codec import decode
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.window_join.query import WindowJoin
from whenabouts.flink_plugin.bucket_host import BucketFunction

SECOND = 1_000_000
LATENESS_MS = 2_000


class _Value:
    def __init__(self) -> None:
        self.data: bytes | None = None
        self.reads = self.writes = 0

    def value(self) -> bytes | None:
        self.reads += 1
        return self.data

    def update(self, data: bytes) -> None:
        self.writes += 1
        self.data = data

    def clear(self) -> None:
        self.data = None


class _Map(dict[str, bytes]):
    def put(self, key: str, data: bytes) -> None:
        self[key] = data

    def remove(self, key: str) -> None:
        self.pop(key, None)


class _List(list[bytes]):
    """Gathered rows; a step begins by taking them."""

    add = list.append

    def __init__(self, taken: Callable[[], None]) -> None:
        self.taken = taken

    def get(self) -> list[bytes]:
        return list(self)

    def clear(self) -> None:
        super().clear()
        self.taken()


class _Counter:
    def __init__(self) -> None:
        self.count = 0

    def inc(self, n: int) -> None:
        self.count += n


class _Flink:
    """One key of a job: its state, its timers, its metrics. It serves as every context of the function."""

    def __init__(self, hosting: Hosting, max_latency_ms: int | None = None, *, gathers: bool = False) -> None:
        self.hosting, self.max_latency_ms, self.gathers = hosting, max_latency_ms, gathers
        self.book, self.segments, self.kept = _Value(), _Map(), _List(self.work)
        self.timers: set[int] = set()
        self.by_clock: set[int] = set()
        self.counters: dict[str, _Counter] = {}
        self.watermark, self.now, self.step_ms = LEAST_MS, 1_000, 0
        self.start()

    def work(self) -> None:
        """A step takes its time."""
        self.now += self.step_ms

    def start(self) -> None:
        """A function that continues from the state; Flink does not restore the watermark."""
        self.watermark = LEAST_MS
        self.function = BucketFunction(self.hosting, self.max_latency_ms, gathers=self.gathers)
        self.function.open(self)  # type: ignore[arg-type]

    def get_map_state(self, described: Any) -> _Map:
        return self.segments

    def get_list_state(self, described: Any) -> _List:
        return self.kept

    def get_state(self, described: Any) -> _Value:
        return self.book

    def get_metrics_group(self) -> _Flink:
        return self

    def counter(self, name: str) -> _Counter:
        return self.counters.setdefault(name, _Counter())

    def get_current_key(self) -> int:
        return 7

    def timer_service(self) -> _Flink:
        return self

    def current_watermark(self) -> int:
        return self.watermark

    def current_processing_time(self) -> int:
        return self.now

    def register_event_time_timer(self, timestamp: int) -> None:
        self.timers.add(timestamp)

    def delete_event_time_timer(self, timestamp: int) -> None:
        self.timers.discard(timestamp)

    def register_processing_time_timer(self, timestamp: int) -> None:
        self.by_clock.add(timestamp)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self.by_clock.discard(timestamp)

    def tick(self, ms: int) -> list[Any]:
        """Processing time advances, and its timers fire."""
        self.now += ms
        given: list[Any] = []
        while reached := [timer for timer in self.by_clock if timer <= self.now]:
            self.by_clock.remove(min(reached))
            given += self.function.on_timer(min(reached), self)  # type: ignore[arg-type]
        return given

    def take(self, packed: Packed) -> list[Any]:
        element = (packed.kind, packed.rows, packed.blob)
        return list(self.function.process_element(element, self))  # type: ignore[arg-type]

    def advance(self, watermark: int) -> Iterator[Any]:
        """Advances the watermark, and fires the timers that it reaches, the earliest first."""
        self.watermark = watermark
        while reached := [timer for timer in self.timers if timer <= watermark]:
            self.timers.remove(min(reached))
            yield from self.function.on_timer(min(reached), self)  # type: ignore[arg-type]

    def held(self) -> list[int]:
        """Rows in the bucket's state, by input."""
        return [self.counters[state_rows(input)].count for input in self.hosting.query.inputs]


TIME = Interval("t_min", "t_max", max_uncertainty="2s")
SCHEMA = pa.schema({"t_min": pa.int64(), "t_max": pa.int64(), "k": pa.int64(), "id": pa.int64()})


def _join(**options: Any) -> TimingJoin:
    both = {"left_time": TIME, "right_time": TIME, "on": "k", "condition": within("3s", confidence=0.4)}
    return TimingJoin(**both, lateness=Lateness("2s", "2s"), **options)


QUERIES: dict[str, Query] = {
    "inner": _join(),
    "lazy": _join(strategy="lazy", block_size=40),
    "full outer": _join(how="full_outer"),
    "best": _join(best="left"),
    "windows": WindowJoin.of(
        ("a", "b", "c"), Point("t_max"), on="k", windows={("a", "b"): "2s", ("b", "c"): "4s"}, lateness="2s"
    ),
    "coalescing": Coalesce(time="t_max", group="k", values="id", window="9s", slide="3s", lateness="2s"),
}


def _files(seed: int) -> list[pa.RecordBatch]:
    draw = np.random.default_rng(seed)
    t_max = np.sort(draw.integers(0, 200 * SECOND, 120)).reshape(6, 20) + draw.integers(0, 2 * SECOND, (6, 20))
    t_min = t_max - draw.integers(0, 2 * SECOND, t_max.shape)
    return [
        pa.record_batch([low, high, draw.integers(0, 3, 20), draw.integers(0, 2, 20)], schema=SCHEMA)
        for low, high in zip(t_min, t_max, strict=True)
    ]


def _packed(hosting: Hosting, seed: int) -> Iterator[list[Packed]]:
    """Arrivals, file by file: a block of each input."""
    packers = [BlockPacker(hosting, input) for input in range(len(hosting.schemas))]
    for blocks in zip(*[_files(seed + input) for input in range(len(packers))], strict=True):
        yield [
            row for packer, block in zip(packers, blocks, strict=True) for row in packer.split([packer.read(block)[0]])
        ]


def _hosting(query: Query, buckets: int = 1) -> Hosting:
    return Hosting(query, (SCHEMA,) * len(query.inputs), buckets, True)


def _rows(given: list[Any], hosting: Hosting) -> Counter[str]:
    schema = hosting.operator().output_schema
    return Counter(repr(row) for tag, blob in given if tag == OUTPUT for row in decode(blob, schema).to_pylist())


@pytest.mark.parametrize("name", list(QUERIES))
def test_between_its_timers_a_bucket_has_nothing_to_do(name: str) -> None:
    """One timer at a time is enough: if also called at every watermark, the operator emits and frees nothing more."""
    hosting = _hosting(QUERIES[name])
    alone, called = _Flink(hosting), _Flink(hosting)
    clock_ms, total = 0, 0
    for packed in [*_packed(hosting, 1), []]:
        for row in packed:
            assert _rows(alone.take(row), hosting) == _rows(called.take(row), hosting)
        latest = max((row.clock_us // 1000 for row in packed), default=clock_ms + 40_000)
        while clock_ms < latest - LATENESS_MS - 1:
            clock_ms = min(clock_ms + 700, latest - LATENESS_MS - 1)
            expected = [*called.advance(clock_ms), *called.take(Packed(0, PRESENT, 0, 0, b""))]
            found = _rows(list(alone.advance(clock_ms)), hosting)
            assert found == _rows(expected, hosting)
            if name != "coalescing":  # tuples leave its state at a slide, or when more of them come
                assert alone.held() == called.held()
            assert len(alone.timers - {LAST_MS}) <= 1
            total += sum(found.values())
    assert name in ("inner", "lazy", "windows") or total > 0  # here rows are emitted without new rows
    assert _rows(list(alone.advance(LAST_MS)), hosting) == _rows(list(called.advance(LAST_MS)), hosting)
    assert not alone.segments
    assert alone.book.data is None


def test_a_bucket_reads_its_book_once_and_writes_it_when_it_changes() -> None:
    flink = _Flink(_hosting(QUERIES["inner"]))
    (first, *_), (second, *_) = list(_packed(flink.hosting, 1))[:2]
    flink.take(first)
    reads, writes = flink.book.reads, flink.book.writes
    flink.take(Packed(0, PRESENT, 0, 0, b""))
    flink.take(second)
    assert (flink.book.reads, flink.book.writes) == (reads, writes)
    list(flink.advance(second.clock_us // 1000))
    flink.take(Packed(0, PRESENT, 0, 0, b""))
    assert flink.book.reads == reads
    assert flink.book.writes > writes
    flink.start()
    flink.take(Packed(0, PRESENT, 0, 0, b""))
    flink.take(Packed(0, PRESENT, 0, 0, b""))
    assert flink.book.reads == reads + 1


def test_a_restored_bucket_keeps_its_watermark_and_its_timers() -> None:
    flink = _Flink(_hosting(QUERIES["lazy"]), max_latency_ms=50)
    (first, *_), *_ = _packed(flink.hosting, 1)
    flink.take(first)
    assert flink.by_clock == {1_050}
    list(flink.advance(first.clock_us // 1000 + 1))
    flink.take(Packed(0, PRESENT, 0, 0, b""))
    timers, flink.now = set(flink.timers), 2_000
    flink.start()
    flink.take(first)
    assert flink.counters["rows_late"].count == flink.counters["numLateRecordsDropped"].count == first.rows
    assert flink.timers == timers
    assert flink.by_clock == {1_050}


def _restored_with(missed: Callable[[_Flink], None]) -> tuple[_Flink, _Flink]:
    """A job that has processed rows, kept further ones, and continues from a checkpoint with other timers than it had
    set; and one without a failure."""
    restored, unharmed = (_Flink(_hosting(QUERIES["full outer"]), 20, gathers=True) for _ in range(2))
    (left, right), *_ = _packed(restored.hosting, 1)
    for flink in (restored, unharmed):
        flink.take(left)
        flink.tick(20)
        flink.take(right)
        assert (len(flink.timers), len(flink.by_clock)) == (2, 1)
    missed(restored)
    restored.start()
    return restored, unharmed


def _all(flink: _Flink) -> Counter[str]:
    given = [*flink.tick(20), *flink.advance(LAST_MS)]
    assert flink.book.data is None
    assert not flink.timers
    assert not flink.by_clock
    return _rows(given, flink.hosting)


def test_timers_that_a_checkpoint_has_missed_are_set_again_when_a_bucket_is_called() -> None:
    """PyFlink registers timers asynchronously, and in process mode a checkpoint does not wait for them."""

    def missed(flink: _Flink) -> None:
        flink.timers, flink.by_clock = set(), set()

    restored, unharmed = _restored_with(missed)
    restored.take(Packed(0, PRESENT, 0, NO_WATERMARK, b""))
    assert (restored.timers, restored.by_clock) == (unharmed.timers, unharmed.by_clock)
    expected = _all(unharmed)
    assert _all(restored) == expected
    assert expected


COMES: dict[str, Callable[[_Flink], list[Any]]] = {
    "the clock": lambda flink: flink.tick(20),
    "a watermark": lambda flink: list(flink.advance(min(flink.timers | {LAST_MS - 1}))),
    "the end": lambda flink: list(flink.advance(LAST_MS)),
}


@pytest.mark.parametrize("what", list(COMES))
@pytest.mark.parametrize("calls", [0, 1, 2])
def test_only_a_call_makes_up_for_timers_where_nothing_but_time_comes(what: str, calls: int) -> None:
    """As many restores as calls: the next checkpoint lacks the timers of a call, too."""

    def missed(flink: _Flink) -> None:
        flink.timers, flink.by_clock = set(), set()

    restored, unharmed = _restored_with(missed)
    for call in range(calls):
        if call:
            missed(restored)
            restored.start()
        restored.take(Packed(0, PRESENT, 0, NO_WATERMARK, b""))
    if what == "a watermark":  # the gathered rows are processed first
        for flink in (restored, unharmed):
            flink.tick(20)
    expected = _rows(COMES[what](unharmed), unharmed.hosting)
    steps = unharmed.counters["rows_in"].count
    found = _rows(COMES[what](restored), restored.hosting)
    if calls:
        assert found == expected
        assert restored.counters["rows_in"].count == steps
        assert expected
    else:
        assert not found
        assert restored.counters["rows_in"].count < steps


@pytest.mark.parametrize("left", ["the last", "the next", "the clock", "a stale one"])
def test_whatever_timer_is_left_sets_the_others_again(left: str) -> None:
    def missed(flink: _Flink) -> None:
        by_event = {
            "the last": {LAST_MS},
            "the next": flink.timers - {LAST_MS},
            "a stale one": {-5},
            "the clock": set(),
        }
        flink.timers = by_event[left]
        flink.by_clock = flink.by_clock if left == "the clock" else set()

    restored, unharmed = _restored_with(missed)
    first = restored.tick(20) if left == "the clock" else []
    assert _all(restored) + _rows(first, restored.hosting) == _all(unharmed)


@pytest.mark.parametrize("name", list(QUERIES))
def test_rows_that_are_gathered_by_the_clock_have_the_same_answer(name: str) -> None:
    """Some of them are late: the watermark after a file is greater than the first times of the next one."""
    hosting = _hosting(QUERIES[name])
    alone, gathering = _Flink(hosting), _Flink(hosting, 20, gathers=True)
    expected: list[Any] = []
    found: list[Any] = []
    for number, packed in enumerate(_packed(hosting, 2)):
        for row in packed:
            expected += alone.take(row)
            found += gathering.take(row)
        if number % 2:
            assert gathering.kept
            found += gathering.tick(20)
            assert not gathering.kept
        watermark = max(row.clock_us for row in packed) // 1000 - 500
        expected += alone.advance(watermark)
        if number % 3:  # an event-time timer may fire first, and finds the gathered rows
            found += gathering.advance(watermark)
        else:
            gathering.watermark = watermark
    expected += alone.advance(LAST_MS)
    found += gathering.advance(LAST_MS)
    assert _rows(found, hosting) == _rows(expected, hosting)
    assert alone.counters["rows_late"].count == gathering.counters["rows_late"].count > 0
    assert not gathering.segments
    assert gathering.book.data is None


def test_what_comes_while_a_step_works_is_one_step_unless_the_watermark_moved() -> None:
    flink = _Flink(_hosting(QUERIES["inner"]), 20, gathers=True)
    blocks = [row for packed in _packed(flink.hosting, 1) for row in packed][:4]
    flink.step_ms = 8
    flink.take(blocks[0])
    flink.tick(0)
    flink.take(blocks[1])
    flink.tick(5)
    flink.take(blocks[2])
    assert len(flink.kept) == 2
    assert flink.by_clock == {1_008 + 8}
    flink.watermark = 1
    flink.take(blocks[3])
    assert len(flink.kept) == 1
    assert flink.by_clock == {1_008 + 5 + 8 + 8}
    assert sum(flink.held()) == sum(row.rows for row in blocks[:3])
    flink.counters.clear()
    flink.start()
    flink.tick(20)
    assert not flink.kept
    assert sum(flink.held()) == sum(row.rows for row in blocks)


def test_rows_wait_as_long_as_the_last_step_took_and_no_longer_than_they_may() -> None:
    flink = _Flink(_hosting(QUERIES["inner"]), 20, gathers=True)
    blocks = [row for packed in _packed(flink.hosting, 1) for row in packed]
    waits = []
    for flink.step_ms, block in zip((3, 7, 90, 0, 0), blocks, strict=False):
        flink.take(block)
        waits.append(min(flink.by_clock) - flink.now)
        flink.tick(waits[-1])
    assert waits == [0, 3, 7, 20, 0]


@pytest.mark.parametrize("comes", ["a row", "the clock", "the end"])
def test_what_was_gathered_is_not_lost_where_max_latency_is_given_up(comes: str) -> None:
    flink = _Flink(_hosting(QUERIES["inner"]), 20, gathers=True)
    (left, right), *_ = _packed(flink.hosting, 1)
    flink.take(left)
    flink.take(right)
    flink.max_latency_ms, flink.gathers = None, False
    flink.start()
    {
        "a row": lambda: flink.take(left),
        "the clock": lambda: flink.tick(20),
        "the end": lambda: [*flink.advance(LAST_MS)],
    }[comes]()
    assert not flink.kept
    assert flink.counters["rows_in"].count == left.rows + right.rows + (left.rows if comes == "a row" else 0)


def test_state_of_another_number_of_buckets_is_refused() -> None:
    flink = _Flink(_hosting(QUERIES["inner"]))
    flink.take(Packed(0, PRESENT, 0, 0, b""))
    flink.hosting = _hosting(QUERIES["inner"], buckets=4)
    flink.start()
    with pytest.raises(EngineError, match=r"WA-3003: the checkpoint holds 1 buckets of keys, .*give buckets=1"):
        flink.take(Packed(0, PRESENT, 0, 0, b""))


def _restarted(flink: _Flink, hosting: Hosting) -> _Flink:
    flink.hosting = hosting
    flink.start()
    return flink


CALL = Packed(0, PRESENT, 0, 0, b"")


@pytest.mark.parametrize("key", [CONTROL, 7])
def test_the_state_of_another_query_is_refused_when_the_task_starts(key: int) -> None:
    """The control key is called, too: it has state whatever the number of buckets was."""
    flink = _Flink(_hosting(QUERIES["inner"]))
    flink.get_current_key = lambda: key  # type: ignore[method-assign]
    assert flink.take(CALL)
    assert _restarted(flink, _hosting(QUERIES["inner"])).take(CALL)
    assert _restarted(flink, _hosting(_join(probability=True, strategy="lazy"))).take(CALL), "what may change"
    with pytest.raises(EngineError, match=r"WA-3003.*holds 1 buckets of keys, the query asks for 4"):
        _restarted(flink, _hosting(QUERIES["inner"], buckets=4)).take(CALL)
    grouped = replace(_hosting(QUERIES["inner"]), key_groups=128)
    fresh = _Flink(grouped)
    assert fresh.take(CALL)
    with pytest.raises(EngineError, match=r"WA-3003.*in 128 key groups, those of this job in 256"):
        _restarted(fresh, replace(grouped, key_groups=256)).take(CALL)
    for other, what in ((_join(how="left_outer"), "how was"), (QUERIES["best"], "best was")):
        with pytest.raises(EngineError, match=rf"WA-3032.*{what}"):
            _restarted(flink, _hosting(other)).take(CALL)


def test_a_bucket_that_an_older_release_wrote_gets_the_identity() -> None:
    flink = _Flink(_hosting(QUERIES["inner"]))
    assert flink.take(CALL)
    flink.segments.pop(next(key for key, data in flink.segments.items() if b"settings" in data))
    assert _restarted(flink, _hosting(QUERIES["inner"])).take(CALL)
    with pytest.raises(EngineError, match="WA-3032"):
        _restarted(flink, _hosting(QUERIES["best"])).take(CALL)

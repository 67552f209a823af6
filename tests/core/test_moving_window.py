"""Windows in memory from step to step agree with the state, whatever a host repeats, restores or moves."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from infra.operators import CountingStore, arrivals_of
from whenabouts.conformance import multiset
from whenabouts.conformance.coalescing_generators import coalescings
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.coalescing.sliding_window import SlidingWindow
from whenabouts.core.errors import EngineError, QueryError
from whenabouts.core.runtime.protocol import NO_WATERMARK, Arrival, FlushMode, Operator, Step
from whenabouts.core.state.memory_store import DictStore
from whenabouts.core.state.segment_codec import unwrap, wrap
from whenabouts.core.state.window_cache import MEBIBYTES, WindowCache, window_cache
from whenabouts.core.temporal_queries.aggregate_query import FUNCTIONS, WEIGHTED, TemporalAggregate
from whenabouts.core.temporal_queries.join_query import TemporalJoin

SECOND = 1_000_000
AGGREGATES: dict[str, Any] = {name: name for name in FUNCTIONS} | {"mean": (WEIGHTED, "w")}


@pytest.fixture(autouse=True)
def _no_windows_of_others() -> Iterator[None]:
    window_cache().clear()
    yield
    window_cache().clear()


FORMS: dict[str, dict[str, Any]] = {
    "in time": {},
    "rows": {"window": None, "rows": True, "slide": True},
    "rows in time": {"window": None, "rows": True},
    "rows of each group": {"window": None, "rows": True, "slide": True, "per_group": True},
    "rows of each group in time": {"window": None, "rows": True, "per_group": True},
}
"""Windows of a number of rows, and slides of a number of rows, in place of durations."""


def sliding(query: Coalesce, kind: str, form: str, scheme: str, relation: str, slide: int, width: int) -> Coalesce:
    """A query over a window that slides, with the other options of one that was drawn."""
    given = {f.name: getattr(query, f.name) for f in fields(Coalesce)}
    given |= {"window": width * SECOND, "slide": slide * SECOND, "rows": None, "at": None, "per_group": False}
    given |= {"scheme": scheme} | FORMS[form]
    given |= {name: size for name, size in (("rows", width), ("slide", slide)) if given[name] is True}
    given["per_group"] &= not (kind == "join" and given["slide"] == slide)  # groups share no instants
    if given["slide"] != slide:
        given["slide"] = f"{slide}s"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of slides longer than the window, of streams in one bucket
        if kind == "aggregate":
            return TemporalAggregate(**given | {"values": ["v", "w"]}, aggregates=AGGREGATES, where=pc.field("w") == 0)
        if kind == "join":
            return TemporalJoin(**given, relation=relation)
        return Coalesce(**given)


def blocks(operator: Operator, table: pa.Table) -> list[Arrival]:
    """A table as arrivals of every input."""
    return arrivals_of(operator, dict.fromkeys(range(len(operator.readers)), table))


def told(operator: Operator, step: Step) -> tuple[Any, ...]:
    """The results of a step, without the metrics of how it was done."""
    output = multiset.rows(pa.Table.from_batches(step.output, operator.output_schema))
    counts = {name: n for name, n in step.metrics.items() if name != "compared"}
    held = {name: n for name, n in step.gauges.items() if "bytes" not in name}
    return output, str([rejected.rows.to_pylist() for rejected in step.rejected]), step.timer_us, counts, held


@settings(deadline=None, max_examples=120, suppress_health_check=list(HealthCheck))
@given(
    st.data(), coalescings(units=(SECOND,)), st.sampled_from(["coalesce", "aggregate", "join"]),
    st.sampled_from(list(FORMS)), st.sampled_from(["eager", "lazy"]),
    st.sampled_from(["overlaps", "before", "meets"]), st.integers(1, 4), st.integers(1, 9),
)  # fmt: skip
def test_memory_says_what_the_state_says(
    data: st.DataObject, example: Any, kind: str, form: str, scheme: str, relation: str, slide: int, width: int
) -> None:
    """Step by step the same as without memory, also if steps are repeated from their previous state, with the same or
    other rows."""
    if kind == "aggregate" and example.query.equivalence.kind == "predicate":
        kind = "coalesce"
    query = sliding(example.query, kind, form, scheme, relation, slide, width)
    table = example.table.sort_by("t").filter(pc.is_valid(pc.field("t")))
    operator = query.operator([table.schema] * len(query.inputs), streaming=False)
    remembering, plain = DictStore(), DictStore()
    watermark = NO_WATERMARK
    at = 0
    while at < table.num_rows:
        rows = data.draw(st.integers(1, 5))
        arrivals = blocks(operator, table.slice(at, rows))
        if data.draw(st.sampled_from([False, False, True])):  # a step that is lost before it is committed
            lost = blocks(operator, table.slice(at, data.draw(st.integers(0, 5))))
            operator.step(remembering.copy(), lost, watermark)
            event("lost")
        hits = window_cache().nbytes
        found = operator.step(remembering, arrivals, watermark)
        held = dict(window_cache()._held)
        for window, _ in held.values():
            assert isinstance(window, SlidingWindow)
            window._check()
        window_cache().clear()
        want = operator.step(plain, arrivals, watermark)
        assert told(operator, found) == told(operator, want), query
        window_cache().clear()
        for key, (window, _) in held.items():
            window_cache().put(key, window)
        event("in memory" if hits else "from state")
        at += rows
        seen = table.column("t")[min(at, table.num_rows) - 1].as_py()
        watermark = max(watermark, seen - query.lateness_us[0])
    latest = int(pc.max(table.column("t")).as_py() or NO_WATERMARK) if table.num_rows else NO_WATERMARK
    found = operator.step(remembering, [], watermark, FlushMode.END, latest)
    window_cache().clear()
    want = operator.step(plain, [], watermark, FlushMode.END, latest)
    assert told(operator, found)[:2] == told(operator, want)[:2]


def test_groups_that_come_go_and_grow() -> None:
    """Thousands of tuples: slots are reused, moved and doubled, together with the data of aggregates."""
    query = TemporalAggregate(
        time="t", group="g", values="v", window="200us", slide="10us",
        aggregates={name: name for name in FUNCTIONS},
    )  # fmt: skip
    schema = pa.schema({"t": pa.int64(), "g": pa.int64(), "v": pa.int64()})
    operator = query.operator([schema], streaming=True)
    remembering, plain = DictStore(), DictStore()
    found_in_memory = 0
    for step in range(60):
        at = range(step * 20, step * 20 + 20)
        # Group 0 always, group 1 now and then, the others for a while each.
        rows = [(t, g, (t * (g + 3) // 7) % 3) for t in at for g in (0, 1, 2 + t // 100) if g != 1 or t % 300 < 40]
        table = pa.Table.from_pylist([dict(zip("tgv", row, strict=True)) for row in rows], schema)
        found_in_memory += bool(window_cache().nbytes)
        found = operator.step(remembering, blocks(operator, table), step * 20)
        ((key, (window, _)),) = window_cache()._held.items()
        assert isinstance(window, SlidingWindow)
        window._check()
        window_cache().clear()
        assert told(operator, found) == told(operator, operator.step(plain, blocks(operator, table), step * 20))
        window_cache().clear()
        window_cache().put(key, window)
    assert found_in_memory == 59


def test_a_window_is_found_by_its_state_and_query_alone() -> None:
    table = pa.table({"t": [k * SECOND for k in range(20)], "v": [k // 3 for k in range(20)]})
    first, other = (
        TemporalAggregate(time="t", values="v", window="9s", slide="1s", aggregates={"n": "count"}, where=where)
        for where in (None, pc.field("v") > 2)
    )
    given = []
    for query in (first, other):
        operator, store = query.operator([table.schema], streaming=True), DictStore()
        for cut in (0, 10):
            step = operator.step(store, blocks(operator, table.slice(cut, 10)), 10 * SECOND if cut else NO_WATERMARK)
        given.append((operator, store))
    assert len(window_cache()._held) == 2  # equal states, and a window for each query
    step = first.operator([table.schema], streaming=True).step(given[0][1], [], 15 * SECOND)
    assert step.metrics["compared"] == 5  # only of the tuples that are now final: another instance finds the window
    window_cache().clear()
    again = given[0][0].step(given[0][1], [], 18 * SECOND)
    assert again.metrics["compared"] > 3


def test_state_of_an_earlier_form_is_refused() -> None:
    query = Coalesce(time="t", values="v", window="9s", slide="1s")
    operator = query.operator([pa.schema({"t": pa.int64(), "v": pa.int64()})], streaming=True)
    store = DictStore()
    operator.step(store, [], 10 * SECOND)
    ((place, book),) = [(key, data) for key, data in store._segments.items() if b'"clock"' in data]
    clock = json.loads(bytes(unwrap(book)))["clock"]
    with pytest.raises(EngineError, match="WA-3003"):
        operator.step(DictStore(store._segments | {place: wrap(json.dumps(clock).encode())}), [], 15 * SECOND)


def bytes_a_step(form: str, scheme: str, width: int) -> tuple[float, float, float]:
    """Bytes read and written by steps of ten tuples while the window holds `width`, and bytes held per tuple."""
    given = {"window": f"{width - 1}us", "slide": "10us"} | FORMS[form]
    of_each = width // 2 if "per_group" in given else width
    given |= {"rows": of_each} if given.get("rows") else {}
    given |= {"slide": 10} if given["slide"] is True else {}
    query = TemporalAggregate(time="t", group="g", values="v", scheme=scheme, aggregates={"n": "count"}, **given)
    schema = pa.schema({"t": pa.int64(), "g": pa.int64(), "v": pa.int64()})
    operator, store = query.operator([schema], streaming=False), CountingStore()

    def step(first: int, size: int) -> None:
        at = range(first, first + size)
        table = pa.table({"t": at, "g": [t % 2 for t in at], "v": [t // 6 for t in at]}, schema)
        operator.step(store, blocks(operator, table), first)

    step(0, width)
    for at in range(width, 4 * width, width // 2):
        step(at, width // 2)
    store.calls.clear()
    steps = 64
    for at in range(steps):
        step(4 * width + 10 * at, 10)
    return store.moved("get") / steps, store.moved("put") / steps, store.bytes_held / width


@pytest.mark.slow
@pytest.mark.parametrize(("form", "scheme"), [*((form, "eager") for form in FORMS), ("rows", "lazy")])
def test_what_a_step_reads_and_writes_follows_what_came(form: str, scheme: str) -> None:
    """It does not follow the window, which has half a megabyte. The state holds the tuples of at most two windows."""
    read, written, held = bytes_a_step(form, scheme, 16_000)
    assert read < 20_000  # waiting rows and directories: no tuple of the window
    assert written < 20_000
    assert held < 100  # a tuple takes 24 bytes, twice that before the log of a row-count window is rewritten


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    query = Coalesce(time="t", group="g", values="v", window="9s", slide="1s")
    table = pa.table({"t": [k * SECOND for k in range(40)], "g": [0] * 40, "v": [k // 3 for k in range(40)]})
    operator = query.operator([table.schema], streaming=True)
    memory = WindowCache(60_000)
    monkeypatch.setattr("whenabouts.core.coalescing.extent_evaluator.window_cache", lambda: memory)
    for bucket in range(8):
        shifted = table.set_column(2, "v", pc.add(table.column("v"), bucket))
        operator.step(DictStore(), blocks(operator, shifted), 30 * SECOND)
        operator.step(DictStore(), blocks(operator, shifted), NO_WATERMARK)
        assert 0 < memory.nbytes <= memory.most
    assert 1 < len(memory._held) < 8
    memory.most = 10
    memory.put("too large", SlidingWindow(operator.readers[0].schema, ("g",), ("v",), query.coalescing.equivalence))
    assert "too large" not in memory._held


def test_a_setting_that_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    window_cache.cache_clear()
    monkeypatch.setenv(MEBIBYTES, "much")
    with pytest.raises(QueryError, match="WA-2151"):
        window_cache()
    monkeypatch.setenv(MEBIBYTES, "0")
    assert window_cache().most == 0
    window_cache.cache_clear()

"""Plans that adapt to the stream: buckets switch at run time, with no row lost or repeated."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from infra.operators import arrivals_of
from whenabouts.core import QueryError
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.local import Outcome, run, run_stream
from whenabouts.core.shared_coalescing.catalog import PARTS, Catalog
from whenabouts.core.shared_coalescing.columns import QUERY
from whenabouts.core.shared_coalescing.scheme_policy import Observation
from whenabouts.core.state.memory_store import DictStore, StorePart
from whenabouts.planner import Adaptive, CoalescingQuery, Registry, Statistics

SECOND = 1_000_000
NAMES = ("a", "b", "c")


def drifting(seed: int = 3) -> list[pa.Table]:
    """Files of 10 s; values change rarely in the first and the last third, and with nearly every row in between."""
    draw, level, files = random.Random(seed), dict.fromkeys(NAMES, 0), []
    for number in range(60):
        rows = [(number * 10 + draw.randrange(10) - draw.randrange(4), draw.choice("xy")) for _ in range(40)]
        columns: dict[str, list[int]] = {name: [] for name in NAMES}
        for _ in rows:
            for name in NAMES:
                level[name] += draw.random() < (0.95 if 20 <= number < 40 else 0.03)
                columns[name].append(level[name])
        t = [at * SECOND + draw.randrange(SECOND) for at, _ in rows]
        files.append(pa.table({"t": pa.array(t, pa.int64()), "k": [k for _, k in rows]} | columns))
    return files


def query(name: str) -> Coalesce:
    return Coalesce(time="t", group="k", values=name, window="60 s", slide="10 s", lateness="14 s")


def registry(**given: Any) -> Registry:
    found = Registry(**given)
    for name in NAMES:
        found.register(name, query(name), stream="s")
    return found


def assert_alone(outcome: Outcome, files: list[pa.Table]) -> None:
    for name in NAMES:
        alone = run(query(name), [pa.concat_tables(files)]).output
        mine = outcome.output.filter(pc.equal(outcome.output[QUERY], name)).select(alone.column_names)
        assert alone.num_rows > 500
        assert Counter(map(repr, mine.to_pylist())) == Counter(map(repr, alone.to_pylist())), name
    assert outcome.metrics["rows_in"] == outcome.metrics["rows_processed"] + outcome.metrics["rows_rejected"]
    assert not outcome.rejects.num_rows


@pytest.mark.slow
@pytest.mark.parametrize(("buckets", "restart_after"), [(1, None), (2, 33)])
def test_plans_follow_the_stream_and_the_rows_are_those_of_each_query_alone(
    buckets: int, restart_after: int | None
) -> None:
    files = drifting()
    share = registry().share(files[0].schema, adapt_every="30 s", weight=0.5)
    outcome = run_stream(share, [files], buckets=buckets, restart_after=restart_after)
    # To lazy once hardly anything coalesces, back later, and without oscillation.
    assert 2 * buckets <= outcome.metrics["schemes_switched"] <= 6 * 2 * buckets
    assert_alone(outcome, files)


def test_more_duplicates_than_rows_say_nothing_of_the_stream() -> None:
    """Rows count as processed until the watermark shows that they are duplicates, which can be much later."""
    at = [[0], [100] * 9, [90, 101], [200], [201], [300], [400]]
    files = [pa.table({"t": [t * SECOND for t in ts], "k": ["x"] * len(ts), "a": range(len(ts))}) for ts in at]
    found = Registry()
    found.register("a", query("a"), stream="s")
    outcome = run_stream(found.share(files[0].schema, adapt_every="1 s"), [files])
    assert outcome.metrics["rows_rejected"] == outcome.rejects.num_rows == 8
    alone = run(query("a"), [pa.concat_tables(files)]).output
    assert sorted(map(repr, outcome.output.select(alone.column_names).to_pylist())) == sorted(
        map(repr, alone.to_pylist())
    )


@pytest.mark.slow
def test_what_a_bucket_decides_and_when_it_acts() -> None:
    """Eager while tuples coalesce; lazy when they hardly do; eager again. A repeated step decides the same."""
    files = drifting()
    operator = (
        registry().share(files[0].schema, adapt_every="30 s", weight=0.5).operator([files[0].schema], streaming=True)
    )
    store, greatest, wishes = DictStore(), 0, []
    for file in files:
        blocks = arrivals_of(operator, {0: file})
        before = store.copy()
        operator.step(store, blocks, greatest - 14 * SECOND)
        operator.step(before, blocks, greatest - 14 * SECOND)
        assert before.get(0, 0) == store.get(0, 0)  # the record
        greatest = max(greatest, pc.max(file["t"]).as_py())
        book = Catalog.read(StorePart(store, 0, PARTS))
        wishes.append({entry.wish for entry in book.queries.values()})
    assert wishes[0] == {None}
    assert {"lazy"} in wishes[20:40]
    assert wishes[19] == wishes[-1] == {"eager"}
    assert all(known["source"] == "measured" for known in book.observed.known.values())
    assert {entry.scheme for entry in book.queries.values()} == {"eager"}


@pytest.mark.slow
def test_a_plan_that_does_not_win_clearly_is_not_adopted() -> None:
    files = drifting()
    outcome = run_stream(registry(hysteresis=0.9).share(files[0].schema, adapt_every="30 s"), [files])
    assert outcome.metrics["schemes_switched"] == 0
    assert_alone(outcome, files)


@pytest.mark.slow
def test_a_query_that_adapts_travels_and_may_stop_doing_so() -> None:
    files = drifting()
    plans = registry()
    adapting = pickle.loads(pickle.dumps(plans.share(files[0].schema, adapt_every="30 s", weight=0.5)))
    fixed = plans.share(files[0].schema)
    outcome = run_stream(adapting, [files], changes={38: fixed, 39: adapting})
    assert outcome.metrics["schemes_switched"] >= 6  # to lazy, and to eager without a policy
    assert_alone(outcome, files)


def deciding(found: Registry, buckets: int | None = None) -> Adaptive:
    inner: Any = found.share(drifting()[0].schema, adapt_every="1 s", weight=1.0, buckets=buckets).query
    assert isinstance(inner.adapting, Adaptive)
    return inner.adapting


def counts(cp: float, rows: int = 100_000) -> dict[str, int]:
    of = {f"neighbours.{name}": 100 for name in NAMES} | {f"coalesced.{name}": int(100 * cp) for name in NAMES}
    return {"rows_processed": rows, **of}


def test_pins_and_budgets_hold_in_every_bucket() -> None:
    eager = dict.fromkeys(NAMES, "eager")
    low = Observation(counts(0.05), 10.0)
    assert deciding(registry()).decide(low, eager, {}).schemes == dict.fromkeys(NAMES, "lazy")
    pinned = registry()
    pinned.pin("b", "eager")
    assert deciding(pinned).decide(low, eager, {}).schemes["b"] == "eager"
    # 600,000 tuples in a window: three eager extents need 40 bytes for each, 72 MB, a shared one 60 MB.
    high = Observation(counts(0.5), 10.0)
    for parts, scheme in ((4, "eager"), (10, "lazy")):
        limited = deciding(registry(memory_budget=640e6), parts)
        assert set(limited.decide(high, eager, {}).schemes.values()) == {scheme}
    # A budget that no plan meets, or a period without data, changes nothing.
    mixed = eager | {"a": "lazy"}
    assert deciding(registry(memory_budget=640e6), 1000).decide(high, mixed, {}).schemes == mixed
    known = {"a": {"cp": 0.5, "oop": 0.0, "rate": 1.0, "arrived": None, "source": "measured", "step_rows": 9.0}}
    assert deciding(registry()).decide(Observation({}, 10.0), mixed, {}) == (mixed, {})
    assert deciding(registry()).decide(Observation({}, 10.0), mixed, known).known == known


def test_a_budget_is_that_of_all_streams() -> None:
    found = registry(memory_budget=10_000)
    found.register("other", CoalescingQuery(("v",), rows=50, stream="elsewhere"), Statistics(0.8))
    plan = found.plan()
    inner: Any = found.share(drifting()[0].schema, stream="s", plan=plan, adapt_every="1 s", buckets=2).query
    assert inner.adapting.given.budget == (10_000 - plan.bytes_beside("s")) / 2 < 5_000


@pytest.mark.parametrize(
    ("given", "options", "told"),
    [
        ({}, {"adapt_every": "0 s"}, "WA-2021: adapt_every is '0 s'"),
        ({}, {"adapt_every": "1 s", "weight": 0.0}, "WA-2072: weight is 0.0"),
        ({"memory_budget": "1 GiB"}, {"adapt_every": "1 s"}, "WA-2006: .*needs the number of buckets"),
        ({}, {"adapt_every": "1 s", "buckets": 0}, "WA-2006: buckets is 0"),
    ],
)
def test_what_cannot_be_is_refused(given: Any, options: Any, told: str) -> None:
    with pytest.raises(QueryError, match=told):
        registry(**given).share(drifting()[0].schema, **options)
